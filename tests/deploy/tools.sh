#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts what tests/deploy needs, and Debian has not, into build/deploy: kustomize, the schema of compose files, and the definitions of
# the Prometheus operator's resources. All three are Go modules. Takes 2 min on two cores; nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/../.."

kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
compose=github.com/compose-spec/compose-go/v2@v2.9.1
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0

into=$PWD/build/deploy
made_for="$kustomize $compose $operator"
if [ "$(cat "$into/made-for" 2>/dev/null || true)" = "$made_for" ]; then
    exit 0
fi
. tests/go_modules.sh
need_go

echo "making $into"
rm -rf "$into" && mkdir -p "$into"
GOBIN=$into go install "$kustomize"
install -m 0644 "$(directory "$compose")/schema/compose-spec.json" "$into/"
install -m 0644 "$(directory "$operator")"/example/prometheus-operator-crd/*_{podmonitors,prometheusrules}.yaml "$into/"
echo "$made_for" > "$into/made-for"
