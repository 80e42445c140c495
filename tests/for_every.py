# SPDX-License-Identifier: Apache-2.0
"""A rule that holds for many things is one test, which reports everything that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def for_every(
    cases: Iterable[Any], name: Callable[[Any], str] = str
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make one test of a claim about each of `cases`.

    A case that is a tuple is unpacked into the claim's arguments. `name` is what a report calls
    a case. No cases at all is a failure: the claim would hold of nothing.
    """
    cases = list(cases)

    def decorate(claim: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for case in cases:
                try:
                    claim(*case) if isinstance(case, tuple) else claim(case)
                except Exception as error:  # a KeyError, too, is a case that breaks the rule
                    what = f"{name(case)}: {type(error).__name__}: {error}"
                    broken.append(what.replace("\n", "\n    "))
            assert cases, "there is nothing that the rule could hold for"
            assert not broken, "\n".join([f"{len(broken)} of {len(cases)} break it:", *broken])

        # functools.wraps would show pytest the claim's arguments, to be looked up as fixtures.
        test.__name__, test.__doc__ = claim.__name__, claim.__doc__
        return test

    return decorate
