#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts what tests/traces needs, and Debian has not, into build/traces: Jaeger (an OpenTelemetry Collector with storage and query API;
# without its page), a Collector with the components of deploy/opentelemetry/collector.yaml, and ClickHouse as a Python package.
# Takes 6 min on two cores, 0.4 GB of downloads and 1.1 GB of disk; nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/../.."

jaeger=github.com/jaegertracing/jaeger@v1.76.0
builder=go.opentelemetry.io/collector/cmd/builder@v0.140.0
clickhouse=chdb-core==26.9.0

into=$PWD/build/traces
made_for="$jaeger $builder $(sha256sum < tests/traces/collector_build.yaml) $clickhouse"
if [ "$(cat "$into/made-for" 2>/dev/null || true)" = "$made_for" ]; then
    exit 0
fi
. tests/go_modules.sh
need_go
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { # unless it fails
    "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

echo "making $into"
rm -rf "$into" && mkdir -p "$into"

# Some of the sums in the module's own go.sum are served nowhere else.
mkdir "$work/jaeger"
printf 'module build\n\ngo 1.24\n' > "$work/jaeger/go.mod"
(
    cd "$work/jaeger"
    install -m 0644 "$(directory "$jaeger")/go.sum" go.sum
    quietly go get "${jaeger/@//cmd/jaeger@}"
    quietly go build -o "$into/jaeger" "${jaeger%@*}/cmd/jaeger"
)

install -m 0644 tests/traces/collector_build.yaml "$work/"
(cd "$work" && quietly go run "$builder" --config collector_build.yaml)
install "$work/collector/collector" "$into/collector"

.venv/bin/python -m venv "$into/clickhouse"
"$into/clickhouse/bin/pip" --disable-pip-version-check --quiet install "$clickhouse"
echo "$made_for" > "$into/made-for"
