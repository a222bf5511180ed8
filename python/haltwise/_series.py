"""Series as in aeon: (n_cases, n_channels, n_timepoints), or a list of
(n_channels, n_timepoints) arrays if lengths differ."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import Array, as_array, check_axes

#: The bytes of a fingerprint.
DIGEST = 16


@dataclass(frozen=True)
class Collection:
    """Series of known lengths, padded with zeros to the longest."""

    cases: Array
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def channels(self) -> int:
        """Numbers per time point."""
        return int(self.cases.shape[1])

    @property
    def timepoints(self) -> int:
        """The length of the longest series."""
        return int(self.cases.shape[2])

    def __getitem__(self, which: Any) -> Collection:
        return Collection(self.cases[which], self.lengths[which])


@dataclass(frozen=True)
class Sequences:
    """The same as the network reads them: (n, steps, features)."""

    values: NDArray[np.float32]
    lengths: NDArray[np.uint32] | None


def collection(X: Any) -> Collection:
    """Series from an array of two or three axes, or a list of arrays."""
    if isinstance(X, Collection):
        return X
    if isinstance(X, (list, tuple)) and X and all(np.ndim(case) == 2 for case in X):
        return _padded([as_array(case) for case in X])
    try:
        cases = as_array(X)
    except ValueError:
        rows = [np.atleast_2d(as_array(case)) for case in X]
        return _padded(rows)
    if cases.ndim == 2:
        cases = cases[:, None, :]
    if cases.ndim != 3 or cases.dtype.kind not in "iubf":
        raise ValueError(
            "series must be numbers, (n_cases, n_channels, n_timepoints) or a list of "
            f"(n_channels, n_timepoints) arrays, but shape {cases.shape} of {cases.dtype} was given"
        )
    return Collection(cases, np.full(len(cases), cases.shape[2], np.int64))


def _padded(cases: list[Array]) -> Collection:
    channels = {case.shape[0] for case in cases}
    if len(channels) > 1 or any(case.ndim != 2 for case in cases):
        raise ValueError("all series must have the same number of channels")
    lengths = np.array([case.shape[1] for case in cases], np.int64)
    padded = np.zeros((len(cases), channels.pop(), int(lengths.max())), np.result_type(*cases))
    for to, case in zip(padded, cases, strict=True):
        to[:, : case.shape[1]] = case
    return Collection(padded, lengths)


def sequences(series: Collection) -> Sequences:
    """Series as the network reads them."""
    values = np.ascontiguousarray(series.cases.transpose(0, 2, 1), np.float32)
    if (series.lengths == series.timepoints).all():
        return Sequences(values, None)
    return Sequences(values, series.lengths.astype(np.uint32))


def labelled(X: Any, y: Any) -> tuple[Collection, Array]:
    """Series with their classes."""
    series, labels = collection(X), as_array(y)
    check_axes(labels, "y", ["n"])
    if len(labels) != len(series):
        raise ValueError(f"{len(labels)} labels for {len(series)} series")
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    return series, labels


def fingerprints(series: Collection) -> list[bytes]:
    """A digest of each series' numbers, for any type and padding."""
    with np.errstate(over="ignore"):
        prefixes = (
            case[:, :end].astype(np.float32).tobytes()
            for case, end in zip(series.cases, series.lengths, strict=True)
        )
        return [blake2b(prefix, digest_size=DIGEST).digest() for prefix in prefixes]
