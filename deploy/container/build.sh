#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image `pipelined` with buildah, where there is no container engine and no registry: the base that the
# Dockerfile's build stage starts from is made by debootstrap, from the Debian mirror that this host uses, and kept as
# `localhost/pipelined-base`. Run it as root, in the checkout (`make image`). Takes 2 min on two cores, 1 min from the second time on.
#
#   deploy/container/build.sh                      localhost/pipelined, for this host
#   deploy/container/build.sh arm64 FILE           an OCI archive, for amd64 or arm64; SOURCE_DATE_EPOCH is its time
#
# Where there is Docker and a registry this is not needed: docker build --tag pipelined .
set -euo pipefail
cd "$(dirname "$0")/../.."

base=localhost/pipelined-base:trixie
directory=
working=

die() {
    echo "image: $1" >&2
    exit 1
}

clean() {
    status=$?
    trap - EXIT
    [ -z "$working" ] || buildah rm "$working" >/dev/null || true
    [ -z "$directory" ] || rm -rf --one-file-system "$directory"
    exit "$status"
}
trap clean EXIT

[ "$(id -u)" = 0 ] || die "needs root, for debootstrap; run: sudo make image"
for command in buildah debootstrap; do
    command -v "$command" >/dev/null || die "no $command; run: apt-get install buildah debootstrap"
done

repository() { # The first of this host's apt sources that ends so.
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed 's|/*$||' | grep -m 1 "/$1\$" || true
}

directory=$(mktemp -d)
if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
    mirror=$(repository debian)
    [ -n "$mirror" ] || die "no Debian mirror in /etc/apt: the base comes from there"
    echo "image: making the base by debootstrap"
    debootstrap --variant=minbase --include=ca-certificates trixie "$directory/root" "$mirror" \
        > "$directory/log" 2>&1 || { tail -n 20 "$directory/log" >&2; die "debootstrap failed"; }
    security=$(repository debian-security)
    if [ -n "$security" ]; then
        echo "deb $security trixie-security main" >> "$directory/root/etc/apt/sources.list"
    else
        echo "image: no debian-security in /etc/apt: the image has Debian's last point release, and no updates since" >&2
    fi
    rm -rf "$directory"/root/var/cache/apt/archives/*.deb "$directory"/root/var/lib/apt/lists/*
    working=$(buildah from scratch)
    buildah add --quiet "$working" "$directory/root" / >/dev/null
    buildah commit --quiet "$working" "$base" >/dev/null
fi

# Behind a proxy with an index or an authority of its own, pip needs what this host has. Mounts are not in the image.
mounts=()
[ ! -e /etc/pip.conf ] || mounts+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    printf '[global]\ncert = /run/authorities.crt\n' > "$directory/pip.conf"
    mounts+=(
        --volume /etc/ssl/certs/ca-certificates.crt:/run/authorities.crt:ro
        --volume "$directory/pip.conf:/root/.config/pip/pip.conf:ro"
    )
fi
revision=$(git -c safe.directory='*' rev-parse HEAD 2>/dev/null || echo unknown)
version=$(python3 deploy/version.py)
# The docker format, because the OCI format has no health check.
build=(buildah build --isolation chroot --format docker --pull-never "${mounts[@]}"
    --build-arg BASE="$base" --build-arg VERSION="$version" --build-arg REVISION="${REVISION:-$revision}")

run() {
    "$@" > "$directory/log" 2>&1 || { tail -n 40 "$directory/log" >&2; die "the build failed"; }
}

if [ $# = 2 ]; then
    # Not --platform: Debian 12's buildah applies that to the stage that builds, too. The architecture is set afterwards.
    # By a name, and not its id: what it is made from is in the history of the image.
    built=localhost/pipelined-release:$1
    run "${build[@]}" --build-arg TARGETARCH="$1" --timestamp "${SOURCE_DATE_EPOCH:?}" --tag "$built" .
    working=$(buildah from --pull-never "$built")
    run buildah config --arch "$1" "$working"
    # --timestamp: of every file, too. From a folder into a file by tar, because buildah puts the time of day into its own.
    run buildah commit --quiet --squash --format docker --timestamp "$SOURCE_DATE_EPOCH" --iidfile "$directory/id" "$working"
    image=$(cat "$directory/id")
    run buildah push --format oci "$image" "oci:$directory/oci:pipelined:$(python3 deploy/version.py --image)"
    buildah rm "$working" >/dev/null
    working=
    buildah rmi "$image" "$built" >/dev/null
    tar --directory "$directory/oci" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --mtime="@$SOURCE_DATE_EPOCH" --create --file "$2" .
    exit
fi
before=$(buildah images --quiet --no-trunc localhost/pipelined:latest 2>/dev/null || true)
run "${build[@]}" --tag localhost/pipelined:latest --tag "localhost/pipelined:$(python3 deploy/version.py --image)" .
after=$(buildah images --quiet --no-trunc localhost/pipelined:latest)
[ -z "$before" ] || [ "$before" = "$after" ] || buildah rmi "$before" >/dev/null || true # a container may still use it
buildah images --filter reference=localhost/pipelined
