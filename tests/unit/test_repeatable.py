# SPDX-License-Identifier: Apache-2.0
"""Commands that may be run again and again, and those that may not."""

from __future__ import annotations

import pytest

from pipelined.analysis.awk_text import only_prints
from pipelined.analysis.repeatable import is_repeatable
from pipelined.analysis.shell_text import parse


def repeatable(text: str) -> bool:
    found = parse(text)
    assert found is not None, text
    (command,) = found.commands
    return is_repeatable(command)


@pytest.mark.parametrize(
    "text",
    [
        "cat f",
        "LC_ALL=C nice sort -k 2 -S 1M f",
        "awk '{ if ($3 > 100) n++ } END { print n }' f",
        "mawk -F: '{ print $1 }'",
        "awk -v RS= '{ print ($1 > 3), \"a | b > c; }\" }' f",
        "awk '/>/ { print } $1 > 3' f",
        "awk '{ print ($1 + $2) / 2, ($3) / 4 \"%\" }' f",
        "sed s/a/b/g f",
        "sed -n -e 2,5p -e '/x/!d'",
        "sed 's,a\\,b,c,'",
        "sed -ne 2,5p --expression=/x/d f w",
        "gzip -9",
        "gzip -dc f.gz",
        "gunzip",
        "gunzip -c f.gz",
        "unxz < f",
        "bunzip2",
        "bzcat f",
        "xzcat f g",
        "zstdcat",
        "zstdcat -T0 f",
        "zstd -T0 -c f",
        "dd if=f bs=1M",
        "dd if=/dev/zero bs=1M count=100",
        "cat < /dev/null",
        "grep /dev/sda f",
        "find . -name '*.c' -type f",
        r"find . -exec wc -l {} \;",
        "git log --oneline",
        "tar c d",
        "tar cf - d",
        "uniq -c",
        "xargs -n1 wc -l",
        "xargs -n 1 -P 4 grep x",
        "xargs -0n 1 wc -l",
        "xargs -0P 4 md5sum",
        "xargs -rd , grep x",
        "xargs -i cat {}",
        "xargs -l wc",
        "parallel wc -l",
        "parallel -j 4 cat {}",
        "parallel -j8 md5sum",
        "xargs",
        "/usr/bin/sort f",
        "LC_ALL=en_US.UTF-8 TMPDIR=/big/tmp /bin/sort f",
        "env LC_ALL=C /usr/bin/nice -n 5 sort f",
    ],
)
def test_what_only_reads_can_be_run_again(text: str) -> None:
    assert repeatable(text)


@pytest.mark.parametrize(
    "text",
    [
        "tee out",
        "ssh host cat",
        "python3 x.py",
        "rm f",
        "sort -o f f",
        "sort -uo f f",
        "sort --o=f f",
        "sort --co=sh f",
        "awk '{ print > $1 }' f",
        "awk '{ print | \"sh\" }' f",
        "awk '{ system($0) }' f",
        'awk \'{ print $1 ";" $2 > "out.csv" }\' f',
        'awk \'{ print "}" $1 >> "log" }\' f',
        'awk \'{ printf "{%s}", $1 | "sh" }\' f',
        "awk '{ print(1)(2) > \"out\" }' f",
        "awk '{ \"sh\" | getline }' f",
        "awk '@load \"x\"; { print }' f",
        'awk \'function f() { return /"/ } { print > "out" } /"/\' f',
        # one reading of a slash behind a parenthesis hides what is printed to a file
        'awk \'{ if ($1) /"/; print > "out"; if ($1) /"/ }\' f',
        "awk '{ if ($1) /#/; print > \"out\" }' f",
        "awk -f prog f",
        "sed -i s/a/b/ f",
        "sed s/a/b/w f",
        "sed 'w out'",
        "sed s/a/b/e",
        "sed -f script",
        "sed -e s/a/b/ -e 'w out' f",
        "sed -e s/a/b/ -e '1e cmd' f",
        "sed -e s/a/b/ '--expression=w out' f",
        "sed s/a/b/ f -ne'w out'",
        "sed -e s/a/b/ -i f",
        "gzip f",
        "gzip -9 f",
        "gzip --decompress f",
        "xz -d f.xz",
        "zstd -c -o out f",
        "zstd -c -fo out f",
        "zstdcat -o out f",
        "zstdcat -fo out f",
        "zstd -dc --rm f.zst",
        "zstdcat --rm f.zst",
        "gzip -Sc f",
        "gunzip f.gz",
        "unxz f.xz",
        "bunzip2 -k f.bz2",
        "dd if=f of=g",
        "dd if=/dev/nst0 bs=1M",
        "cat < /dev/ttyS0",
        "cat f /dev/ttyS0",
        "find . -delete",
        r"find . -exec rm {} \;",
        "find . -fprint out",
        "git gc",
        "git diff --output=f",
        "tar x",
        "tar cf out.tar d",
        "tar c d --remove-files",
        "uniq in out",
        "xargs rm",
        "parallel rm",
        "parallel",
        "parallel cat {} '>' g",
        "parallel 'cat {} > g'",
        "parallel --pipe cat",
        "parallel wc ::: f",
        "xargs -n1 gzip",
        "xargs -I{} sh -c 'echo {}'",
        "xargs --arg-file=f rm",
        "xargs -0I file rm file",
        "xargs -rtI file rm file",
        "xargs -in rm cat",
        "xargs -eE rm cat",
        "xargs -l1n rm cat",
        "xargs -0q wc",
        "git grep -nOless x",
        "git grep --open=less x",
        "git log --no-output",
    ],
)
def test_what_may_change_something_is_not_run_again(text: str) -> None:
    assert not repeatable(text)


@pytest.mark.parametrize(
    "text",
    [
        "/tmp/e/cat f",
        "./cat f",
        "/usr/local/bin/cat f",
        "/usr/bin/../../tmp/cat f",
        "LD_PRELOAD=/tmp/e.so cat f",
        "PATH=/tmp/e cat f",
        "LC_ALL=C BASH_ENV=/tmp/e cat f",
        "LC_ALL=/tmp/e sort f",
        "/tmp/e/nice cat f",
        "env PATH=/tmp/e cat f",
        "env 'A-B=/usr/bin/cat' rm f",
        "env '/usr/bin/=/cat' rm f",
    ],
)
def test_a_program_may_only_have_the_name_of_one_that_reads(text: str) -> None:
    assert not repeatable(text)


@pytest.mark.parametrize("end", [",\n", "&&\n", ", # more\n\n", "\\\n"])
def test_an_awk_program_prints_to_a_file_in_the_next_line(end: str) -> None:
    # `parse` takes one line
    assert only_prints(f"{{ print $1 {end} $2 }}")
    assert not only_prints(f'{{ print $1 {end} $2 > "out" }}')
