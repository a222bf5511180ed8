"""Arrays, tensors and lists, as the border takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def as_array(values: Any) -> Array:
    """Any array-like: NumPy, a list, or anything with ``__array__``."""
    # Tensors with gradients, or on a device, give their numbers only this way.
    for step in ("detach", "cpu"):
        if not isinstance(values, np.ndarray) and callable(getattr(values, step, None)):
            values = getattr(values, step)()
    array = np.asarray(values)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.aligned:
        array = array.copy()
    return array


def is_ragged(values: Any) -> bool:
    """Whether this is a list of arrays or lists of unequal length."""
    if not isinstance(values, (list, tuple)) or not values:
        return False
    if not all(hasattr(row, "__len__") and not isinstance(row, str) for row in values):
        return False
    return len({len(row) for row in values}) > 1


def floats(values: Any, name: str, axes: Sequence[str]) -> tuple[Array, Array | None]:
    """Floats of any width, and the lengths if rows differ in length."""
    array, lengths = _rows(values, name)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.kind == "O":
        array = _numbers(array, name)
    if array.dtype.kind != "f":
        raise ValueError(f"{name} must be numbers, but their type is {array.dtype}")
    if array.dtype.itemsize not in (2, 4, 8):
        array = array.astype(np.float64)
    check_axes(array, name, axes)
    return array, lengths


def _numbers(array: Array, name: str) -> Array:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def natural(value: int | None, name: str) -> int | None:
    """A whole number from 0 that fits 64 bits."""
    if value is not None and not 0 <= value < 2**64:
        raise ValueError(f"{name} must be from 0 to {2**64 - 1}, but {value} was given")
    return value


def check_axes(array: Array, name: str, axes: Sequence[str]) -> None:
    """Refuses an array with more or fewer axes than these."""
    if array.ndim != len(axes):
        wanted = ", ".join(axes)
        raise ValueError(f"{name} must be ({wanted}), but its shape is {array.shape}")


def counts(values: Any, name: str) -> NDArray[np.uint32]:
    """Whole numbers from 0 that fit 32 bits, such as lengths."""
    array = as_array(values)
    check_axes(array, name, ["n"])
    if array.size == 0:
        return np.zeros(0, np.uint32)
    if array.dtype.kind not in "iub":
        raise ValueError(f"{name} must be integers, but their type is {array.dtype}")
    if int(array.min()) < 0 or int(array.max()) >= 2**32:
        raise ValueError(f"{name} must be integers from 0 to {2**32 - 1}")
    return array.astype(np.uint32)


def _rows(values: Any, name: str) -> tuple[Array, Array | None]:
    """Rows padded with zeros to the longest, and their lengths; no lengths if all are
    equal."""
    if not is_ragged(values):
        return as_array(values), None
    rows = [as_array(row) for row in values]
    shapes = {row.shape[1:] for row in rows}
    if len(shapes) > 1:
        raise ValueError(f"{name}: all rows must agree in all but their first axis")
    lengths = np.array([len(row) for row in rows], np.uint32)
    dtype = np.result_type(*rows)
    padded = np.zeros((len(rows), int(lengths.max()), *shapes.pop()), dtype)
    for to, row in zip(padded, rows, strict=True):
        to[: len(row)] = row
    return padded, lengths


def missing(labels: Any) -> NDArray[np.bool_]:
    """Which labels are missing: None, NaN, masked."""
    if isinstance(labels, np.ma.MaskedArray):
        return np.broadcast_to(np.asarray(labels.mask, bool), labels.shape)
    array = as_array(labels)
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind == "O":
        return np.array([value is None or value != value for value in array], bool)
    return np.zeros(array.shape, bool)


def classes_of(
    labels: Any, predictions: Any, classes: Any, probs: bool
) -> tuple[NDArray[np.int64], Array | None, Array | None, Array | None]:
    """Labels and predictions as numbers from 0: the labels (-1 if one is missing), the
    predictions, the lengths if rows of predictions differ in length, and the names of the
    numbers, if any."""
    gone = missing(labels)
    known = as_array(labels)[~gone] if gone.any() else as_array(labels)
    if (
        gone.any()
        and known.dtype.kind == "O"
        and all(isinstance(value, (int, float, np.integer, np.floating)) for value in known)
    ):
        known = known.astype(np.float64)
    numbers, prediction_array, lengths, names = _known_classes(known, predictions, classes, probs)
    all_labels = np.full(gone.shape, -1, np.int64)
    all_labels[~gone] = numbers
    return all_labels, prediction_array, lengths, names


def _known_classes(
    labels: Any, predictions: Any, classes: Any, probs: bool
) -> tuple[NDArray[np.uint32], Array | None, Array | None, Array | None]:
    label_array = whole(as_array(labels))
    check_axes(label_array, "labels", ["n"])
    prediction_array, lengths = None, None
    if predictions is not None:
        prediction_array, lengths = _rows(predictions, "predictions")
        prediction_array = whole(prediction_array)
        check_axes(prediction_array, "predictions", ["n", "T"])
    arrays = [label_array] + ([] if prediction_array is None else [prediction_array])
    arrays = [array for array in arrays if array.size]
    if classes is None:
        if _are_numbers(label_array, prediction_array):
            return counts(label_array, "labels"), prediction_array, lengths, None
        if probs:
            raise ValueError(
                "labels are names, so it is not known which probability is whose; give "
                "classes=[...] in the order of probs"
            )
        _same_kind(arrays)
        names = np.unique(np.concatenate([np.unique(array) for array in arrays]))
    else:
        names = whole(as_array(classes))
        check_axes(names, "classes", ["K"])
        if len(np.unique(names)) != len(names):
            raise ValueError("classes must differ from each other")
        if all(array.dtype.kind in "iub" for array in arrays) and names.dtype.kind == "U":
            # Already numbers of the names.
            return counts(label_array, "labels"), prediction_array, lengths, names
        _same_kind([*arrays, names])
    numbered = numbers_of(label_array, names, "labels")
    if prediction_array is not None:
        ends = prediction_array.shape[1] if lengths is None else lengths[:, None]
        within = np.broadcast_to(
            np.arange(prediction_array.shape[1]) < ends, prediction_array.shape
        )
        found = np.zeros(prediction_array.shape, np.uint32)
        found[within] = numbers_of(prediction_array[within], names, "predictions")
        prediction_array = found
    return numbered, prediction_array, lengths, names


def numbers_of(values: Array, names: Array, what: str) -> NDArray[np.uint32]:
    """The place of each value among the names."""
    if values.size == 0:
        return np.zeros(values.shape, np.uint32)
    order = np.argsort(names)
    at = np.searchsorted(names, values, sorter=order).clip(max=len(names) - 1)
    found: NDArray[np.uint32] = order[at].astype(np.uint32)
    strange = names[found] != values
    if strange.any():
        raise ValueError(f"{what}: {values[strange].flat[0].item()!r} is not one of the classes")
    return found


def whole(array: Array) -> Array:
    """Floats that are whole numbers, as integers: networks often give such labels."""
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError("labels and predictions must be finite")
        if (array == np.floor(array)).all() and (np.abs(array) < 2**53).all():
            return array.astype(np.int64)
    if array.dtype.kind == "O":
        # Names, as in pandas.
        if all(isinstance(value, str) for value in array.flat):
            return array.astype(str)
        raise ValueError("labels and predictions must be integers or strings")
    if array.dtype.kind == "T":
        return array.astype(str)
    if array.dtype.kind not in "iubfU":
        raise ValueError(
            f"labels and predictions must be integers or strings, but their type is {array.dtype}"
        )
    return array


def _are_numbers(labels: Array, predictions: Array | None) -> bool:
    """Whether these are already classes counted from 0; -1 and 1, say, are names."""
    arrays = [labels] if predictions is None else [labels, predictions]
    if any(array.size and array.dtype.kind not in "iub" for array in arrays):
        return False
    return labels.size == 0 or int(labels.min()) >= 0


def _same_kind(arrays: list[Array]) -> None:
    """Refuses strings beside numbers: a label "1" and a prediction 1 would
    never be equal, and a classifier that is never right has no gap."""
    if len({array.dtype.kind == "U" for array in arrays}) > 1:
        raise ValueError(
            "some of labels, predictions and classes are strings and some are numbers; give all "
            "as strings, or all as numbers"
        )
