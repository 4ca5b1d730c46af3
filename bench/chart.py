"""A line chart as an SVG file: a curve or several over sizes that double, the value beside each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 64, 46
_LINES: Final = 4
# Told apart by people who do not see all colours: blue, orange, green, purple, black.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000")


def draw(path: Path, title: str, x: str, sizes: Sequence[float], curves: Mapping[str, Sequence[float]]) -> None:
    """Write a chart; the vertical axis begins at 0, the horizontal one has the same room between any two sizes."""
    top = max((value for values in curves.values() for value in values), default=0.0) * 1.1 or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 22, title, size=15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x, anchor="middle"),
    ]
    for line in range(_LINES + 1):
        value = top * line / _LINES
        y = _y(value, top)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, short(value), anchor="end"))
    for index, size in enumerate(sizes):
        parts.append(_text(_x(index, len(sizes)), _HEIGHT - _BOTTOM + 18, short(size), anchor="middle"))
    legend = 12.0
    for number, (name, values) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(_x(index, len(sizes)), _y(value, top)) for index, value in enumerate(values)]
        line_of = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{line_of}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(legend, 44, name, colour=colour, size=11))
        legend += 5.6 * len(name) + 16  # about what the letters take
        for (px, py), value in zip(points, values, strict=True):
            parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>')
            parts.append(_text(px, py - 7, short(value), anchor="middle", colour=colour, size=11))
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def short(value: float) -> str:
    """Give a number in few characters."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits are enough


def _x(index: int, count: int) -> float:
    room = (_WIDTH - _LEFT - _RIGHT) / count
    return _LEFT + room * (index + 0.5)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#333", size: int = 12) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}" font-size="{size}">{escape(text)}</text>'
