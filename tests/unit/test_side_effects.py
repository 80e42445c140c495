# SPDX-License-Identifier: Apache-2.0
"""What must not be run again and again, and what is not certain."""

from __future__ import annotations

import pytest

from pipelined.analysis.shell_text import Pipeline, parse
from pipelined.analysis.side_effects import uncertain, unsafe


def pipeline(text: str) -> Pipeline:
    found = parse(text)
    assert found is not None, text
    return found


@pytest.mark.parametrize(
    "text",
    [
        "ls | xargs rm",
        "ls | xargs -n 1 -P 2 rm -f",
        "find d -name '*.tmp' -print0 | xargs -0I file rm file",
        "ls | xargs sh -c 'mv \"$0\" old'",
        "find . -delete",
        "find . -name x -exec rm {} +",
        "find . -fprint out",
        "sort f | tee g",
        "cat f | dd of=g",
        "sed -i s/a/b/ f",
        "sed -ni.bak s/a/b/p f",
        "sed --i s/a/b/ f",
        "sort -o f f",
        "sort --o=f f",
        "awk '{ print > $1 }' f",
        'awk \'{ print $1 ";" $2 > "out.csv" }\' f',
        'awk \'{ print "}" >> "log" }\' f',
        "gawk --posix '{ print . > $1 }' f",
        "curl -X POST http://localhost",
        "curl -d a=b http://localhost",
        "curl -sd a=b http://localhost",
        "curl --data-binary @f http://localhost",
        "wget --post-data a http://localhost",
        "gzip f",
        "zstd -dc --rm f.zst | sort",
        "zstdcat --rm f.zst | sort",
        "find . | xargs zstd --rm",
        "git commit -m x",
        "ps | xargs kill",
        "env A=b kill 1",
        "nice rm f",
        "sudo rm f",
        "timeout 5 cp f g",
        "bash -c 'cat f > g'",
        "parallel rm ::: f",
        "find . | xargs gzip",
        "find . | xargs sed -i s/a/b/",
        "find . -exec sed -i s/a/b/ {} +",
        "find . -exec gzip {} +",
        "ls | xargs -n1 sort -o x",
        "cat l | xargs curl -d x=1",
        "cat f | bash -c 'gzip a'",
        "sh -c 'dd of=/x'",
        "cat l | parallel gzip",
        "cat l | xargs git commit",
        "timeout 5 sed -i s/a/b/ f",
        "sudo gzip x",
    ],
)
def test_what_changes_something_is_never_run(text: str) -> None:
    assert unsafe(pipeline(text))


@pytest.mark.parametrize(
    "text",
    [
        "sort f | uniq -c",
        "find . -name '*.rm' | wc -l",
        "find . -type f | xargs grep rm",
        "curl -s http://localhost | wc",
        "curl -X GET http://localhost",
        "gzip -c f | wc -c",
        "gzip -dc f | sed -n s/a/b/p",
        "xargs sh -c 'echo $0 2>&1'",
        "awk '$1 > 3 { print $2 }' f",
        "awk '{ print ($1 > 3) }' f",
        "git log | head",
        "/opt/bin/xargs grep rm",
    ],
)
def test_what_is_not_known_to_change_something_may_be_run(text: str) -> None:
    assert not unsafe(pipeline(text))


def test_programs_that_are_not_known_are_named() -> None:
    found = uncertain(pipeline("curl http://localhost | sort | mytool | mytool -x | wc"))
    assert found == ("curl", "mytool")


def test_a_program_from_elsewhere_is_named_as_it_is_written() -> None:
    found = uncertain(pipeline("LC_ALL=C A=b cat f | /tmp/e/nice sort | ./wc | uniq"))
    assert found == ("LC_ALL=C A=b cat", "/tmp/e/nice sort", "./wc")
