#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts what tests/deploy needs, and Debian has not, into build/deploy: kustomize, the schema of compose files, and the definitions of
# the Prometheus operator's resources. All three are Go modules. Takes 2 min on two cores; nothing the second time.
#   tests/deploy/tools.sh helm     helm as well, which tests/release needs: 2.5 min of CPU more, 78 MB
set -euo pipefail
cd "$(dirname "$0")/../.."

kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
compose=github.com/compose-spec/compose-go/v2@v2.9.1
helm=helm.sh/helm/v3/cmd/helm@v3.19.5
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0

into=$PWD/build/deploy
made_for="$kustomize $compose $operator"
. tests/go_modules.sh
made() {
    [ "$(cat "$into/$1" 2>/dev/null || true)" = "$2" ]
}

if [ "${1:-}" = helm ] && ! made helm-made-for "$helm"; then
    need_go
    echo "building helm into $into"
    mkdir -p "$into"
    GOBIN=$into go install "$helm"
    echo "$helm" > "$into/helm-made-for"
fi
if made made-for "$made_for"; then
    exit 0
fi
need_go
echo "making $into"
mkdir -p "$into"
GOBIN=$into go install "$kustomize"
install -m 0644 "$(directory "$compose")/schema/compose-spec.json" "$into/"
install -m 0644 "$(directory "$operator")"/example/prometheus-operator-crd/*_{podmonitors,prometheusrules}.yaml "$into/"
echo "$made_for" > "$into/made-for"
