# SPDX-License-Identifier: Apache-2.0
# Podman's own seccomp profile lets bpf(2) and perf_event_open(2) through with CAP_SYS_ADMIN only. Docker (23) and containerd (1.7)
# ask for the capability that is meant. This makes Podman's profile do the same:
#   jq -f deploy/container/podman-seccomp.jq /usr/share/containers/seccomp.json > seccomp.json
.syscalls |= map(.names -= ["bpf", "perf_event_open"])
| .syscalls += [
    { names: ["bpf"], action: "SCMP_ACT_ALLOW", args: [], includes: { caps: ["CAP_BPF"] }, excludes: {} },
    { names: ["perf_event_open"], action: "SCMP_ACT_ALLOW", args: [], includes: { caps: ["CAP_PERFMON"] }, excludes: {} }
  ]
