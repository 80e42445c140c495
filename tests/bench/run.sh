#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build what the benchmarks run, then measure: tests/bench/run.sh [--quick] [--rounds N] [--only NAME,…]
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/bench
build=$here/build
arch=$(uname -m | sed s/x86_64/x86/\;s/aarch64/arm64/)
mkdir -p "$build"
for source in "$here"/programs/*.c tests/kernel/programs/storm.c; do
	name=$(basename "$source" .c)
	libraries=()
	case $name in
	*.bpf)
		clang -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_"$arch" -idirafter "/usr/include/$(uname -m)-linux-gnu" \
			-c "$source" -o "$build/$name.o"
		continue
		;;
	empty | handlers) libraries=(-lbpf) ;;
	esac
	"${CC:-cc}" -g -O2 -Wall -Wextra "$source" -o "$build/$name" "${libraries[@]}"
done
PYTHONPATH=tests exec .venv/bin/python -m bench.bench "$@"
