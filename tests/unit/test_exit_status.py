# SPDX-License-Identifier: Apache-2.0
"""Pipelines that print the same, and may end with another exit status."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipelined.analysis.exit_status import another_status

NOTHING = "grep finds nothing"
IN_A_PART = "grep finds nothing in a part of its input"
RUN_BY_FIND = "a command that find runs fails"
EACH = r"find d -type f -exec grep -h x {} \;"
AT_ONCE = "find d -type f -exec grep -h x {} +"


@pytest.mark.parametrize(
    ("old", "new", "of_last", "of_any"),
    [
        ("sort f | grep x", "grep x f | sort", NOTHING, ""),
        ("grep x f | wc -l", "grep -c x f", NOTHING, ""),
        ("cat f | grep x", "grep x < f", "", ""),
        ("sort f | LC_ALL=C grep x", "grep x f | LC_ALL=C sort", NOTHING, ""),
        ("sort f | uniq | grep x", "sort -u f | grep x", "", ""),
        ("sort f | grep x | cut -c 1", "grep x f | sort | cut -c 1", "", ""),
        ("grep x f | grep 1", "grep 1 f | grep x", "", ""),
        ("sed /1/d f | grep x", "grep x f | sed /1/d", NOTHING, NOTHING),
        ("sed /1/d f | grep x | wc", "grep x f | sed /1/d | wc", "", NOTHING),
        ("grep x f | awk '{ print }'", "awk '/x/ { print }' f", "", NOTHING),
        ("grep x f", "parallel --pipe 'grep x' < f", IN_A_PART, IN_A_PART),
        (EACH, AT_ONCE, IN_A_PART, IN_A_PART),
        (f"{EACH} | sort", f"{AT_ONCE} | sort", "", IN_A_PART),
        (r"find d -exec wc {} \;", "find d -exec wc {} +", RUN_BY_FIND, RUN_BY_FIND),
        ("find d -exec cat {} + | cut -c1", "find d -exec cut -c1 {} +", RUN_BY_FIND, ""),
        ("ls | xargs cat | grep x | sort", "ls | xargs grep -h x | sort", "", IN_A_PART),
        ("ls | xargs -n 1 md5sum", "ls | xargs -n 100 md5sum", "", ""),
        (
            "zcat f.gz | sed -n 1,3p",
            "zcat f.gz | sed -n -e 1,3p -e 4q",
            "",
            "sed ends before what writes to it",
        ),
        (
            "awk 'NR > 3 { exit } 1' f",
            "cat f | awk 'NR > 3 { exit } 1'",
            "",
            "awk ends before what writes to it",
        ),
        *(
            (f"cat f | sed {text}", f"sed {text} < f", "", "sed ends before what writes to it")
            for text in ("'/x/{q}'", "'/x/!q'", "'/x/Iq'", r"'\,x,q'", "'/x/ { p; q }'", "-e q")
        ),
        ("cat f | sed s/x/y/", "sed s/x/y/ < f", "", ""),
        ("sort f | uniq -c | rg x | wc", "rg x f | sort | uniq -c | wc", "", ""),
        (
            "sort f | uniq -d | rg x | wc",
            "rg x f | sort | uniq -d | wc",
            "",
            "rg finds nothing",
        ),
        ("cat f | head -n 3", "head -n 3 < f", "", "head ends before what writes to it"),
        ("zcat f.gz | sort | head", "zcat f.gz | LC_ALL=C sort | head", "", ""),
    ],
)
def test_another_exit_status_has_its_reason(old: str, new: str, of_last: str, of_any: str) -> None:
    assert another_status(old, new, any_stage=False) == of_last
    assert another_status(old, new, any_stage=True) == of_any


@pytest.mark.parametrize("text", ["x1\nx2\n", "x1\n", "y\n", "1\n", ""])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sort f | grep x", "grep x f | sort"),
        ("grep x f | wc -l", "grep -c x f"),
        ("cat f | grep x", "grep x < f"),
        ("sort f | grep x | cut -c 1", "grep x f | sort | cut -c 1"),
        ("grep x f | grep 1", "grep 1 f | grep x"),
    ],
)
def test_without_a_reason_a_shell_has_the_same_exit_status(
    old: str, new: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text(text)
    for before, any_stage in (("", False), ("set -o pipefail; ", True)):
        statuses = {
            subprocess.run(
                ["bash", "-c", before + way], cwd=tmp_path, stdout=subprocess.DEVNULL
            ).returncode
            for way in (old, new)
        }
        assert len(statuses) == 1 or another_status(old, new, any_stage=any_stage)
