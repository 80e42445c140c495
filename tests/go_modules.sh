# SPDX-License-Identifier: Apache-2.0
# For scripts that build or unpack Go modules.

need_go() {
    if ! command -v go >/dev/null; then
        echo "no go: install Go 1.24 or newer (Debian 13: apt-get install golang-go)" >&2
        exit 1
    fi
}

directory() { # of a module, downloaded
    go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p'
}
