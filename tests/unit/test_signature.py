# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelined.model.ledger import OTHER
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


def test_a_program_alone_is_not_named_as_what_is_added_up() -> None:
    assert arrange([OTHER], []).signature == r"\x28other)"
    assert arrange([OTHER, "sort"], [(0, 1)]).signature == "(other)|sort"


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


def test_stages_are_put_in_data_order_whatever_their_number() -> None:
    assert arrange(["uniq", "cat", "sort"], [(1, 2), (2, 0)]).signature == "cat|sort|uniq"
    order = arrange(["sort", "diff", "sort"], [(0, 1), (2, 1)])
    assert (order.sequence, order.positions) == ((0, 2, 1), (1, 1, 2))
    assert order.signature == "sort|diff"


def test_the_longest_way_to_a_stage_is_its_rank() -> None:
    order = arrange(["c", "b", "a", "d"], [(2, 1), (1, 0), (2, 0), (0, 3), (2, 3), (2, 2)])
    assert (order.signature, order.positions) == ("a|b|c|d", (1, 2, 3, 4))


def test_of_two_cycles_the_first_stage_opens_each() -> None:
    order = arrange(["a", "b", "c", "d"], [(0, 1), (1, 0), (2, 3), (3, 2)])
    assert (order.signature, order.sequence) == ("(a,c)|(b,d)", (0, 2, 1, 3))


def test_a_cycle_is_opened_at_the_stage_that_comes_first() -> None:
    order = arrange(["a", "b", "c"], [(0, 1), (1, 2), (2, 0)])
    assert (order.signature, order.positions) == ("a|b|c", (1, 2, 3))
    assert arrange(["a", "c", "b"], [(0, 2), (2, 1), (1, 0)]).signature == "a|b|c"
    behind = arrange(["z", "b", "a"], [(0, 1), (1, 0), (1, 2)])
    assert behind.signature == "z|b|a"


def test_a_pipe_that_two_ends_share_counts_once() -> None:
    assert arrange(["sort", "cat"], [(1, 0), (1, 0)]).signature == "cat|sort"
