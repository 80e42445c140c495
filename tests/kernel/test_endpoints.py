# SPDX-License-Identifier: Apache-2.0
"""A shell that reads the output of its child, `$(…)`, is at an end of a pipeline and no stage."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import PATIENCE

if TYPE_CHECKING:
    from kernel.conftest import Watch

over_shells = pytest.mark.parametrize("shell", ["bash", "dash", "zsh -f"])


@over_shells
def test_a_subshell_that_has_read_its_childs_output_is_no_stage(watch: Watch, shell: str) -> None:
    """No record is in use for it while a child that it has left behind lives."""
    started = watch.start("(x=$(sleep 0.1; echo a); sleep 60 & echo > left); sleep 60", shell)
    try:
        end = time.monotonic() + PATIENCE
        while not (watch.directory / "left").exists() or stages_in_use(watch):
            assert time.monotonic() < end, "the subshell's record is still in use"
            time.sleep(0.05)
    finally:
        started.kill()
        started.finish()


@over_shells
def test_a_subshell_that_reads_the_end_of_a_pipeline_is_its_endpoint(
    watch: Watch, shell: str
) -> None:
    # long enough for the shell to have come to read, also where it has to wait for a CPU
    observed = watch.run("(x=$(sleep 0.3 | sort); true); true", shell)
    (endpoint,) = observed.only("sleep|sort").endpoints
    assert (endpoint.command, endpoint.side) == (shell.split()[0], "read")


@over_shells
def test_a_subshell_that_reads_from_its_sibling_is_a_stage(watch: Watch, shell: str) -> None:
    """Another process made that pipe, whatever descriptor the subshell reads it at."""
    if shell == "dash":
        script = "mkfifo f; seq 3000 > f & (while read -r x <&7; do y=$x; done) 7< f; wait"
    else:
        script = "exec 7< <(sleep 0.3; seq 3000); (while read -r x <&7; do y=$x; done); true"
    observed = watch.run(script, shell)
    (run,) = observed.runs
    assert [stage.command for stage in run.stages][1] == shell.split()[0]


def stages_in_use(watch: Watch) -> int:
    watch.observer.settle()
    (stages,) = [use.entries for use in watch.observer.maps() if use.name == "stages"]
    return stages
