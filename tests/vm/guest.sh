#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the virtual machine, on the host's own files (read-only, with an overlay on top):
# what this kernel lets us attach, and what we then count. The last line is the result.
cd "$(dirname "$0")/../.."
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
modprobe -a loop ext4 xfs btrfs fuse
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
export HOME=/tmp PIPELINED_REQUIRE_BPF=1 PIPELINED_REQUIRE_FUNCTIONS=1 PIPELINED_EMULATED=1

echo "guest: Linux $(uname -r)"
.venv/bin/pipelined doctor | tee /tmp/doctor
doctor=${PIPESTATUS[0]}
# attached hooks share a line per tier; 6.1 has no tracepoint of direct I/O
if grep '^hook' /tmp/doctor | grep -v 'iomap_dio_complete .*no such tracepoint' | grep -qv ' ok '; then
    echo "guest: a stock kernel lets every hook attach; this one does not"
    doctor=1
fi
# emulated time is warped: nothing that asserts how long something takes, and ten times as long for each test
.venv/bin/python -B -m pytest -q --color=no --tb=short -p no:cacheprovider --basetemp=/tmp/pytest \
    -m 'not real_time' --timeout 3000 \
    tests/unit/test_layout.py tests/kernel/test_functions.py tests/kernel/test_shapes.py \
    tests/kernel/test_flow.py tests/kernel/test_readahead.py tests/kernel/test_children.py \
    tests/kernel/test_drivers.py tests/kernel/test_conversations.py tests/kernel/test_last_part.py tests/kernel/test_jobs.py \
    tests/kernel/test_restart.py tests/kernel/test_identity.py tests/kernel/test_outcome.py \
    tests/kernel/test_robust.py::test_a_function_that_is_not_there_is_done_without \
    tests/kernel/test_start_stop.py::test_hooks_are_pending_until_they_are_attached \
    tests/kernel/test_start_stop.py::test_a_run_that_began_before_the_optional_hooks_is_partial_for_them "$@"
echo "guest: result doctor=$doctor tests=$?"
