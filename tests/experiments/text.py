# SPDX-License-Identifier: Apache-2.0
"""The text that the experiments read."""

from __future__ import annotations

__all__ = ["text"]


def text(size: int) -> bytes:
    """`size` bytes of unsorted lines of six words, the last of which goes from 0 to 96."""
    lines = "".join(f"{i * 7919 % 100003} some words of text {i % 97}\n" for i in range(50_000))
    return (lines.encode() * (size // len(lines) + 1))[: size - 1] + b"\n"
