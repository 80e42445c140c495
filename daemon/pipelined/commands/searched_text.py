# SPDX-License-Identifier: Apache-2.0
"""The type of arguments that runs are searched by."""

from __future__ import annotations

import click

from pipelined.wording import valid_text

__all__ = ["searched_text"]


def searched_text(value: str) -> str:
    """The text as names have it. An empty one is a variable that is not set: an error of usage."""
    if not value:
        raise click.BadParameter("it is empty")
    return valid_text(value)
