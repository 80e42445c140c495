# SPDX-License-Identifier: Apache-2.0
"""The type of arguments that runs are searched by."""

from __future__ import annotations

from typing import Any

import click

from pipelined.wording import valid_text

__all__ = ["SEARCHED"]


class _SearchedText(click.ParamType[str]):
    """A text as names have it; an empty one is a variable that the caller's shell did not know."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it is empty", param, ctx)
        return valid_text(value)


SEARCHED = _SearchedText()
