# SPDX-License-Identifier: Apache-2.0
# The daemon's image; docs/CONTAINER.md says how to build and run it, and why it looks as it does.
#
#   docker build --tag pipelined .
#
# The final stage starts from nothing: Python, libbpf and the libraries under them, from Debian's own packages, and the
# daemon. No shell, no package manager, no compiler.
#
# Nothing of the other architecture is run: `docker build --platform linux/arm64` works on amd64, without emulation.
# Pin the base by its digest: --build-arg BASE=…/debian:trixie-slim@sha256:… (docs/CONTAINER.md).

ARG BASE=docker.io/library/debian:trixie-slim
FROM --platform=$BUILDPLATFORM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates clang libbpf-dev libc6-dev linux-libc-dev llvm make python3 python3-venv
WORKDIR /src

# The final stage's root: packages are unpacked, not installed, so nothing comes along that only an installation needs.
# An empty status file makes apt fetch all that the named packages depend on, though some are installed here. Scanners
# find what is in the image in /var/lib/dpkg/status.d.
ARG TARGETARCH
RUN version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') \
    && architecture=${TARGETARCH:-$(dpkg --print-architecture)} \
    && mkdir -p /root-fs/usr/bin /root-fs/usr/sbin /root-fs/usr/lib /root-fs/usr/lib64 /root-fs/etc /root-fs/proc \
        /root-fs/sys /root-fs/dev /root-fs/run /root-fs/var/lib/dpkg/status.d /root-fs/var/lib/pipelined \
        /fetched/partial /lists/partial \
    && ln -s usr/bin usr/sbin usr/lib usr/lib64 /root-fs/ \
    && : > /fetched/status \
    && { echo "APT::Architecture \"$architecture\"; APT::Architectures { \"$architecture\"; };" \
        && echo 'Dir::State::Lists "/lists"; Dir::State::status "/fetched/status"; Dir::Cache::archives "/fetched";'; \
    } > /fetched/apt.conf \
    && export APT_CONFIG=/fetched/apt.conf \
    && apt-get update \
    && apt-get install -y --download-only --no-install-recommends \
        libbpf1 libpython"$version"-stdlib python"$version"-minimal tzdata \
    && for package in /fetched/*.deb; do \
        dpkg-deb --extract "$package" /root-fs \
        && dpkg-deb --field "$package" > "/root-fs/var/lib/dpkg/status.d/$(dpkg-deb --field "$package" Package)" \
        || exit; \
    done \
    && find /root-fs/usr/share -mindepth 1 -maxdepth 1 ! -name doc ! -name zoneinfo -exec rm -rf {} + \
    && find /root-fs/usr/share/doc -type f ! -name copyright -delete \
    && rm -f /root-fs/usr/bin/debconf* /root-fs/usr/sbin/dpkg-* \
    && ln -s python"$version" /root-fs/usr/bin/python3 \
    && cp /etc/os-release /etc/debian_version /root-fs/etc/ \
    && echo 'root:x:0:0:root:/:/nonexistent' > /root-fs/etc/passwd \
    && echo 'root:x:0:' > /root-fs/etc/group \
    && ldconfig -r /root-fs && rm -rf /root-fs/var/cache/ldconfig \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /root-fs /root-fs/usr/lib/python"$version"

# Each library is checked by its hash (deploy/lock.py). Those with compiled parts come for this Python and TARGETARCH.
COPY deploy/build-requirements.txt deploy/container/requirements.txt ./
RUN machine=$(echo "${TARGETARCH:-$(dpkg --print-architecture)}" | sed 's/amd64/x86_64/; s/arm64/aarch64/') \
    && python3 -m venv /pip \
    && python3 -m venv --without-pip /opt/pipelined \
    && /pip/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement build-requirements.txt \
    && /pip/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements.txt \
        --no-compile --only-binary :all: --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
        --platform "manylinux_2_28_$machine" --platform "manylinux_2_34_$machine" \
        --target "$(echo /opt/pipelined/lib/python*/site-packages)" \
    && rm -rf /opt/pipelined/lib/python*/site-packages/bin

COPY Makefile pyproject.toml LICENSE ./
COPY bpf bpf
COPY daemon daemon
COPY docs/FINDINGS.md docs/
ARG VERSION=unknown
RUN machine=$(echo "${TARGETARCH:-$(dpkg --print-architecture)}" | sed 's/amd64/x86_64/; s/arm64/aarch64/') \
    && { [ "$VERSION" = unknown ] || sed -i "s/^__version__ = .*/__version__ = \"$VERSION\"/" daemon/pipelined/__init__.py; } \
    && make bpf MACHINE="$machine" PACKAGES= \
    && /pip/bin/pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps --no-build-isolation --no-compile \
        --target /ours . \
    && rm -rf /ours/bin && cp -a /ours/. /opt/pipelined/lib/python*/site-packages/ \
    && printf '#!%s\nimport sys\nfrom pipelined.cli import main\nsys.exit(main())\n' /opt/pipelined/bin/python3 \
        > /opt/pipelined/bin/pipelined \
    && chmod 755 /opt/pipelined/bin/pipelined \
    && mkdir /root-fs/opt /place \
    && cp -a /opt/pipelined /root-fs/opt/ \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /root-fs /root-fs/opt/pipelined/lib

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pipelined" \
    org.opencontainers.image.description="Watches every shell pipeline on a Linux host with eBPF" \
    org.opencontainers.image.licenses="Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause) AND MIT" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION"
COPY --from=build /root-fs /
# For `pipelined export`, which needs no user in particular: a new volume at this place belongs to this one.
COPY --from=build --chown=65532:65532 /place /var/lib/pipelined-export
COPY deploy/container/healthcheck.py /usr/lib/pipelined/
# With a read-only root, SQLite can put its temporary files into the volume alone.
ENV PATH=/opt/pipelined/bin:/usr/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SQLITE_TMPDIR=/var/lib/pipelined
EXPOSE 9905
VOLUME /var/lib/pipelined
# SIGTERM detaches every hook.
STOPSIGNAL SIGTERM
# Where the daemon listens on another port, HEALTHCHECK_PORT says which.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["/usr/bin/python3", "-I", "-S", "/usr/lib/pipelined/healthcheck.py"]
ENTRYPOINT ["pipelined"]
CMD ["serve"]
