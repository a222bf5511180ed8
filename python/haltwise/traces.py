"""Traces: what a classifier said about each sequence."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import Array, classes_of, counts, floats, is_ragged, whole
from ._progress import bytes_bar

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

PathLike = Union[str, "os.PathLike[str]"]
Layout = Literal["sequence", "step"]
Progress = bool | Callable[[int, int], object]


class Traces:
    """What a classifier said about a set of sequences: at each step a prediction and a score
    in [0, 1], and the true label if it is known.

    Parameters
    ----------
    scores : array of (n, T), or None
        How safe it looks to stop, at each step. Without it, the step's largest
        probability.
    predictions : array of (n, T), or None
        The predicted class at each step. Without it, the class of the largest
        probability in float32, the first of equals.
    labels : array of (n), or None
        The true class; None or NaN if it is not known.
    probs : array of (n, T, K), or None
        The class probabilities at each step.
    lengths : array of (n), or None
        How many steps each sequence has, if not all have T.
    ids : sequence of str or int, or None
        The names of the sequences. An id decides on which side of a split its sequence
        falls; without ids, its position does.
    classes : sequence of K names, or None
        The classes in the order of `probs`; needed if labels are names and `probs` is
        given.
    losses : array of (n, T), or None
        The loss of stopping at each step, in [0, 1], for the loss ``"given"``.
    regression : bool
        Predictions and labels are numbers, not classes, for the loss ``"absolute"``.
    columns : dict of arrays, or None
        Further columns by name, for ``by=``, ``unit=``, ``weight=`` (a value per sequence)
        and ``cost=`` (a value per step).

    Classes are integers from 0, or names. Arrays may be NumPy's, tensors or lists, of any
    float or integer type. Lists may hold rows of unequal length. Contiguous arrays are not
    copied.

    Examples
    --------
    >>> traces = Traces(scores=[[0.2, 0.9], [0.6, 0.7]],
    ...                 predictions=[["no", "yes"], ["no", "no"]], labels=["yes", "no"])
    >>> traces
    Traces(2 sequences of 2 steps, 2 classes)
    """

    labels: NDArray[np.int64]
    predictions: Array | None
    scores: Array | None
    probs: Array | None
    lengths: NDArray[np.uint32] | None
    ids: list[str] | None
    classes: Array | None
    numbers: Array | None
    truth: NDArray[np.float32] | None
    losses: Array | None
    columns: dict[str, Any]
    # The columns that a promise uses.
    groups: list[str] | None = None
    units: list[str] | None = None
    weights: NDArray[np.float64] | None = None
    costs: Array | None = None

    def __init__(
        self,
        scores: Any = None,
        predictions: Any = None,
        labels: Any = None,
        *,
        probs: Any = None,
        lengths: Any = None,
        ids: Iterable[str | int] | None = None,
        classes: Any = None,
        losses: Any = None,
        regression: bool = False,
        columns: dict[str, Any] | None = None,
    ) -> None:
        steps = losses if predictions is None else predictions
        if probs is None and (scores is None or steps is None):
            raise ValueError("give either probs, or both scores and predictions")
        found: list[Array | None] = [None if lengths is None else counts(lengths, "lengths")]
        self.scores, self.probs = None, None
        if scores is not None:
            self.scores, ends = floats(scores, "scores", ["n", "T"])
            found.append(ends)
        if probs is not None:
            self.probs, ends = floats(probs, "probs", ["n", "T", "K"])
            found.append(ends)
        self.losses, self.numbers, self.truth = None, None, None
        if losses is not None:
            self.losses, ends = floats(losses, "losses", ["n", "T"])
            found.append(ends)
        n = len(next(rows for rows in (self.scores, self.probs) if rows is not None))
        if regression:
            if predictions is None or labels is None:
                raise ValueError("a regression needs predictions and labels: a number each")
            self.numbers, ends = floats(predictions, "predictions", ["n", "T"])
            self.truth = floats(labels, "labels", ["n"])[0].astype(np.float32)
            self.labels, self.predictions = np.full(n, -1, np.int64), None
            self.classes = None if classes is None else np.asarray(classes)
        else:
            if labels is None:
                labels = np.full(n, np.nan)
            self.labels, self.predictions, ends, self.classes = classes_of(
                labels, predictions, classes, probs is not None
            )
        found.append(ends)
        self.columns = {name: _column(values, name) for name, values in (columns or {}).items()}
        self.lengths = _one_of(found)
        self.ids = None if ids is None else [str(id) for id in ids]
        if self.probs is None or self.classes is None:
            return
        if len(self.classes) != self.probs.shape[2]:
            raise ValueError(
                f"{len(self.classes)} classes but {self.probs.shape[2]} probabilities per step"
            )

    @property
    def t_max(self) -> int:
        """The number of steps of the longest sequence."""
        if self.lengths is not None and len(self.lengths):
            return int(self.lengths.max())
        return int(self._steps().shape[1])

    def _steps(self) -> Array:
        """An array with a row per sequence and a column per step."""
        for array in (self.scores, self.predictions, self.probs, self.losses):
            if array is not None:
                return array
        raise AssertionError("traces have scores or probs")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: Any) -> Traces:
        """The sequences at these positions: a slice, a mask or an array."""
        if isinstance(which, (int, np.integer)):
            which = [which]
        which = np.arange(len(self))[which]
        part = object.__new__(Traces)
        part.labels = self.labels[which]
        arrays = "predictions scores probs lengths numbers truth losses"
        for name in arrays.split():
            array = getattr(self, name)
            setattr(part, name, None if array is None else array[which])
        part.ids = None if self.ids is None else [self.ids[i] for i in which]
        part.classes = self.classes
        part.columns = {name: values[which] for name, values in self.columns.items()}
        return part

    def _class_names(self) -> list[str] | None:
        """The names of the classes in the order of the probabilities, if they were given."""
        if self.classes is None or self.probs is None:
            return None
        return [str(name) for name in whole(self.classes)]

    def _with(self, **more: Any) -> Traces:
        """The same traces, with these columns."""
        same = copy.copy(self)
        same.columns = {**self.columns, **more}
        return same

    def _held_to(self, terms: dict[str, Any], lenient: bool) -> Traces:
        """The same traces with the columns that a rule or candidates use."""
        loss = terms.get("loss", "gap")
        return self._for(
            loss=loss if isinstance(loss, str) else "absolute",
            by=terms.get("by"),
            unit=terms.get("unit"),
            weight=terms.get("weight", {}).get("column"),
            cost=terms.get("cost", {}).get("column"),
            lenient=lenient,
        )

    def _for(
        self,
        *,
        loss: str | None = None,
        by: str | None = None,
        unit: str | None = None,
        weight: str | None = None,
        cost: str | None = None,
        lenient: bool = False,
    ) -> Traces:
        """The same traces with the columns that a promise uses."""
        same = copy.copy(self)

        def column(name: str | None) -> Any:
            if name is None or (lenient and name not in self.columns):
                return None
            if name not in self.columns:
                known = ", ".join(self.columns) or "none"
                raise ValueError(
                    f"there is no column {name!r}; give it in columns={{...}}, or as an array. "
                    f"There are: {known}"
                )
            return self.columns[name]

        if loss != "given":
            same.losses = None
        groups = None if by == "label" else column(by)
        if by == "label" and self.classes is not None and self.probs is None:
            groups = [str(self.classes[label]) if label >= 0 else "" for label in self.labels]
            if "" in groups:
                groups = None
        same.groups = None if groups is None else _texts(groups, by)
        units = column(unit)
        same.units = None if units is None else _texts(units, unit)
        weights = column(weight)
        if weights is not None:
            same.weights = floats(weights, str(weight), ["n"])[0].astype(np.float64)
        costs = column(cost)
        if costs is not None:
            same.costs = floats(costs, str(cost), ["n", "T"])[0]
        return same

    def __repr__(self) -> str:
        few = "" if self.lengths is None else "up to "
        text = f"Traces({len(self):,} sequences of {few}{self.t_max} steps"
        if self.probs is not None:
            return f"{text}, {self.probs.shape[2]} probabilities each)"
        return f"{text}, {len(self.classes)} classes)" if self.classes is not None else f"{text})"

    @classmethod
    def from_arrow(cls, table: Any, **columns: Any) -> Traces:
        """Traces from a pyarrow table, record batch or reader, or anything else with Arrow's
        C interface. The columns are those of a trace file. Name further columns as for
        :func:`read_traces`."""
        import pyarrow as pa

        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            table = pa.table(table)
        return cls._from_stream("the Arrow table", _stream(table), columns)

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame, **columns: Any) -> Traces:
        """Traces from a pandas frame with one row per sequence (`label`, and the lists
        `predictions` and `scores`, or `probs`; optionally `id`) or one row per step (`id`,
        `t`, `label`, `prediction`, `score`). Name further columns as for
        :func:`read_traces`."""
        import pyarrow as pa

        if "probs" in frame.columns:
            # Arrow takes lists of lists, not arrays of two axes.
            frame = frame.assign(probs=[np.asarray(p).tolist() for p in frame["probs"]])
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return cls._from_stream("the data frame", _stream(table), columns)

    @classmethod
    def from_polars(cls, frame: pl.DataFrame, **columns: Any) -> Traces:
        """Traces from a polars frame, with the columns of :meth:`from_pandas`."""
        buffer = io.BytesIO()
        frame.write_ipc_stream(buffer)
        return cls._from_stream("the data frame", buffer.getvalue(), columns)

    @classmethod
    def _from_stream(cls, name: str, stream: bytes, columns: dict[str, Any]) -> Traces:
        return cls(**_known(_core.read_arrow(name, stream, _asked(**columns))))

    def to_pandas(self, rows: Layout = "sequence") -> pd.DataFrame:
        """A pandas frame with a row per sequence, or a row per step. Classes are names; beside
        probabilities they are numbers."""
        import pandas as pd

        return pd.DataFrame(self._columns(rows))

    def to_polars(self, rows: Layout = "sequence") -> pl.DataFrame:
        """A polars frame with a row per sequence, or a row per step."""
        import polars as pl

        return pl.DataFrame(self._columns(rows))

    def to_arrow(self, rows: Layout = "sequence") -> pa.Table:
        """A pyarrow table with a row per sequence, or a row per step."""
        import pyarrow as pa

        return pa.table(self._columns(rows))

    def _judged(self) -> NDArray[np.float32]:
        """The probabilities in float32, as rules judge them. Classes that differ in float64
        may be equal here; then the first counts."""
        assert self.probs is not None
        return self.probs.astype(np.float32, copy=False)

    def _named_labels(self, named: Callable[[Any], Any]) -> Any:
        """Labels by name or number; None if one is missing."""
        if not (self.labels < 0).any():
            return named(self.labels)
        return [None if label < 0 else named(label) for label in self.labels]

    def _columns(self, rows: Layout) -> dict[str, Any]:
        if rows not in ("sequence", "step"):
            raise ValueError(f"rows must be 'sequence' or 'step', but {rows!r} was given")
        # Beside probabilities classes are numbers: a name would not say which column is its.
        names = self.classes if self.probs is None or rows == "step" else None
        named = (lambda array: array) if names is None else (lambda array: names[array])
        n, width = self._steps().shape[:2]
        lengths = np.full(n, width) if self.lengths is None else self.lengths
        scores, predictions = self.scores, self.predictions
        if scores is None and rows == "step":
            scores = self._judged().max(axis=2).clip(max=1)
        if predictions is None and (rows == "step" or scores is not None):
            predictions = self._judged().argmax(axis=2)
        if rows == "step":
            within = np.arange(width) < lengths[:, None]
            sequence, t = np.nonzero(within)
            ids = self.ids if self.ids is not None else [str(i) for i in range(n)]
            assert scores is not None and predictions is not None
            return {
                "id": np.asarray(ids, dtype=object)[sequence] if n else [],
                "t": t + 1,
                "label": np.asarray(self._named_labels(named), dtype=object)[sequence]
                if (self.labels < 0).any()
                else named(self.labels)[sequence],
                "prediction": named(predictions[within].astype(np.int64)),
                "score": scores[within],
            }
        columns: dict[str, Any] = {} if self.ids is None else {"id": self.ids}
        columns["label"] = self._named_labels(named)
        cut = list(zip(range(n), lengths, strict=True))
        if predictions is not None:
            columns["predictions"] = [
                named(predictions[i, :end].astype(np.int64)).tolist() for i, end in cut
            ]
        if scores is not None:
            columns["scores"] = [scores[i, :end] for i, end in cut]
        if self.probs is not None:
            columns["probs"] = [self.probs[i, :end].tolist() for i, end in cut]
        return columns


def _one_of(found: list[Array | None]) -> NDArray[np.uint32] | None:
    """The lengths, from the arrays that have them; all must agree."""
    told = [lengths for lengths in found if lengths is not None]
    for lengths in told[1:]:
        if not np.array_equal(told[0], lengths):
            raise ValueError("scores, predictions, probs and lengths disagree about the lengths")
    return told[0].astype(np.uint32) if told else None


def _stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _column(values: Any, name: str) -> Any:
    """A column: a value per sequence, or one per step."""
    return floats(values, name, ["n", "T"])[0] if is_ragged(values) else np.asarray(values)


def _texts(values: Any, name: str | None) -> list[str]:
    """The names of groups or units."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iubUOT":
        raise ValueError(f"{name} must be strings, integers or booleans, one per sequence")
    texts = [str(value).lower() if array.dtype.kind == "b" else str(value) for value in array]
    for i, value in enumerate(array):
        if value is None or value != value or not texts[i]:
            raise ValueError(f"row {i + 1}, {name}: it is empty; fill it in, or drop the sequence")
    return texts


def _asked(
    *,
    by: str | None = None,
    unit: str | None = None,
    weight: str | None = None,
    cost: str | None = None,
    losses: bool = False,
    regression: bool = False,
) -> dict[str, Any]:
    return {
        "by": by,
        "unit": unit,
        "weight": weight,
        "cost": cost,
        "losses": losses,
        "regression": regression,
    }


def _known(arguments: dict[str, Any]) -> dict[str, Any]:
    """Labels as users give them: NaN if one is missing."""
    labels = arguments.get("labels")
    if labels is not None and labels.dtype.kind == "i":
        gone = labels < 0
        arguments["labels"] = np.where(gone, np.nan, labels) if gone.any() else labels
    return arguments


def read_traces(
    paths: PathLike | Iterable[PathLike],
    *,
    by: str | None = None,
    unit: str | None = None,
    weight: str | None = None,
    cost: str | None = None,
    losses: bool = False,
    regression: bool = False,
    progress: Progress = False,
) -> Traces:
    """Reads trace files (``.npz``, ``.parquet``, ``.arrow``, ``.jsonl``, ``.csv``), also
    several as one set.

    Parameters
    ----------
    paths : path, or several
    by, unit, weight, cost : str, optional
        The names of further columns to read; see :func:`calibrate`.
    losses : bool
        Read ``losses``, one per step.
    regression : bool
        Predictions and labels are numbers, not classes.
    progress : bool or callable
        Show a tqdm bar, or call this with the bytes done and the bytes in all.

    Returns
    -------
    Traces

    Raises
    ------
    ValueError
        The problem, the file and the place.
    OSError
        A file is missing or may not be read.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    files = [os.fspath(path) for path in paths]
    for file in files:
        # Python's own exception for a file that cannot be opened.
        with open(file, "rb"):
            pass
    asked = _asked(by=by, unit=unit, weight=weight, cost=cost, losses=losses, regression=regression)
    with bytes_bar(progress, "reading traces") as tell:
        return Traces(**_known(_core.read_traces(files, asked, tell)))


def write_traces(path: PathLike, traces: Traces, *, rows: Layout = "sequence") -> None:
    """Writes a trace file, whole or not at all, in the format of its extension.

    Classes are written as numbers. `rows` is the layout of Parquet and Arrow files: a row
    per sequence, or a row per step.
    """
    if rows not in ("sequence", "step"):
        raise ValueError(f"rows must be 'sequence' or 'step', but {rows!r} was given")
    _core.write_traces(os.fspath(path), traces, rows == "step")


def traces_of(
    scores: Any,
    predictions: Any,
    labels: Any,
    probs: Any,
    lengths: Any,
    ids: Any = None,
    classes: Any = None,
    losses: Any = None,
    regression: bool = False,
) -> Traces:
    """The traces that the user gave, as such or as arrays."""
    if isinstance(scores, Traces):
        others = (predictions, labels, probs, lengths, ids, classes, losses)
        if any(other is not None for other in others):
            raise ValueError("give traces alone, or arrays alone")
        return scores
    return Traces(
        scores,
        predictions,
        labels,
        probs=probs,
        lengths=lengths,
        ids=ids,
        classes=classes,
        losses=losses,
        regression=regression,
    )
