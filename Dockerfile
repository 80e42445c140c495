# SPDX-License-Identifier: Apache-2.0
# Build:  docker build -t pipelined .
# Run:    docker run --rm --pid host --network host --cap-drop ALL --cap-add BPF --cap-add PERFMON pipelined
#         It listens on 127.0.0.1:9905 of the host. With a network of its own:
#         docker run … -p 127.0.0.1:9905:9905 pipelined --web.listen-address :9905
FROM debian:trixie-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        clang libbpf-dev libc6-dev linux-libc-dev llvm make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Makefile pyproject.toml LICENSE ./
COPY bpf bpf
COPY daemon daemon
COPY docs/FINDINGS.md docs/
RUN make bpf PACKAGES= \
    && python3 -m venv /opt/pipelined \
    && /opt/pipelined/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM debian:trixie-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libbpf1 python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/pipelined /opt/pipelined
ENV PATH=/opt/pipelined/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 9905
ENTRYPOINT ["pipelined", "serve"]
