"""The figure of the page, by hand: a small panel for each set, in few bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from page import Field

WIDTH, HEIGHT, ACROSS = 190, 150, 5


def figure(field: Field, shown: dict[str, tuple[str, str]], strong: tuple[str, ...]) -> str:
    """Accuracy against earliness. `shown` gives each method's name and colour; lines of `strong`
    methods are thick."""
    down = -(-len(field.sets) // ACROSS)
    width, height = ACROSS * WIDTH + 20, down * HEIGHT + 75
    title = "Accuracy against the share of a series that is read (upper left is better)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="9">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="16" font-size="12">{title}</text>',
    ]
    for i, (name, colour) in enumerate(shown.values()):
        x, y = 10 + i % 4 * (width // 4), 32 + i // 4 * 14
        parts.append(f'<circle cx="{x + 4}" cy="{y - 3}" r="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{name}</text>')
    for i, name in enumerate(field.sets):
        left, top = 10 + i % ACROSS * WIDTH, 59 + i // ACROSS * HEIGHT
        parts += panel(field, name, shown, strong, left, top)
    return "\n".join([*parts, "</svg>", ""])


def panel(
    field: Field,
    name: str,
    shown: dict[str, tuple[str, str]],
    strong: tuple[str, ...],
    left: int,
    top: int,
) -> Iterator[str]:
    wide, high = WIDTH - 44, HEIGHT - 44
    curves = {method: field.curve(name, method) for method in shown}
    values = [accuracy for curve in curves.values() for _, accuracy in curve]
    low, most = min(values), max(max(values), min(values) + 0.01)

    def at(early: float, accuracy: float) -> str:
        down = (1 - (accuracy - low) / (most - low)) * high
        return f"{left + 28 + early * wide:.1f},{top + 14 + down:.1f}"

    yield f'<text x="{left + 28}" y="{top + 10}" font-weight="bold">{name}</text>'
    yield (
        f'<rect x="{left + 28}" y="{top + 14}" width="{wide}" height="{high}" fill="none" '
        'stroke="#bbb"/>'
    )
    for early in (0, 0.5, 1):
        yield f'<text x="{left + 24 + early * wide:.0f}" y="{top + high + 25}">{early:g}</text>'
    for value in (low, most):
        x, y = at(0, value).split(",")
        yield f'<text x="{float(x) - 27:.1f}" y="{float(y) + 4:.1f}">{100 * value:.0f}%</text>'
    for method, curve in curves.items():
        points = [at(*point) for point in curve]
        colour, thick = shown[method][1], 1.8 if method in strong else 0.8
        yield (
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" '
            f'stroke-width="{thick}"/>'
        )
        if method in strong or len(points) == 1:
            for point in dict.fromkeys(points):
                x, y = point.split(",")
                yield f'<circle cx="{x}" cy="{y}" r="1.6" fill="{colour}"/>'
