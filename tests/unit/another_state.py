# SPDX-License-Identifier: Apache-2.0
"""A state more in the table, in memory, for all that is imported after this (test_states.py).

As a program, it prints what the parts of the program say and draw of that state. As a plugin of
pytest, it shows which tests ask for more than the table.
"""

from __future__ import annotations

import json

from pipelined import states

ANOTHER = states.State(
    "another",
    "another state",
    "☃",
    "?",
    "bright_green",
    "waits for another {}",
    at_work=True,
    idle=True,
    echo="helper",
)
states.STATE_TABLE = (*states.STATE_TABLE[:-1], ANOTHER, states.STATE_TABLE[-1])


def followed() -> dict[str, object]:
    """What there is of the state, by the part of the program."""
    from dashboards import queries

    from pipelined.kernel import layout
    from pipelined.terminal import drawing, run_report
    from pipelined.web.over_time import chart_data
    from unit.invented import make_run, make_stage, make_timeline
    from unit.test_rules import exposed

    held = make_stage(1, "cat", another=9.0, cpu=1.0)
    run = make_run([held, make_stage(2, "wc", pipe_empty=10.0)], 10.0)
    return {
        "report": [line.plain for line in run_report.lines(run, 0, 100)],
        "ascii": [line.plain for line in run_report.lines(run, 0, 100, ascii_only=True)],
        "style": drawing.STYLES["another"],
        "page": chart_data(run, make_timeline(run), ())["words"],
        "metric": sorted(exposed()["pipelined_state_seconds_total"]["state"]),
        "dashboards": {"idle": queries.IDLE, "at work": queries._AT_WORK},
        "record": len(layout.Stage().time_ns),
    }


if __name__ == "__main__":
    print(json.dumps(followed()))
