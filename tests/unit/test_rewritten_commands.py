# SPDX-License-Identifier: Apache-2.0
"""Commands written anew from their own words (dd, tr, sed, awk, xargs, parallel): what they become,
what is left alone, and that the programs print the same for both."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelined.analysis import rewriting, sed, tr
from pipelined.analysis.awk_text import without_flushes
from pipelined.analysis.dd import input_file, with_blocks
from pipelined.analysis.shell_text import Command, Pipeline, parse
from pipelined.analysis.xargs import at_once, in_parts

#: So many pipelines are run for each property; each takes some milliseconds.
EXAMPLES = 20


def pipeline(text: str) -> Pipeline:
    found = parse(text)
    assert found is not None, text
    return found


def command(text: str) -> Command:
    (only,) = pipeline(text).commands
    return only


def text_of(found: Command | Pipeline | None) -> str | None:
    return found.text if found else None


def blocks(text: str) -> str | None:
    return text_of(with_blocks(command(text), "32k"))


def joined(text: str) -> str | None:
    return text_of(tr.joined(pipeline(text)))


def split(text: str) -> str | None:
    return text_of(sed.split(pipeline(text), 0))


def unflushed(text: str) -> str | None:
    return text_of(without_flushes(command(text)))


def spread(text: str) -> str | None:
    return text_of(at_once(command(text), 2, 15_000, 49_000, 1_000))


def parts(text: str) -> str | None:
    one = command(text)
    return text_of(in_parts(one, rewriting.files(one) or (), 2, 64 << 20))


Rewriting = Callable[[str], str | None]
COSTLY = r"'s/\(a\)b/\1/'"


@pytest.mark.parametrize(
    ("rewrite", "old", "new"),
    [
        (blocks, "dd if=f bs=1M", "dd if=f bs=32k"),
        (blocks, "dd if=/dev/zero bs=1M", "dd if=/dev/zero bs=32k"),
        (blocks, "dd if=/dev/shm/f bs=1M", "dd if=/dev/shm/f bs=32k"),
        (blocks, "dd bs=1M conv=ucase status=none", "dd bs=32k conv=ucase status=none"),
        (blocks, "dd ibs=4k obs=16M", "dd ibs=4k obs=32k"),
        (blocks, "dd ibs=64KiB obs=1MB iflag=fullblock", "dd ibs=32k obs=32k iflag=fullblock"),
        (joined, "tr a-z A-Z | tr A-Z a-z", "tr A-Z a-z"),
        (joined, "tr ab bc | tr b - | wc", r"tr ab '\055c' | wc"),
        (joined, "cat f | tr _ - | tr - [ | tr x y", None),
        (joined, "cat f | tr a b | tr b c | tr -d x", "cat f | tr ab cc | tr -d x"),
        (joined, "tr ' -~' '!-~ ' < f | tr a b", "tr ' -_`a-}~' '!-`bb-~ ' < f"),
        (split, f"sed -e {COSTLY} -e 's/[0-9]/x/g' f", f"sed {COSTLY} f | sed 's/[0-9]/x/g'"),
        (split, f"LC_ALL=C sed -E -e 's/[ab]/x/g' -e s/c/d/ -e {COSTLY}",
         f"LC_ALL=C sed -E -e 's/[ab]/x/g' -e s/c/d/ | LC_ALL=C sed -E {COSTLY}"),
        (split, f"sed -e {COSTLY} -e {COSTLY} < f", f"sed {COSTLY} < f | sed {COSTLY}"),
        (unflushed, "awk '{ print $1; fflush() }' f", "awk '{ print $1 }' f"),
        (unflushed, "gawk -F : '/a/ { fflush(); print } END { print n; fflush(); print }'",
         "gawk -F : '/a/ {; print } END { print n; print }'"),
        (unflushed, "mawk '{ print \"; fflush() }\"; fflush() }'",
         "mawk '{ print \"; fflush() }\" }'"),
        (unflushed, "awk '/; fflush() }/ { print; fflush() }'", "awk '/; fflush() }/ { print }'"),
        (spread, "xargs -0 md5sum", "xargs -0 -n 125 -P 2 md5sum"),
        (spread, "xargs -r -d , sha256sum -b", "xargs -r -d , -n 64 -P 2 sha256sum -b"),
        (parts, "sed s/a/b/ f", "parallel --pipe -k --block 8M 'sed s/a/b/' < f"),
        (parts, "LC_ALL=C cut -c 1 < f", "parallel --pipe -k --block 8M 'LC_ALL=C cut -c 1' < f"),
        (parts, "nice tr a b", "parallel --pipe -k --block 8M 'nice tr a b'"),
    ],
)  # fmt: skip
def test_what_a_command_becomes(rewrite: Rewriting, old: str, new: str | None) -> None:
    assert rewrite(old) == new


@pytest.mark.parametrize(
    ("rewrite", "old"),
    [
        (blocks, "dd if=f"),
        (blocks, "dd if=f bs=4k"),
        (blocks, "dd if=/dev/nst0 bs=1M"),
        (blocks, "dd < /dev/nst0 bs=1M"),
        (blocks, "dd if=f bs=1M count=3"),
        (blocks, "dd if=f bs=1M skip=1"),
        (blocks, "dd bs=1M seek=1"),
        (blocks, "dd bs=1M of=g"),
        (blocks, "dd bs=1M conv=sync"),
        (blocks, "dd bs=1M conv=ucase,swab"),
        (blocks, "dd bs=1M conv=noerror"),
        (blocks, "dd bs=1M cbs=80 conv=block"),
        (blocks, "dd bs=1M iflag=direct"),
        (blocks, "dd bs=2x512k"),
        (blocks, "pv bs=1M"),
        (joined, "tr a b"),
        (joined, "tr a b | sort | tr b c"),
        (joined, "tr a b | tr -d b"),
        (joined, "tr a b | tr -s b c"),
        (joined, "tr abc x | tr b c"),
        (joined, "tr aa bc | tr b d"),
        (joined, r"tr a '\n' | tr b c"),
        (joined, "tr '[:lower:]' '[:upper:]' | tr A B"),
        (joined, "tr é e | tr e f"),
        (joined, "tr z-a a-z | tr a b"),
        (joined, "tr a -b | tr a b"),
        (joined, "tr a ? | tr a b"),
        (joined, "nice tr a b | tr b c"),
        (joined, "X=1 tr a b | tr b c"),
        (joined, "tr a b c | tr b c"),
        (split, f"sed -e {COSTLY} -e s/a/b/ f"),
        (split, f"sed {COSTLY} f"),
        (split, f"sed -e {COSTLY} -e 3d -e {COSTLY} f"),
        (split, f"sed -n -e {COSTLY} -e {COSTLY} f"),
        (split, rf"sed -e {COSTLY} -e 's/\(a\)/\1\n/' -e {COSTLY} f"),
        (split, rf"sed -e {COSTLY} -e 's/\(a\)/\1\x0a/' f"),
        (unflushed, "awk '{ print }'"),
        (unflushed, "awk '{ print \"fflush()\" }'"),
        (unflushed, "awk '{ print fflush() }'"),
        (unflushed, "awk '{ if (x) fflush() }'"),
        (unflushed, "awk '{ for (;;) { fflush() } }'"),
        (unflushed, "awk '{ while (f()); fflush() }'"),
        (unflushed, "awk 'function f() { fflush() } { f() }'"),
        (unflushed, "awk '{ print; fflush(\"\") }'"),
        (unflushed, "awk '{ print; fflush(); system(\"x\") }'"),
        (unflushed, "awk '{ print | \"sort\"; fflush() }'"),
        (unflushed, "awk '{ print $1 / 2; fflush() }'"),
        (unflushed, "awk '/[/]; fflush() }/ { print; fflush() }'"),
        (unflushed, "awk '{ print; fflush() } # }'"),
        (unflushed, "awk '1; fflush(); 1'"),
        (unflushed, "awk -f p '{ fflush() }'"),
        (spread, "xargs cat"),
        (spread, "xargs -n 5 md5sum"),
        (spread, "xargs -P 2 md5sum"),
        (spread, "xargs -I{} md5sum {}"),
        (spread, "xargs -0n 5 md5sum"),
        (spread, "xargs md5sum -c"),
        (spread, "xargs md5sum f"),
        (spread, "xargs -0"),
        (parts, "sed 3d f"),
        (parts, "sed s/a/b/ f g"),
        (parts, "sed s/a/b/ -"),
        (parts, "sed 's/a{}/b/' f"),
        (parts, "sed s/a/b/ *.log"),
        (parts, "grep -c a f"),
        (parts, "grep -n a f"),
        (parts, "sort f"),
    ],
)
def test_what_may_do_something_else_is_left_alone(rewrite: Rewriting, old: str) -> None:
    assert rewrite(old) is None


def test_there_is_nothing_to_spread_without_a_second_cpu_or_a_second_file() -> None:
    assert at_once(command("xargs md5sum"), 1, 15_000, 49_000, 1_000) is None
    assert at_once(command("xargs md5sum"), 2, 15, 60, 1) is None
    assert at_once(command("xargs md5sum"), 2, 200_000_000, 49_000, 1_000) is None
    assert in_parts(command("sed s/a/b/"), (), 1, 64 << 20) is None


def test_sums_of_several_at_a_time_are_whole_lines_only_if_each_was_written_by_itself() -> None:
    """A busybox writes pieces of 4 KiB, which end anywhere."""
    for writes, spread in ((1_000, True), (999, False), (12, False)):
        new = at_once(command("xargs -0 md5sum"), 2, 15_000, 49_000, writes)
        assert (new is not None) == spread


def test_the_file_that_dd_reads_is_its_last_one() -> None:
    assert [word.value for word in input_file(command("dd if=a bs=1 if='b c'"))] == ["b c"]
    assert input_file(command("dd bs=1")) == ()


def test_seds_of_which_one_makes_several_lines_are_not_joined() -> None:
    for script in (r"s/a/\n/", r"s/a/\x0a/", r"s/\n/a/"):
        old = pipeline(f"sed '{script}' f | sed 's/^b/c/'")
        assert rewriting.joined(old, (0, 1)) is None


# -- a shell prints the same for both


def printed(text: str, data: bytes, locale: str = "C.UTF-8") -> tuple[int, bytes]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "f").write_bytes(data)
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {text}"],
            cwd=folder,
            env={"LC_ALL": locale, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    return done.returncode, done.stdout


_BLOCK = st.sampled_from(["1", "3", "7", "1k"])
_OPERANDS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["bs", "ibs", "obs"]), _BLOCK).map("=".join),
        st.sampled_from(["conv=ucase", "conv=lcase", "conv=sync", "conv=swab", "iflag=fullblock"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(_OPERANDS, st.binary(max_size=20), st.sampled_from(["2", "5"]))
@example(["bs=7", "conv=ucase"], b"abcdefghi", "2")
@example(["ibs=3", "obs=1k"], b"abcdefghi", "5")
@example(["bs=7", "conv=sync"], b"abcdefghi", "2")
@example(["bs=7", "conv=swab"], b"abcdefghi", "3")
def test_dd_copies_the_same_with_other_blocks(operands: list[str], data: bytes, size: str) -> None:
    old = f"dd {' '.join(operands)}"
    new = with_blocks(command(old), size)
    if new is not None:
        assert printed(f"cat f | {old}", data) == printed(f"cat f | {new.text}", data)


_CHARACTERS = "abcxyzABCZ019 -_.,:;!~/*=]^"
_SETS = st.one_of(
    st.lists(
        st.tuples(st.sampled_from(_CHARACTERS), st.sampled_from(_CHARACTERS)),
        min_size=1,
        max_size=5,
        unique_by=lambda pair: pair[0],
    ).map(lambda pairs: ("".join(a for a, _ in pairs), "".join(b for _, b in pairs))),
    st.sampled_from(
        [("a-z", "A-Z"), ("A-Z", "a-z"), ("0-9", "a-j"), ("X-c", "0-;"), ("a-c-", "-a-c"),
         (" -~", "!-~ "), ("%--", "a-i"), ("aa", "bc"), ("abc", "x")]
    ),
)  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(_SETS, min_size=2, max_size=4))
@example([("X-c", "0-;"), ("a-z", "A-Z")])
@example([("A-C", "Z-\\"), ("a", "b")])
@example([("0-9", "a-j"), ("abc", "-=-"), ("=", "-")])
def test_one_tr_prints_what_several_do(sets: list[tuple[str, str]]) -> None:
    commands = [f"tr {shlex.quote(one)} {shlex.quote(other)}" for one, other in sets]
    old = f"cat f | {' | '.join(commands)}"
    new = joined(old)
    data = bytes(range(256)) * 2
    if new is not None:
        before = printed(old, data)
        assert before[0] or before == printed(new, data), new


_SCRIPTS = st.sampled_from(
    [r"s/\(a\)\(b\)/\2\1/", "s/[ab]/x/g", "s/[0-9]/#/g", "/c/d", "s/a/b/", r"s/\(.\)$/\1\1/",
     r"s/a/\n/", r"s/\([ab]\)/\1\n\1/", "s,^,[,g", "2d"]
)  # fmt: skip
_LINES = st.lists(st.text("abc019é ", max_size=6), max_size=8)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(_SCRIPTS, min_size=2, max_size=4),
    _LINES,
    st.booleans(),
    st.sampled_from(["C", "C.UTF-8"]),
)
@example([r"s/\([ab]\)/\1\n\1/", "s/[ab]/x/g", "s,^,[,g"], ["ab", "c"], True, "C")
def test_two_seds_print_what_one_does(
    scripts: list[str], lines: list[str], ended: bool, locale: str
) -> None:
    one = f"sed {' '.join(f'-e {shlex.quote(script)}' for script in scripts)} f"
    several = " | ".join(f"sed {shlex.quote(script)}" for script in scripts)
    data = ("\n".join(lines) + "\n" * (ended and bool(lines))).encode()
    two = split(one)
    if two is not None:
        assert printed(one, data, locale) == printed(two, data, locale)
    again = rewriting.joined(pipeline(f"cat f | {several}"), range(1, len(scripts) + 1))
    if again is not None:
        assert printed(f"cat f | {several}", data, locale) == printed(again.text, data, locale)


_STATEMENTS = st.sampled_from(
    ["print $1", "fflush()", "fflush()", 'print "; fflush() }"', "n++", "$2 = n", "print (n)",
     "gsub(/[;}]/, x)", "if (n) print n", "if (n) fflush()", "{ print $2 }", "x = y",
     "", "next", 'printf "%s\\n", $1 > 2']
)  # fmt: skip
_ACTIONS = st.tuples(
    st.sampled_from(["", "/a/", "/; fflush() }/", "$1 ~ /[;}]/", "END"]),
    st.lists(_STATEMENTS, min_size=1, max_size=4),
    st.sampled_from(["; ", ";", " ;\t "]),
).map(lambda parts: f"{parts[0]} {{ {parts[2].join(parts[1])} }}".lstrip())


@pytest.mark.parametrize("awk", [name for name in ("mawk", "gawk") if shutil.which(name)])
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(_ACTIONS, min_size=1, max_size=3), _LINES)
@example(["{ fflush(); print }", "END { fflush() }"], ["a"])
@example(["{ fflush() ; fflush() }", "{ fflush(); fflush(); print; fflush() }"], ["a"])
@example(["/a/ { print; fflush(); fflush(); n++ }", "END { print n; ; fflush(); }"], ["a", "b"])
def test_awk_prints_the_same_without_its_flushes(
    awk: str, actions: list[str], lines: list[str]
) -> None:
    program = " ".join(actions)
    one = command(f"{awk} {shlex.quote(program)} f")
    new = without_flushes(one)
    data = "".join(f"{line}\n" for line in lines).encode()
    if new is not None:
        assert printed(one.text, data) == printed(new.text, data), new.text


def test_sums_of_several_processes_at_a_time_are_the_same_lines() -> None:
    files = "printf '%s\\n' f f f f f | xargs"
    new = at_once(command("xargs md5sum"), 2, 10, 10 + 5 * 34, 5)
    assert new is not None and new.text == "xargs -n 2 -P 2 md5sum"
    one, other = (printed(f"{files} | {way} | sort", b"x") for way in ("xargs md5sum", new.text))
    assert one == other and one[1].count(b"\n") == 5


@pytest.mark.skipif(shutil.which("parallel") is None, reason="needs GNU parallel")
def test_parts_of_the_input_come_in_their_order() -> None:
    old = "sed 's/\\([0-9]*\\)7/\\1x/' f"
    one = command(old)
    new = in_parts(one, rewriting.files(one) or (), 2, 8 << 20)
    assert new is not None
    data = b"".join(b"%d it's\n" % number for number in range(300_000))
    assert printed(old, data) == printed(f"HOME=$PWD {new.text}", data)
