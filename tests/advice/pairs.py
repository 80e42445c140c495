# SPDX-License-Identifier: Apache-2.0
"""What the benchmark runs: pairs, a pipeline and the same as advised, and healthy pipelines.

Commands run in a directory with the files of `advice.data`. To add a kind of finding, give it two
pairs that differ in more than their numbers, or a reason in `WITHOUT_PAIRS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "FROM_INPUT",
    "HEALTHY",
    "MIXED",
    "OTHER_FILE",
    "OWN_TEXT",
    "PAIRS",
    "SHELL_TEXT",
    "WITHOUT_PAIRS",
    "Disk",
    "Pair",
]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Disk:
    """How slow the disk is from which a pair reads its files, each time from a cold cache."""

    bytes_per_second: int = 0
    """0 is no limit."""
    reads_per_second: int = 0
    read_ahead_kib: int = 128
    """The window, unless a command changes it: `$READ_AHEAD` is the setting's file."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pipeline with a finding, and what its advice makes of it. Both print the same."""

    id: str
    """Of the finding."""
    before: str
    after: str | None
    """None: the finding writes the command itself."""
    cold: tuple[str, ...] = ()
    """Files and directories that are dropped from the page cache before each run."""
    disk: Disk | None = None
    """None: the disk of the temporary directory."""
    needs: str = ""
    """A count of the stages, as `--json` names it, that some hosts do not have."""
    unsaid: str = ""
    """Why no finding can write the better form as a command, if that is so."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of `pipelined compare`. Not for a pair whose finding writes the command."""
        assert self.after is not None
        cold = [word for name in self.cold for word in ("--cold", name)]
        return *cold, self.before, self.after


#: Why no finding can write a better form as a command.
OWN_TEXT = "the better form changes the text of a program in perl or python, which is not read"
OTHER_FILE = "the better form reads another file, which has to be made first"
SHELL_TEXT = "what sh -c makes of {} only a shell could say: its text is not read"
MIXED = "several processes of xargs may mix what they print"
FROM_INPUT = (
    "which files it reads only its input shows: improve cannot read them from disk each time"
)

#: A rewrite of each line that takes some 100 ns for each of its characters.
SLOW = r"s/\([0-9]*\) \([a-z]*\) \([a-z]*\)/\3 \2 \1/"

#: Some 20 ns of computing for each byte.
VOWELS = """awk '{ gsub(/[aeiou]/, "#"); n += length($0) } END { print n }'"""
PAIRS = (
    Pair(
        "disk-not-overlapped",
        "awk '{ n += length($2) } END { print n }' text",
        "dd bs=32k if=text status=none | awk '{ n += length($2) } END { print n }'",
        cold=("text",),
        disk=Disk(read_ahead_kib=0),
    ),
    Pair(
        "disk-not-overlapped",
        "awk '{ n += length($2) } END { print n }' small/*/*",
        "cat small/*/* | awk '{ n += length($2) } END { print n }'",
        cold=("small",),
        disk=Disk(reads_per_second=2500),
    ),
    Pair(
        "reader-costs",
        "cat big | wc -l",
        "wc -l < big",
    ),
    Pair(
        "reader-costs",
        "cat text text text text | grep ' 96$' | wc -l",
        "grep -h ' 96$' text text text text | wc -l",
    ),
    Pair(
        "small-files",
        "find dust -type f -print0 | xargs -0 cat | cut -d ' ' -f 1 | sort -n | tail -n 1",
        None,
    ),
    Pair(
        "small-files",
        "cat dust/*/* | wc -l",
        None,
    ),
    Pair(
        "large-writes",
        "dd if=big bs=1M conv=ucase status=none | tr 0-9 a-j",
        "dd if=big bs=32k conv=ucase status=none | tr 0-9 a-j",
    ),
    Pair(
        "large-writes",
        "perl -e 'while (sysread STDIN, $_, 1 << 20) { tr/a-z/A-Z/; syswrite STDOUT, $_ }' < big"
        " | tr 0-9 a-j",
        "perl -e 'while (sysread STDIN, $_, 1 << 15) { tr/a-z/A-Z/; syswrite STDOUT, $_ }' < big"
        " | tr 0-9 a-j",
        unsaid=OWN_TEXT,
    ),
    Pair(
        "small-calls",
        'head -n 60000 text | while read -r a b; do echo "$a"; done | sort -n',
        "head -n 60000 text | awk '{ print $1 }' | sort -n",
    ),
    Pair(
        "small-calls",
        "awk '{ print $1; fflush() }' part | tail -n 1",
        "awk '{ print $1 }' part | tail -n 1",
    ),
    Pair(
        "cache-sized",
        "head -c 300000000 big | dd ibs=64k obs=16M status=none | tail -c 1000",
        "head -c 300000000 big | dd ibs=64k obs=128k status=none | tail -c 1000",
    ),
    Pair(
        "cache-sized",
        "tail -c +100 big | dd ibs=64k obs=4M status=none | wc -c",
        "tail -c +100 big | dd ibs=64k obs=128k status=none | wc -c",
    ),
    Pair(
        "ceiling",
        "tar -c files | gzip > files.tar.gz",
        "tar -c files | pigz > files.tar.gz",
    ),
    Pair(
        "ceiling",
        "tar -c log | xz -0 -T1 > log.tar.xz",
        "tar -c log | xz -0 -T0 > log.tar.xz",
    ),
    Pair(
        "ceiling",
        f"sed -e '{SLOW}' -e 's/[0-9]/#/g' part | md5sum",
        f"sed '{SLOW}' part | sed 's/[0-9]/#/g' | md5sum",
    ),
    Pair(
        "ceiling",
        f"sed '{SLOW}' text | md5sum",
        f"parallel --pipe -k --block 10M \"sed '{SLOW}'\" < text | md5sum",
    ),
    Pair(
        "ceiling",
        "zcat log.gz | wc -l",
        "zstd -dc log.zst | wc -l",
        unsaid=OTHER_FILE,
    ),
    Pair(
        "ceiling",
        "find files -type f -print0 | xargs -0 md5sum | sort | md5sum",
        "find files -type f -print0 | xargs -0 -n 100 -P 2 md5sum | sort | md5sum",
    ),
    Pair(
        "idle-stage",
        f"sed '{SLOW}' part | grep ' 96$'",
        f"grep ' 96$' part | sed '{SLOW}'",
    ),
    Pair(
        "idle-stage",
        "awk '{ gsub(/some/, \"any\"); print $6, $1 }' text | grep '^96 '",
        "grep ' 96$' text | awk '{ gsub(/some/, \"any\"); print $6, $1 }'",
    ),
    Pair(
        "barrier",
        "sort text | awk '{ print $1 }' | uniq -c | wc -l",
        "awk '{ print $1 }' text | sort | uniq -c | wc -l",
    ),
    Pair(
        "barrier",
        "sort text | grep ' 96$'",
        "grep ' 96$' text | sort",
    ),
    Pair(
        "round-trip",
        "zcat log.gz | gzip -1 | gzip -dc | cut -d ' ' -f 1 | md5sum",
        None,
    ),
    Pair(
        "round-trip",
        "cut -d ' ' -f 1,7 log | xz -0 | xz -dc | sort -u | wc -l",
        None,
    ),
    Pair(
        "reads-on",
        "zcat log.gz | grep GET | sed -n 100,110p",
        None,
    ),
    Pair(
        "reads-on",
        "tr a-z A-Z < text | awk 'NR <= 20' | cut -d ' ' -f 2 | sort",
        None,
    ),
    Pair(
        "sorted-twice",
        "sort text | cut -d ' ' -f 6 | sort -n | md5sum",
        None,
    ),
    Pair(
        "sorted-twice",
        "zcat log.gz | sort | grep ' 404 ' | sort -k 7,7 | tail -n 3",
        None,
    ),
    Pair(
        "sorted-count",
        "grep GET log | sort -k 7,7 | wc -l",
        None,
    ),
    Pair(
        "sorted-count",
        "sort text part | cut -d ' ' -f 2-5 | wc",
        None,
    ),
    Pair(
        "filter-first",
        "zcat log.gz | gzip -9 | gzip -dc | sort | grep ' 404 ' | md5sum",
        None,
    ),
    Pair(
        "filter-first",
        f"sed '{SLOW}' part | sort | grep ' 96$' | md5sum",
        None,
    ),
    Pair(
        "sort-unique",
        "cut -d ' ' -f 4-6 log | LC_ALL=C sort | uniq | wc -l",
        None,
    ),
    Pair(
        "sort-unique",
        "cut -d ' ' -f 6-9 log | LC_ALL=C sort | uniq | md5sum",
        None,
    ),
    Pair(
        "idle-copier",
        "dd if=big bs=64k status=none | cat | cksum",
        None,
    ),
    Pair(
        "idle-copier",
        "dd if=big bs=4k status=none | cat | dd bs=4k status=none | tail -c 100",
        None,
    ),
    Pair(
        "more-stages-than-cores",
        "tr a-z A-Z < big | tr ' ' _ | tr 0-9 a-j | tr _ - | tr A-Z a-z | md5sum",
        "tr 'A-Z0-9 _' 'a-za-j--' < big | md5sum",
    ),
    Pair(
        "more-stages-than-cores",
        "tr -d '\\r' < big | tr a-z A-Z | cut -d ' ' -f 1,6 | tr ' ' , | tr 0-9 a-j | md5sum",
        "cut -d ' ' -f 1,6 big | tr 'a-z 0-9' 'A-Z,a-j' | md5sum",
    ),
    Pair(
        "join-stages",
        "cat log | gzip -1 | zcat | cut -d ' ' -f 1 | sed s/10/11/ | sed s/0/1/ | sed s/2/3/ | wc",
        None,
    ),
    Pair(
        "join-stages",
        "cat log | gzip -1 | zcat | grep GET | awk '{ print $7 }' | sed s/page/text/ | md5sum",
        None,
    ),
    Pair(
        "grep-count",
        "grep -v ' 96$' text | wc -l",
        None,
    ),
    Pair(
        "grep-count",
        "zcat log.gz | grep GET | wc -l",
        None,
    ),
    Pair(
        "sort-spills",
        "head -c 4000000 part | sort -S 1M -T synced | tail -n 1",
        None,
    ),
    Pair(
        "sort-spills",
        "awk '{ print $6, $1 }' part | head -c 4000000 | sort -S 512k -T synced | md5sum",
        None,
    ),
    Pair(
        "sort-locale",
        "LC_ALL=en_US.UTF-8 sort part | awk '{ n += $1 } END { print n }'",
        None,
    ),
    Pair(
        "sort-locale",
        "cut -d ' ' -f 1 part | LC_ALL=en_US.UTF-8 sort | uniq | wc -l",
        None,
    ),
    Pair(
        "sort-locale",
        "LC_ALL=C.UTF-8 sort part | md5sum",
        None,
    ),
    Pair(
        "c-locale",
        "LC_ALL=C.UTF-8 sed -E 's/([0-9]+) ([a-z]+)/\\2 \\1/' part | md5sum",
        None,
    ),
    Pair(
        "c-locale",
        "LC_ALL=C.UTF-8 gawk '{ print toupper($2), length($0) }' text | md5sum",
        None,
    ),
    Pair(
        "tee-waits",
        "head -c 16000000 part | tee synced/copy | awk '{ n += length($0) } END { print n }'",
        "head -c 16000000 part | tee >(zstd -q > synced/copy.zst)"
        " | awk '{ n += length($0) } END { print n }'",
    ),
    Pair(
        "tee-waits",
        "seq 2000000 | tee synced/numbers | tail -n 1",
        "seq 2000000 | tee numbers | tail -n 1",
    ),
    Pair(
        "count-in-hash",
        "awk '{ print $6 }' text | sort | uniq -c | sort -rn | head",
        None,
    ),
    Pair(
        "count-in-hash",
        "cut -d ' ' -f 1 log | sort | uniq | wc -l",
        None,
    ),
    Pair(
        "fork-storm",
        "find tiny -type f -exec cat {} \\; | wc -l",
        None,
    ),
    Pair(
        "fork-storm",
        "find tiny -type f | xargs -P 2 -n 1 cat | wc -c",
        "find tiny -type f | xargs -P 2 -n 500 cat | wc -c",
        unsaid=MIXED,
    ),
    Pair(
        "fork-storm",
        "find tiny -type f | head -n 300 | parallel -j 2 cat | wc -c",
        "find tiny -type f | head -n 300 | xargs -P 2 -n 1 cat | wc -c",
        unsaid=MIXED,
    ),
    Pair(
        "fork-storm",
        "seq 1000 | xargs -I{} sh -c 'echo {}' | wc -l",
        "seq 1000 | xargs -n 1000 printf '%s\\n' | wc -l",
        unsaid=SHELL_TEXT,
    ),
    Pair(
        "fork-storm",
        "head -n 600 text | while read -r a b; do echo \"$b\" | cut -d ' ' -f 5; done | sort -n",
        "head -n 600 text | awk '{ print $6 }' | sort -n",
    ),
    Pair(
        "failed-execs",
        'PATH="$FAR:$PATH"; seq 1000 | xargs -n 1 echo | wc -l',
        'PATH="$FAR:$PATH"; seq 1000 | xargs -n 1 /bin/echo | wc -l',
        needs="exec_failures",
    ),
    Pair(
        "failed-execs",
        'PATH="$FAR:$PATH"; find files -type f -exec basename {} \\; | sort | tail -n 1',
        'PATH="$FAR:$PATH"; find files -type f -exec /usr/bin/basename {} \\; | sort | tail -n 1',
        needs="exec_failures",
    ),
    Pair(
        "readahead-useless",
        "echo 0 > $READ_AHEAD; dd if=text bs=4k status=none | wc -l",
        "echo 128 > $READ_AHEAD; dd if=text bs=4k status=none | wc -l",
        cold=("text",),
        disk=Disk(),
    ),
    Pair(
        "readahead-useless",
        f"dd if=part bs=8M status=none | {VOWELS}",
        f"dd if=part bs=64k status=none | {VOWELS}",
        cold=("part",),
        disk=Disk(bytes_per_second=32 * MIB),
    ),
    Pair(
        "readahead-useless",
        "xargs cat < list | wc -c",
        "xargs -n 50 -P 4 cat < list | wc -c",
        cold=("tiny",),
        unsaid=FROM_INPUT,
    ),
    Pair(
        "readahead-wasted",
        "echo 8192 > $READ_AHEAD; for f in parts/*; do head -c 100000 $f; done | wc -l",
        "echo 64 > $READ_AHEAD; for f in parts/*; do head -c 100000 $f; done | wc -l",
        cold=("parts",),
        disk=Disk(bytes_per_second=32 * MIB),
    ),
    Pair(
        "readahead-wasted",
        "/usr/bin/python3 random_reads.py NORMAL part | md5sum",
        "/usr/bin/python3 random_reads.py RANDOM part | md5sum",
        cold=("part",),
        disk=Disk(bytes_per_second=8 * MIB, read_ahead_kib=1024),
        unsaid=OWN_TEXT,
    ),
    Pair(
        "readahead-late",
        "awk '{ n += $6 } END { print n }' part",
        "zcat part.gz | awk '{ n += $6 } END { print n }'",
        cold=("part", "part.gz"),
        disk=Disk(bytes_per_second=16 * MIB),
        unsaid=OTHER_FILE,
    ),
    Pair(
        "readahead-late",
        "echo 128 > $READ_AHEAD; awk '{ n += $6 } END { print n }' part",
        "echo 1024 > $READ_AHEAD; awk '{ n += $6 } END { print n }' part",
        cold=("part",),
        disk=Disk(reads_per_second=200),
    ),
)

#: Kinds that have no pair, and why.
WITHOUT_PAIRS: Mapping[str, str] = {
    "cold-run": "a note on what to compare a run with; there is nothing to change",
    "cpu-contention": "a note on other work on the host; there is nothing to change",
    "cpu-limit": "about the limit of a cgroup; no other pipeline helps",
}

#: Ordinary pipelines in which there is nothing to improve.
HEALTHY = (
    "LC_ALL=C.UTF-8 grep -i SOME text | LC_ALL=C.UTF-8 tr a-z A-Z | md5sum",
    "LC_ALL=C sort part | uniq -c | sort -n | tail -n 3",
    "zstd -dc log.zst | awk '{ n[$9]++ } END { for (k in n) print k, n[k] }' | sort",
    "awk '{ print $1 }' log | LC_ALL=C sort -u | wc -l",
    "cut -d '\"' -f 2 log | cut -d ' ' -f 1 | md5sum",
    "awk '$9 == 404 { print $7 }' log | sort | uniq -c | sort -rn | head",
    "awk '{ n[$1]++ } END { for (k in n) print n[k], k }' log | sort -rn | head",
    "grep ' 404 ' log | cut -d ' ' -f 1,7 | sort -u | wc -l",
    "comm -12 <(sort -u part) <(sort -u text) | wc -l",
    "sed 's/some/any/' text | sha256sum",
    "tr A-Z a-z < log | md5sum",
    "tr -s ' ' '\\n' < text | grep -c some",
    "base64 text | md5sum",
    "nl text | tail -n 3",
    "tar -c files | md5sum",
    "grep -rh ' 96$' dust | md5sum",
    "cat files/*/* | wc -l",
    "tar -c files | tar -t | sort | tail -n 1",
    "sort -n text | tail -n 3",
    "shuf --random-source=text text | sed -n '1p;$p'",
    "sort -n text | sed -n 1,3p",
    "find /usr -type f | wc -l",
    "find /usr -name '*.so*' | sort | tail -n 3",
    "jq -r .name records | sort | md5sum",
    "head -c 200000000 big | sha256sum",
    "seq 2000000 | awk '{ n += $1 } END { print n }'",
    "tee >(md5sum > sum) < log | wc -l",
    "dd if=big bs=32k conv=ucase status=none | md5sum",
    "tr a-z A-Z < log | tr ' ' _ | sha256sum",
    "sed -e 's/some/any/' -e '/96$/d' text | md5sum",
    "find files -type f -print0 | xargs -0 -n 100 -P 2 md5sum | sort | md5sum",
)
