# SPDX-License-Identifier: Apache-2.0
"""An answer whose lists are written item by item is what `json.dumps` makes of the whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelined.web.long_json import long_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES), st.sets(st.text()))
def test_it_is_the_text_of_the_whole_object(answer: dict[str, Any], long: set[str]) -> None:
    given_ = {
        key: iter(value) if isinstance(value, list) and key in long else value
        for key, value in answer.items()
    }
    assert long_json(given_) == json.dumps(answer)


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
