#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A script whose output is logged: loop.sh TOOLS MADE STOP | tee LOG. Its pipelines are nested in that one.
set -euo pipefail
while [ ! -e "$3" ]; do
	"$1/fetch" work 0.2 | "$1/filter" >/dev/null
	printf x >>"$2"
	sleep 0.8
done
