# SPDX-License-Identifier: Apache-2.0
"""Follow the advice of each kind of finding, and see what is gained: `make advice`.

Needs root. Ends with status 1 if a pipeline does not have the finding that it should have, if more
is gained than the finding's bound, if the advice of a kind gains nothing or far from what was
likely, or if a healthy pipeline gets advice.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from advice.improved import BUDGET, Improved, Improver, improved_cells, improved_line
from advice.judgement import Followed, failures
from advice.kinds import with_kinds
from advice.measure import Bench, Failed
from advice.pairs import HEALTHY, PAIRS
from advice.table import healthy_line, line, section, with_improved
from document_section import put_section
from pipelined.analysis.machine import Host
from pipelined.wording import data_size

__all__ = ["main"]

ONLY_HEALTHY = "healthy"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="kinds, with commas; `healthy` for the healthy pipelines")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement; 5")
    parser.add_argument(
        "--table",
        type=Path,
        help="a document to put the section with the table in; with --only the other rows stay",
    )
    parser.add_argument(
        "--improve",
        action="store_true",
        help="give each pipeline to `pipelined improve` instead, and see what it finds",
    )
    options = parser.parse_args()
    chosen = set(options.only.split(",")) if options.only else None
    known = {pair.id for pair in PAIRS} | {ONLY_HEALTHY}
    if chosen is not None and not chosen <= known:
        parser.error(f"unknown kind: {', '.join(sorted(chosen - known))}")
    if os.geteuid():
        print("advice: needs root: sudo make advice", file=sys.stderr)
        return 1
    # a stop removes the disk and the files
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    machine = _machine()
    print(machine)
    try:
        with ExitStack() as stack:
            # not in /tmp, which may be a tmpfs: its files come from no disk
            name = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="pipelined-advice-", dir="/var/tmp")
            )
            if options.improve:
                return _improve(Improver(Path(name), options.rounds, stack), chosen, options.table)
            bench = Bench(Path(name), options.rounds, stack)
            results, healthy = [], []
            for pair in PAIRS:
                if chosen is None or pair.id in chosen:
                    results.append(bench.follow(pair))
                    print(line(results[-1]), flush=True)
            for command in HEALTHY:
                if chosen is None or ONLY_HEALTHY in chosen:
                    healthy.append(bench.examine(command))
                    print(healthy_line(healthy[-1]), flush=True)
    except Failed as error:
        print(f"advice: {error}", file=sys.stderr)
        return 1
    if options.table:
        document = options.table.read_text()
        text = section(machine, options.rounds, results, healthy, document)
        options.table.write_text(with_kinds(put_section(document, text)))
    failed = failures([each for each in results if isinstance(each, Followed)], healthy)
    print("\n" + "\n".join(failed or ["all claims hold"]))
    if bench.busy:
        print(f"other work took CPU time in {bench.busy} profiles, in each of several attempts")
    return 1 if failed else 0


def _improve(bench: Improver, chosen: set[str] | None, table: Path | None) -> int:
    """What `improve` finds for the pairs of these kinds, all if None; what was not found is no
    failure, but in the table."""
    results = []
    for pair in PAIRS:
        if chosen is None or pair.id in chosen:
            results.append(bench.improve(pair))
            print(improved_line(results[-1]), flush=True)
    if table:
        document = table.read_text()
        found = improved_cells(results)
        table.write_text(with_improved(document, BUDGET, _machine(), found))
    improved = sum(isinstance(each, Improved) and each.found for each in results)
    print(f"\n{improved} of {len(results)} were improved")
    return 0


def _machine() -> str:
    """Where this was measured."""
    host = Host.read()
    cache = "unknown" if host.l2_bytes is None else data_size(host.l2_bytes)
    return (
        f"{host.cores} CPUs, second-level cache {cache}, Linux {platform.release()}, "
        f"{platform.machine()}"
    )


if __name__ == "__main__":
    sys.exit(main())
