# SPDX-License-Identifier: Apache-2.0
"""A soak as a picture: one small chart per figure that must not grow, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from soak.judgement import BOUNDED, Bounded
from soak.readings import Reading, Soak

__all__ = ["draw"]

#: Of one chart, in pixels; the margins hold its title and its axes.
_WIDTH, _HEIGHT = 380, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 30, 24
_COLUMNS = 2

_LINE, _BOUND, _KILL, _AXIS, _TEXT = "#1f5fa8", "#b3261e", "#8a8a8a", "#c8c8c8", "#333333"
_FULL = "#e6e6e6"


def draw(soak: Soak) -> str:
    """The picture: the figure in blue, its bound in red; grey: each kill -9, and the full disk."""
    limit = soak.history_max_bytes / 1e6
    charts = [
        *((_title(figure), _scaled(figure.read, figure.scale), figure.bound) for figure in BOUNDED),
        ("history, MB", _scaled(lambda reading: reading.history_bytes, 1e6), limit),
        ("CPU of a core, %", _scaled(lambda reading: reading.cpu_ratio, 0.01), None),
    ]
    rows = -(-len(charts) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        "<title>Figures of the daemon over a soak</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (title, read, bound) in enumerate(charts):
        x, y = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT
        chart = _chart(title, [read(reading) for reading in soak.readings], bound, soak)
        parts += [f'<g transform="translate({x} {y})">', *chart, "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _title(figure: Bounded) -> str:
    return figure.about if figure.unit == figure.about else f"{figure.about}, {figure.unit}"


def _scaled(read: Callable[[Reading], float], scale: float) -> Callable[[Reading], float]:
    return lambda reading: read(reading) / scale


def _chart(title: str, values: Sequence[float], bound: float | None, soak: Soak) -> list[str]:
    minutes = [reading.seconds / 60 for reading in soak.readings]
    end = max(minutes)
    top = max([*values, bound or 0.0]) * 1.1 or 1.0

    def across(minute: float) -> float:
        return _LEFT + minute / end * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        _text(_LEFT, _TOP - 10, title, "start", "bold"),
        _text(_LEFT - 6, up(0) + 4, "0", "end"),
        _text(_LEFT, _HEIGHT - 8, "0", "start"),
        _text(_WIDTH - _RIGHT, _HEIGHT - 8, f"{end:.3g} min", "end"),
        _rule(_LEFT, up(0), _WIDTH - _RIGHT, up(0), _AXIS),
        _rule(_LEFT, up(0), _LEFT, _TOP, _AXIS),
    ]
    last = values[-1]
    parts.append(_text(_WIDTH - _RIGHT, min(up(last) + 14, up(0) - 3), _number(last), "end"))
    if bound is not None:
        parts.append(_text(_LEFT - 6, up(bound) + 4, _number(bound), "end"))
        parts.append(_rule(_LEFT, up(bound), _WIDTH - _RIGHT, up(bound), _BOUND, "5 3"))
    full = [across(seconds / 60) for seconds in (soak.happened.full_from, soak.happened.full_until)]
    parts.append(
        f'<rect x="{full[0]:.1f}" y="{_TOP}" width="{full[1] - full[0]:.1f}"'
        f' height="{up(0) - _TOP:.1f}" fill="{_FULL}"/>'
    )
    for gap in soak.gaps:
        killed = across(gap.at / 60)
        parts.append(_rule(killed, up(0), killed, _TOP, _KILL, "2 2"))
    points = " ".join(
        f"{across(minute):.1f},{up(value):.1f}"
        for minute, value in zip(minutes, values, strict=True)
    )
    parts.append(f'<polyline points="{points}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>')
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'
    )


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{_TEXT}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )
