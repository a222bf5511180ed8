"""Series with their classes, as scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ._arrays import Array, as_array
from ._series import Collection, collection


def labelled(X: Any, y: Any) -> tuple[Collection, Array]:
    """Series with their classes."""
    if y is None:
        raise ValueError("it requires y to be passed, but the target y is None")
    series = collection(X)
    labels = column_or_1d(as_array(y), warn=True)
    if len(labels) != len(series):
        raise ValueError(f"{len(labels)} labels for {len(series)} series")
    for what, of in (("sample", len(series)), ("feature", series.timepoints)):
        if not of:
            raise ValueError(
                f"there is nothing to learn from 0 {what}(s) (shape={np.shape(X)}) while a "
                "minimum of 1 is required."
            )
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        labels = labels.astype(str)
    check_classification_targets(labels)
    return series, labels


def classes_of(labels: Array) -> Array:
    """The classes to tell apart, of which there must be two."""
    classes: Array = np.unique(labels)
    if len(classes) < 2:
        found = classes[0].item()
        raise ValueError(f"a classifier needs at least two classes, but y has one class, {found!r}")
    return classes


def shares_of(labels: Array, classes: Array) -> NDArray[np.float32]:
    """How common each class is."""
    counts = np.bincount(np.searchsorted(classes, labels), minlength=len(classes))
    return (counts / len(labels)).astype(np.float32)


def parts_of(labels: Array, share: float, seed: int) -> tuple[Array, Array]:
    """The rows to train on, and those to calibrate on."""
    # scikit-learn would take 2 for a number of series.
    if not 0 < share < 1:
        raise ValueError(
            "calibration_fraction must lie strictly between 0 and 1, or be None to calibrate "
            f"later, but {share} was given"
        )
    # Not by class: the guarantee needs independent draws, and fixed shares of the classes
    # would tie the series to each other.
    rows, aside = train_test_split(np.arange(len(labels)), test_size=share, random_state=seed)
    missing = np.setdiff1d(labels, labels[rows]).tolist()
    if missing:
        name = missing[0]
        raise ValueError(
            f"class {name!r} has no series among the {len(rows)} to train on: all of its "
            f"{np.sum(labels == name)} were drawn to calibrate on; give more series of it, "
            "or train on all series (calibration_fraction=None) and calibrate on others"
        )
    return np.sort(rows), np.sort(aside)


def folds_of(labels: Array, folds: int, seed: int) -> list[Array]:
    """The rows of each fold, drawn at random, with each class spread over all folds. Series
    that propose may be tied to each other, unlike those that certify."""
    if folds < 2:
        raise ValueError(
            f"fit_folds must be at least 2, or None for no folds, but {folds} was given"
        )
    drawn = np.random.default_rng(seed).permutation(len(labels))
    drawn = drawn[np.argsort(labels[drawn], kind="stable")]
    return [np.sort(drawn[k::folds]) for k in range(folds)]
