# SPDX-License-Identifier: Apache-2.0
"""Advice to treat text as bytes: only for what was measured to gain by it, in a known locale."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.analysis.finding import Finding
from pipelined.analysis.findings import findings
from pipelined.analysis.rewriting import Script
from unit.test_findings import HOST, make_stage, run_of


def found_in(
    text: str,
    *,
    characters: str | None = "en_US.UTF-8",
    awk: str = "gawk",
    cpu: float = 6.0,
    user: float = 5.0,
) -> list[Finding]:
    program = next(word for word in text.split() if "=" not in word)
    stage = make_stage(1, program, (100, 100), cpu=cpu, user_seconds=user)
    run = run_of([stage, make_stage(2, "wc", (100, 0), cpu=0.1)])
    script = Script(f"{text} | wc", characters=characters, awk=awk)
    return [found for found in findings(run, HOST, script) if found.id == "c-locale"]


@pytest.mark.parametrize(
    "text",
    [
        "sed 's/[0-9]*//' f",
        "sed 's/a.*b/x/' f",
        "sed -E 's/(a)b/\\1/' f",
        "sed -e s/a/b/ -e y/abc/xyz/ f",
        "gawk '{ print toupper($1) }' f",
        "awk '{ printf \"%9s\", $1 }' f",
        "grep -o a f",
        "grep -Eio a f",
    ],
)
def test_what_gains_is_advised_with_its_command(text: str) -> None:
    (found,) = found_in(text)
    assert found.rewrite is not None
    assert found.rewrite.new == f"LC_ALL=C {text} | wc"
    assert not found.rewrite.reordered


@pytest.mark.parametrize(
    "text",
    [
        "sed s/a/b/ f",
        "sed 's/a/[b]/' f",
        "sed /a/d f",
        "gawk '{ print $1 }' f",
        "mawk '{ print toupper($1) }' f",
        "grep -i a f",
        "grep a f",
        "tr a-z A-Z",
        "cut -c 1-5 f",
        "sed 'y/áé/ae/' f",
        "sed 's/[áé]/x/g' f",
        "grep -o ß f",
    ],
)
def test_what_gains_nothing_is_not_advised(text: str) -> None:
    assert found_in(text) == []


def test_what_awk_is_decides() -> None:
    text = "awk '{ print toupper($1) }' f"
    assert found_in(text) and not found_in(text, awk="mawk") and not found_in(text, awk="")


@pytest.mark.parametrize("characters", ["C", "POSIX", "en_US.ISO-8859-1", "", None])
def test_only_where_a_character_is_known_to_have_several_bytes(characters: str | None) -> None:
    assert found_in("sed 's/[0-9]*//' f", characters=characters) == []


@pytest.mark.parametrize(
    ("front", "advised"),
    [
        ("LC_ALL=C", False),
        ("LC_CTYPE=C", False),
        ("LANG=C", False),
        ("LC_ALL=C.utf8", True),
        ("LC_COLLATE=C", True),
    ],
)
def test_what_the_command_sets_itself_counts(front: str, advised: bool) -> None:
    assert bool(found_in(f"{front} sed 's/[0-9]*//' f")) is advised


def test_only_where_it_is_the_cost() -> None:
    assert not found_in("sed 's/[0-9]*//' f", cpu=4.9)
    assert not found_in("sed 's/[0-9]*//' f", user=0.9)
    assert found_in("sed 's/[0-9]*//' f", cpu=5.0, user=1.1)


def test_half_of_the_time_in_user_mode_is_likely_to_go() -> None:
    (found,) = found_in("sed 's/[0-9]*//' f")
    assert (found.likely_seconds, found.gain_seconds) == (2.5, 5.0)
    assert replace(found, likely_seconds=None).expected_seconds == 5.0


#: What gains, as far as it is installed.
COMMANDS = [
    ["sed", "s/[a-m]*//g"],
    ["sed", "-E", r"s/(.)b?.*c/<\1>/"],
    ["sed", "y/abc/xyz/"],
    ["gawk", '{ print length, toupper($1), substr($0, 2, 3), index($0, "b") }'],
    ["gawk", '{ match($0, /b+/); printf "%4d|%-5s|%.2s\\n", RSTART, $1, $2 }'],
    ["grep", "-o", "[^a]b*"],
]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([command for command in COMMANDS if shutil.which(command[0])]),
    st.lists(st.text("abcABZ 019.,", max_size=8), max_size=8),
)
def test_ascii_gives_the_same_as_bytes_and_as_characters(
    command: list[str], lines: list[str]
) -> None:
    printed = {
        subprocess.run(
            command,
            input="".join(f"{line}\n" for line in lines).encode(),
            env={"LC_ALL": locale, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            check=False,
        ).stdout
        for locale in ("C", "C.UTF-8")
    }
    assert len(printed) == 1
