#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the daemon, runs three real pipelines over a made-up log of 60 MB, prints their reports and
# the metrics that came of them, and stops. Called by `sudo make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."

pipelined=$PWD/.venv/bin/pipelined
python=$PWD/.venv/bin/python
directory=$(mktemp -d)
daemon=
stop() {
    status=$?
    trap - EXIT
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -rf "$directory"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

get() { # PATH of the daemon's pages
    "$python" -c 'import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=5).read().decode())' \
        "http://127.0.0.1:$port$1"
}

log=$directory/access.log
echo "Making a log of 60 MB …"
awk 'BEGIN {
    srand(1)
    for (i = 0; i < 1000000; i++)
        printf "10.0.%d.%d GET /page/%d %d %d milliseconds of work\n", rand() * 256, rand() * 256, rand() * 5000,
            rand() < .9 ? 200 : 404, rand() * 90000
}' > "$log"

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$pipelined" serve --web.listen-address "127.0.0.1:$port" > "$directory/daemon.log" 2>&1 &
daemon=$!
for _ in {1..100}; do
    get /readyz > /dev/null 2>&1 && break
    if ! kill -0 "$daemon" 2>/dev/null; then
        cat "$directory/daemon.log" >&2
        exit 1
    fi
    sleep 0.1
done
get /readyz > /dev/null || { cat "$directory/daemon.log" >&2; exit 1; }

profile() {
    printf '\n$ %s\n' "$1"
    "$pipelined" run "$1" > /dev/null
}
export log
# shellcheck disable=SC2016 # the shell that runs the pipeline expands $log
{
    profile 'cat "$log" | awk '\''$4 == 404 { print $3 }'\'' | sort | uniq -c'
    profile 'sed "s/GET/get/" "$log" | tr a-z A-Z | gzip -1'
    profile 'dd if="$log" bs=4k status=none | awk '\''{ bytes += $5 } END { print bytes }'\'
}

printf '\n$ curl -s http://127.0.0.1:%s/metrics | grep -E …\n' "$port"
get /metrics | grep -E '^pipelined_(runs_total|level_seconds_total|cpu_seconds_total|pipe_sleeps_total|read_bytes_total)\{.*pipeline="(cat\|awk\|sort\|uniq|sed\|tr\|gzip|dd\|awk)"'
