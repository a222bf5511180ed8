"""Figures on your own axes, through matplotlib.

Every function draws on `ax`, by default the current axes, and returns it; further
keywords go to matplotlib. Several rules or evaluations, as a dict by their names, are drawn
together. Axes without a title get one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .rule import Evaluation, Rule

T = TypeVar("T")

__all__ = ["gap_by_step", "halted_by_step", "p_values", "thresholds"]


def thresholds(rule: Rule | Mapping[str, Rule], ax: Axes | None = None, **kwargs: Any) -> Axes:
    """The threshold of each step; a gap in the line is never."""
    ax = _axes(ax, "Threshold at step t")
    steps = 1
    for one, own in _each(rule, kwargs):
        values = np.where(np.isfinite(one.thresholds), one.thresholds, np.nan)
        steps = max(steps, len(values))
        ax.step(np.arange(1, len(values) + 1), values, where="mid", **{"marker": ".", **own})
    ax.set(xlabel="step", ylabel="threshold", xlim=(0.5, steps + 0.5), ylim=(0, 1.02))
    return _named(ax, rule)


def p_values(rule: Rule | Mapping[str, Rule], ax: Axes | None = None, **kwargs: Any) -> Axes:
    """The p-value of every test against the step where its rule opens, and delta."""
    ax = _axes(ax, "Test of each candidate")
    deltas = set()
    for one, own in _each(rule, kwargs):
        opens = [test["opens"] for test in one.trail]
        ax.plot(opens, one.p_values, **{"marker": ".", "linestyle": "none", **own})
        deltas.add(one.delta)
    for delta in sorted(deltas):
        ax.axhline(delta, color="0.5", linestyle="--", label=f"δ = {delta:g}")
    ax.set(xlabel="halting opens at step", ylabel="p-value")
    ax.legend()
    return ax


def gap_by_step(
    evaluation: Evaluation | Mapping[str, Evaluation],
    ax: Axes | None = None,
    *,
    alpha: float | None = None,
    **kwargs: Any,
) -> Axes:
    """The gap among the sequences halted by each step, with its exact 95% interval, and the
    tolerated gap if `alpha` is given."""
    ax = _axes(ax, "Gap among sequences halted by step t")
    for one, own in _each(evaluation, kwargs):
        steps = [step for step in one.by_step if step["gap_by"] is not None]
        t = [step["t"] for step in steps]
        low, high = zip(*(step["gap_by_interval"] for step in steps), strict=True)
        (line,) = ax.plot(t, [step["gap_by"] or 0.0 for step in steps], **own)
        ax.fill_between(t, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    if alpha is not None:
        ax.axhline(alpha, color="0.5", linestyle="--", label=f"α = {alpha:g}")
        ax.legend()
    ax.set(xlabel="step t", ylabel="gap among those halted by t", ylim=(0, None))
    return _named(ax, evaluation)


def halted_by_step(
    evaluation: Evaluation | Mapping[str, Evaluation], ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """The share of sequences halted by each step."""
    ax = _axes(ax, "Sequences halted by step t")
    for one, own in _each(evaluation, kwargs):
        t = [0] + [step["t"] for step in one.by_step]
        share = [0.0] + [step["halted_by"] / one.n for step in one.by_step]
        ax.step(t, share, where="post", **own)
    ax.set(xlabel="step t", ylabel="halted by t", ylim=(0, 1.02))
    return _named(ax, evaluation)


def _each(things: T | Mapping[str, T], kwargs: dict[str, Any]) -> list[tuple[T, dict[str, Any]]]:
    """Each thing with the keywords that draw it."""
    if isinstance(things, Mapping):
        return [(one, {**kwargs, "label": name}) for name, one in things.items()]
    return [(things, kwargs)]


def _named(ax: Axes, things: object) -> Axes:
    """The same axes, with the names of several things."""
    if isinstance(things, Mapping):
        ax.legend()
    return ax


def _axes(ax: Axes | None, title: str) -> Axes:
    """The axes to draw on, with a title unless they have one."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    if not ax.get_title():
        ax.set_title(title)
    return ax
