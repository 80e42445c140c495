#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One `make -j4` after the other, each of four pipelines: builds.sh TOOLS MADE STOP
set -euo pipefail
while [ ! -e "$3" ]; do
	make --silent --jobs=4 --file="$(dirname "$0")/builds.mk" TOOLS="$1" MADE="$2"
	sleep 2
done
