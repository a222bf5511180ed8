"""From traces to a rule."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal

from . import _core
from ._arrays import natural
from .rule import Rule
from .traces import Traces, traces_of

Method = Literal["adaptive", "conditional", "marginal", "screen-only"]
Score = Literal["confidence", "max-probability", "margin", "gap"]


def calibrate(
    scores: Any = None,
    predictions: Any = None,
    labels: Any = None,
    *,
    probs: Any = None,
    lengths: Any = None,
    ids: Iterable[str | int] | None = None,
    classes: Any = None,
    alpha: float = 0.1,
    delta: float = 0.01,
    method: Method = "adaptive",
    score: Score | None = None,
    fit: Traces | None = None,
    fit_fraction: float | None = None,
    screen: Traces | None = None,
    screen_fraction: float | None = None,
    seed: int | None = None,
    grid_step: float | None = None,
    at_never: Literal["skip", "stop"] | None = None,
    screen_by: Literal["risk", "p-value"] | None = None,
) -> Rule:
    """Finds a stopping rule and certifies what it may cost.

    With probability 1 - `delta` over the traces, stopping early loses a right
    answer for at most `alpha` of the sequences. The traces must be of sequences
    that the classifier was not trained on.

    Parameters
    ----------
    scores, predictions, labels, probs, lengths, ids, classes
        The traces, as for :class:`Traces`; or a :class:`Traces` in place of `scores`.
    alpha : float
        The tolerated gap: the share of sequences for which stopping early may lose a right answer.
    delta : float
        The probability with which the guarantee may fail.
    method : str
        ``"adaptive"``: a learned score and threshold curves; halts earliest. The gap is
        controlled among the sequences halted by step t, for every t.
        ``"conditional"``: the paper's, with the same promise. ``"marginal"``: the
        paper's; one threshold; the gap is controlled on average. ``"screen-only"``:
        promises nothing.
    score : str, optional
        What says how safe it is to stop: ``"confidence"`` (the scores given),
        ``"max-probability"``, ``"margin"`` (between the two largest probabilities) or
        ``"gap"``, learned from traces set aside. By default what the traces carry; with
        the adaptive method, that or the learned one, whichever promises to halt earlier.
    fit : Traces
        Fit to these (of more than 10,000, so many are drawn) and certify on all others;
        without it, the traces are split.
    fit_fraction : float, default 0.3
        The share of the traces that is set aside to fit to.
    screen : Traces
        With the conditional method: screen on these and certify on all others.
    screen_fraction : float, default 0.5
        With the conditional method: the share of the traces that screens.
    seed : int, default 0
        Draws the split.
    grid_step : float, default 0.01
        With the paper's methods: the distance between the thresholds to choose from.
    at_never : str, default "skip"
        With the conditional method: what the backward walk does where the screened
        threshold is "never": ``"skip"`` goes on, ``"stop"`` ends there as the paper's
        listing does.
    screen_by : str, default "risk"
        With the conditional method: what screening asks of a threshold, that the gap is
        at most alpha (``"risk"``) or that its p-value is at most delta (``"p-value"``).

    Returns
    -------
    Rule
        It equals the rule that ``haltwise calibrate`` writes for the same traces.

    Warns
    -----
    UserWarning
        Nothing could be certified, and why; or other sequences seem to be in two parts.

    Raises
    ------
    ValueError
        The arrays do not fit together, or hold what they should not.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.arange(4000) % 2
    >>> predictions = np.stack([0 * labels, labels, labels], axis=1)
    >>> scores = np.tile([0.2, 0.9, 1.0], (4000, 1))
    >>> rule = calibrate(scores, predictions, labels)
    >>> rule.halt([[0.1, 0.95, 0.99]])
    array([2])
    """
    traces = traces_of(scores, predictions, labels, probs, lengths, ids, classes)
    for name, others in (("fit", fit), ("screen", screen)):
        if others is not None and not isinstance(others, Traces):
            raise ValueError(f"{name} must be haltwise.Traces")
    options = options_of(
        alpha=alpha,
        delta=delta,
        method=method,
        score=score,
        fit_fraction=fit_fraction,
        screen_fraction=screen_fraction,
        seed=seed,
        grid_step=grid_step,
        at_never=at_never,
        screen_by=screen_by,
    )
    return found(_core.calibrate(traces, fit, screen, options))


def options_of(seed: int | None = None, **given: Any) -> dict[str, Any]:
    """The options of a plan, all of them, as the Rust side takes them."""
    names = "method score alpha delta fit_fraction screen_fraction grid_step at_never screen_by"
    return {"seed": natural(seed, "seed"), **{name: given.get(name) for name in names.split()}}


def found(calibrated: tuple[_core.Rule, list[str]], stacklevel: int = 3) -> Rule:
    """The rule, after a word on what should be looked at twice."""
    core, remarks = calibrated
    rule = Rule._of(core)
    for remark in remarks:
        warnings.warn(remark, stacklevel=stacklevel)
    if not core.halts_early():
        warnings.warn(rule.shortfall() or "the rule halts no sequence early", stacklevel=stacklevel)
    return rule
