"""What can be asked of a calibration, as the heart declares it.

Not to be edited: `HALTWISE_WRITE=1 cargo test -p haltwise-cli --bin haltwise reference` writes this
file, and the same test compares it with the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypedDict

Method = Literal["adaptive", "marginal", "conditional", "screen-only"]
Score = Literal["confidence", "max-probability", "margin", "gap"]
ScreenBy = Literal["risk", "p-value"]
LabelCheck = Literal["refuse", "skip"]
Purpose = Literal["use", "explore"]
Promise = Literal["halted-by", "average"]
Loss = Literal["gap", "disagreement", "given", "absolute"]


class Options(TypedDict, total=False):
    """Options by name; None asks for what is usual."""

    method: Method | None
    score: Score | None
    fit_fraction: float | None
    screen_fraction: float | None
    seed: int | None
    alpha: float | None
    delta: float | None
    grid_step: float | None
    screen_by: ScreenBy | None
    label_check: LabelCheck | None
    purpose: Purpose | None
    promise: Promise | None
    loss: Loss | None
    scale: float | None
    by: Any
    unit: Any
    weight: Any
    weight_bound: float | None
    cost: Any
    looks: Sequence[int] | None


class Option(NamedTuple):
    """One option, for signatures and docstrings."""

    annotation: str
    default: Any
    doc: str


#: All that `calibrate` takes.
OPTIONS: dict[str, Option] = {
    "method": Option(
        "Method | None",
        "adaptive",
        """\
method : str, default "adaptive"
    How to find the rule.
    ``"adaptive"``: A learned score and threshold curves; halts earliest. It bounds the gap
    among the sequences halted by any step, or as `promise` says.
    ``"marginal"``: The paper's method with one threshold; it bounds the gap on average over
    all sequences.
    ``"conditional"``: The paper's method with a threshold per step; it bounds the gap among
    the sequences halted by any step.
    ``"screen-only"``: The conditional method without its tests: promises nothing, for
    comparison.
""",
    ),
    "score": Option(
        "Score | None",
        None,
        """\
score : str, optional
    The score, which says how safe it is to stop. By default the score of the traces; with
    the method adaptive, that or the learned one, whichever promises to halt earlier.
    ``"confidence"``: The score that the traces carry.
    ``"max-probability"``: The largest class probability.
    ``"margin"``: The largest class probability less the second largest.
    ``"gap"``: The probability that stopping costs nothing, learned from traces that are set
    aside.
""",
    ),
    "fit_fraction": Option(
        "float | None",
        None,
        """\
fit_fraction : float, default 0.3
    The share of the traces that is set aside to fit to, if no others are given.
""",
    ),
    "screen_fraction": Option(
        "float | None",
        None,
        """\
screen_fraction : float, default 0.5
    With the method conditional: the share of the traces that screens, if no others are
    given.
""",
    ),
    "seed": Option(
        "int | None",
        None,
        """\
seed : int, default 0
    The seed that draws the parts, if the traces are split.
""",
    ),
    "alpha": Option(
        "float | None",
        0.1,
        """\
alpha : float, default 0.1
    The tolerated gap: the share of sequences for which stopping early may lose a right
    answer.
""",
    ),
    "delta": Option(
        "float | None",
        0.01,
        """\
delta : float, default 0.01
    The probability with which the guarantee may fail.
""",
    ),
    "grid_step": Option(
        "float | None",
        None,
        """\
grid_step : float, default 0.01
    The distance between the thresholds that the paper's methods choose from.
""",
    ),
    "screen_by": Option(
        "ScreenBy | None",
        None,
        """\
screen_by : str, default "risk"
    With the methods conditional and screen-only: how to choose a threshold.
    ``"risk"``: The smallest threshold whose gap among the screening traces is at most
    alpha.
    ``"p-value"``: The smallest threshold whose p-value on the screening traces is at most
    delta.
""",
    ),
    "label_check": Option(
        "LabelCheck | None",
        "refuse",
        """\
label_check : str, default "refuse"
    What to do if labels and predictions agree less often than chance.
    ``"refuse"``: Refuse traces whose labels agree with the predictions less often than
    chance: they are probably numbered in another way.
    ``"skip"``: Use them: the classifier is that weak.
""",
    ),
    "purpose": Option(
        "Purpose | None",
        None,
        """\
purpose : str, default "use"
    What the rule is for.
    ``"use"``: To be used: the promise is meant.
    ``"explore"``: To compare settings on the same traces, as cross-validation does: the
    rule promises nothing.
""",
    ),
    "promise": Option(
        "Promise | None",
        None,
        """\
promise : str, default "halted-by"
    With the method adaptive: which sequences the promise covers.
    ``"halted-by"``: Among the sequences halted by step t, for every t.
    ``"average"``: On average over all sequences; halts earlier, and may lose more among
    early halts.
""",
    ),
    "loss": Option(
        "Loss | None",
        "gap",
        """\
loss : str, default "gap"
    The loss that stopping early may cause.
    ``"gap"``: The full prediction is right and the early one is wrong; labels may be
    missing.
    ``"disagreement"``: The early prediction differs from the full one; needs no labels.
    ``"given"``: The losses that come with the traces, in [0, 1] at each step.
    ``"absolute"``: How much further from the true number the early prediction is than the
    full one, in units of `scale`.
""",
    ),
    "scale": Option(
        "float | None",
        None,
        """\
scale : float, optional
    With the loss absolute: how much further from the truth counts as a loss of 1.
""",
    ),
    "by": Option(
        "Any",
        None,
        """\
by : str or array of (n), optional
    Guarantee the promise separately for each value of this column, such as a hospital or a
    device, or for each true class (`label`).
""",
    ),
    "unit": Option(
        "Any",
        None,
        """\
unit : str or array of (n), optional
    Count all sequences with the same value in this column, such as a patient or a driver,
    as one draw. They are split and certified as a whole.
""",
    ),
    "weight": Option(
        "Any",
        None,
        """\
weight : str or array of (n), optional
    Guarantee the promise for a declared shift. This column says how much more often each
    sequence occurs where the rule will be used.
""",
    ),
    "weight_bound": Option(
        "float | None",
        None,
        """\
weight_bound : float, optional
    With `weight`: the largest weight allowed. With bound B and a mean weight of 1, about
    one trace in B is used.
""",
    ),
    "cost": Option(
        "Any",
        None,
        """\
cost : str, array of (n, T), or array of (T), optional
    The cost of reading a step: a column with a cost per step, or costs such as 1,1,4. The
    last cost applies to all later steps. The rule then minimises the cost instead of the
    halt time. By default every step as much.
""",
    ),
}

#: What evidence that is gathered apart from calibrating takes beside those.
EVIDENCE: dict[str, Option] = {
    "looks": Option(
        "Sequence[int] | None",
        None,
        """\
looks : sequence of int, optional
    Certify when the number of traces reaches each N. N includes the traces used to propose
    rules. The last look has 70% of `delta`. The earlier ones share the rest.
""",
    ),
}
