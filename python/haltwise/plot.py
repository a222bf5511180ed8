"""Figures on your own axes, through matplotlib.

Every function draws on `ax`, by default the current axes, and returns it; further
keywords go to matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .rule import Evaluation, Rule

__all__ = ["gap_by_step", "halted_by_step", "p_values", "thresholds"]


def thresholds(rule: Rule, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """The threshold of each step; a gap in the line is never."""
    ax = _axes(ax)
    values = np.where(np.isfinite(rule.thresholds), rule.thresholds, np.nan)
    steps = np.arange(1, len(values) + 1)
    ax.step(steps, values, where="mid", **{"marker": ".", **kwargs})
    ax.set(xlabel="step", ylabel="threshold", xlim=(0.5, len(values) + 0.5), ylim=(0, 1.02))
    return ax


def p_values(rule: Rule, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """The p-value of every test against the step where its rule opens, and delta."""
    ax = _axes(ax)
    opens = [test["opens"] for test in rule.trail]
    ax.plot(opens, rule.p_values, **{"marker": ".", "linestyle": "none", **kwargs})
    ax.axhline(rule.delta, color="0.5", linestyle="--", label=f"δ = {rule.delta:g}")
    ax.set(xlabel="halting opens at step", ylabel="p-value")
    ax.legend()
    return ax


def gap_by_step(
    evaluation: Evaluation, ax: Axes | None = None, *, alpha: float | None = None, **kwargs: Any
) -> Axes:
    """The gap among the sequences halted by each step, with its exact 95% interval, and the
    tolerated gap if `alpha` is given."""
    ax = _axes(ax)
    steps = [step for step in evaluation.by_step if step["gap_by"] is not None]
    t = [step["t"] for step in steps]
    low, high = zip(*(step["gap_by_interval"] for step in steps), strict=True)
    (line,) = ax.plot(t, [step["gap_by"] or 0.0 for step in steps], **kwargs)
    ax.fill_between(t, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    if alpha is not None:
        ax.axhline(alpha, color="0.5", linestyle="--", label=f"α = {alpha:g}")
        ax.legend()
    ax.set(xlabel="step t", ylabel="gap among those halted by t", ylim=(0, None))
    return ax


def halted_by_step(evaluation: Evaluation, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """The share of sequences halted by each step."""
    ax = _axes(ax)
    t = [0] + [step["t"] for step in evaluation.by_step]
    share = [0.0] + [step["halted_by"] / evaluation.n for step in evaluation.by_step]
    ax.step(t, share, where="post", **kwargs)
    ax.set(xlabel="step t", ylabel="halted by t", ylim=(0, 1.02))
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()
