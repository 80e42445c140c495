# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelined.model.signature import arrange


def test_a_chain_is_written_in_data_order() -> None:
    order = arrange(["sort", "cat", "uniq"], [(1, 0), (0, 2)])
    assert (order.signature, order.sequence, order.positions) == (
        "cat|sort|uniq",
        (1, 0, 2),
        (1, 2, 3),
    )


def test_branches_of_one_name_share_a_position_and_are_named_once() -> None:
    order = arrange(["split", "bash", "bash", "seq"], [(3, 0), (0, 1), (0, 2)])
    assert (order.signature, order.positions) == ("seq|split|bash", (1, 2, 3, 3))


def test_branches_of_different_names_stand_sorted_in_parentheses() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)]
    order = arrange(["tee", "wc", "gzip", "sort"], edges)
    assert (order.signature, order.positions) == ("tee|(gzip,wc)|sort", (1, 2, 3, 4))


def test_two_that_talk_both_ways_stand_in_the_order_given() -> None:
    assert arrange(["python3", "sort"], [(0, 1), (1, 0)]).signature == "python3|sort"


@given(
    st.integers(1, 8).flatmap(
        lambda count: st.tuples(
            st.lists(st.sampled_from("abc"), min_size=count, max_size=count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))),
        )
    )
)
def test_any_graph_gives_every_stage_one_place(
    graph: tuple[list[str], list[tuple[int, int]]],
) -> None:
    names, edges = graph
    order = arrange(names, edges)
    assert sorted(order.sequence) == list(range(len(names)))
    assert sorted(set(order.positions)) == list(range(1, max(order.positions) + 1))
