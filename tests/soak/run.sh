#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build what the soak runs, then run it: tests/soak/run.sh [--minutes N | --hours N] [--table FILE] [--picture FILE]
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/soak
mkdir -p "$here/build"
"${CC:-cc}" -O2 -Wall -Wextra -static "$here/programs/tool.c" -o "$here/build/tool"
"${CC:-cc}" -O2 -Wall -Wextra "$here/programs/one_liners.c" -o "$here/build/one_liners"
PYTHONPATH=tests exec .venv/bin/python -m soak.soak "$@"
