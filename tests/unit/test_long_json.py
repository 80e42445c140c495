# SPDX-License-Identifier: Apache-2.0
"""An answer whose lists are written item by item is what `json.dumps` makes of the whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelined.web.long_json import long_json, one_at_a_time

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text(), VALUES),
    st.sets(st.text()),
    st.sampled_from([(", ", ": "), (",", ":")]),
)
def test_it_is_the_text_of_the_whole_object(
    answer: dict[str, Any], long: set[str], separators: tuple[str, str]
) -> None:
    given_ = {
        key: iter(value) if isinstance(value, list) and key in long else value
        for key, value in answer.items()
    }
    assert long_json(given_, separators) == json.dumps(answer, separators=separators)


def test_items_are_made_one_at_a_time() -> None:
    made: list[int] = []

    def items() -> Iterator[dict[str, Any]]:
        for number in range(3):
            made.append(number)
            yield {"made": list(made)}

    assert json.loads(long_json({"items": items()}))["items"] == [
        {"made": [0]},
        {"made": [0, 1]},
        {"made": [0, 1, 2]},
    ]


def test_a_view_of_long_answers_makes_one_at_a_time() -> None:
    at_once, most = 0, 0

    @one_at_a_time
    def view(seconds: float) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threading.Event().wait(seconds)
        at_once -= 1

    threads = [threading.Thread(target=view, args=(0.01,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (at_once, most) == (0, 1)
