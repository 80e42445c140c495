#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts what runs the jobs of a CI, and comes as a Go module, into build/hosts/runners: GitLab's runner with its shell executor alone, and
# act, which runs GitHub's workflows. Takes 4 min on two busy cores, 60 MB; nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/../.."

# GitLab's runner 12.8. Of a newer one the module proxy serves the module (19.4), and not what it needs.
gitlab=gitlab.com/gitlab-org/gitlab-runner@v1.11.1-0.20200110014830-8e5683f82927
act=github.com/nektos/act@v0.2.89

into=$PWD/build/hosts/runners
made_for="$gitlab $act $(sha256sum < "$0")"
if [ "$(cat "$into/made-for" 2>/dev/null || true)" = "$made_for" ]; then
    exit 0
fi
. tests/go_modules.sh
command -v go >/dev/null || { echo "no go: install Go 1.25 or newer" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { # unless it fails
    "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

start_module() { # for a build of $1 in the current folder
    printf 'module build\n\ngo 1.24\n' > go.mod
    install -m 0644 "$(directory "$1")/go.sum" go.sum
    {
        printf 'module build\n\n'
        grep '^go ' "$(directory "$1")/go.mod"
        printf 'require %s %s\n' "${1%@*}" "${1#*@}"
        sed -n '/^replace /p' "$(directory "$1")/go.mod"
    } > go.mod.new
    mv go.mod.new go.mod
}

echo "making $into"
rm -rf "$into" && mkdir -p "$into" "$work/gitlab" "$work/act"
export GOFLAGS=-mod=mod

# Docker's and Kubernetes' executors are left out: the shell executor asks nothing of them.
cat > "$work/gitlab/main.go" <<'END'
package main

import (
	"os"

	"github.com/urfave/cli"
	"gitlab.com/gitlab-org/gitlab-runner/common"

	_ "gitlab.com/gitlab-org/gitlab-runner/commands"
	_ "gitlab.com/gitlab-org/gitlab-runner/commands/helpers"
	_ "gitlab.com/gitlab-org/gitlab-runner/executors/shell"
	_ "gitlab.com/gitlab-org/gitlab-runner/shells"
)

func main() {
	app := cli.NewApp()
	app.Commands = common.GetCommands()
	if app.Run(os.Args) != nil {
		os.Exit(1)
	}
}
END
(cd "$work/gitlab" && start_module "$gitlab" && quietly go build -o "$into/gitlab-runner" .)
(cd "$work/act" && start_module "$act" && quietly go build -o "$into/act" "${act%@*}")
echo "$made_for" > "$into/made-for"
