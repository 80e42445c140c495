#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the daemon on a free port, runs three real pipelines over a made-up log of 60 MB, prints
# their reports and the metrics that came of them, and stops. Called by `sudo make demo`.
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
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    echo "demo: $1" >&2
    cat "$directory/daemon.log" >&2
    exit 1
}

get() { # URL
    "$python" -c 'if True:
        import sys, urllib.request as r
        opener = r.build_opener(r.ProxyHandler({}))
        sys.stdout.write(opener.open(sys.argv[1], timeout=5).read().decode())' "$1"
}

: > "$directory/daemon.out"
# Port 0: the kernel chooses a free one, and the daemon says which.
"$pipelined" serve --web.listen-address 127.0.0.1:0 --state-directory "$directory/state" \
    > "$directory/daemon.out" 2> "$directory/daemon.log" &
daemon=$!
for _ in {1..300}; do
    grep -q 'Ctrl-C stops it' "$directory/daemon.out" && break
    kill -0 "$daemon" 2>/dev/null || die "the daemon does not start"
    sleep 0.1
done
grep -q 'Ctrl-C stops it' "$directory/daemon.out" || die "the daemon is not ready after 30 s"
grep -v 'Ctrl-C stops it' "$directory/daemon.out"
metrics=$(awk '$1 == "metrics" { print $2 }' "$directory/daemon.out")

printf '\nMaking a log of 60 MB …\n'
export log=$directory/access.log
awk 'BEGIN {
    srand(1)
    for (i = 0; i < 1000000; i++)
        printf "10.0.%d.%d GET /page/%d %d %d milliseconds of work\n",
            rand() * 256, rand() * 256, rand() * 5000, rand() < .9 ? 200 : 404, 10000 + rand() * 90000
}' > "$log"
gzip -1 -k "$log"

profile() { # A pipeline; its own output is of no interest here, its report is.
    printf "\n\$ pipelined run '%s'\n\n" "$1"
    "$pipelined" run "$1" 2>&1 > /dev/null
}
# shellcheck disable=SC2016 # the shell that runs the pipeline expands $log
{
    # One busy stage: the writer waits at a full pipe.
    profile 'cat "$log" | awk "{ bytes += \$5 } END { print bytes }"'
    # A barrier: nothing after sort runs before sort has read everything.
    profile 'zcat "$log.gz" | sort | awk "{ print \$3 }" | uniq -c'
    # Large blocks: see the mean write, and how often dd sleeps.
    profile 'dd if="$log" bs=1M status=none | awk "\$4 == 404"'
}

# A run counts as ended a second after its last process: a stage might still join it.
for _ in {1..100}; do
    ended=$(get "$metrics" | awk '
        /^pipelined_runs_total\{.*pipeline="(cat\|awk|zcat\|sort\|awk\|uniq|dd\|awk)"/ { runs += $NF }
        END { print runs + 0 }')
    [ "$ended" -ge 3 ] && break
    sleep 0.1
done

printf '\n$ curl -s %s     (what is not zero of some metrics)\n\n' "$metrics"
get "$metrics" | awk '
    / 0(\.0)?$/ { next }
    /^pipelined_(runs|level_seconds|system_cpu_seconds|written_bytes)_total\{/ &&
    /pipeline="(cat\|awk|zcat\|sort\|awk\|uniq|dd\|awk)"/'
