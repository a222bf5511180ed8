"""The two-head LSTM: train it, score with it, save it, load it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arrays import as_array, check_axes, numbers_of
from ._progress import epochs_bar
from ._series import collection, sequences
from .traces import PathLike, Traces

if TYPE_CHECKING:
    from typing_extensions import Self

EpochProgress = bool | Callable[[int, float, float, float], object]


class Model:
    """A trained network. At every step it gives class probabilities and a confidence: the
    probability that the class it predicts there is right. :func:`train` makes it, or
    :meth:`load` reads it. Picklable."""

    __slots__ = ("_fields", "_inner")
    _inner: _core.Model
    _fields: dict[str, Any]

    def __init__(self) -> None:
        raise TypeError("models are made by haltwise.train or read by Model.load")

    @classmethod
    def _of(cls, core: _core.Model) -> Self:
        model = object.__new__(cls)
        model._inner = core
        model._fields = json.loads(core.describe())
        return model

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Reads a file of :meth:`save` or ``haltwise train``, or a plain PyTorch state dict of
        the same layers. Nothing in the file is run."""
        with open(path, "rb"):
            pass
        return cls._of(_core.Model.load(os.fspath(path)))

    def save(self, path: PathLike) -> None:
        """Writes safetensors, whole or not at all."""
        self._inner.save(os.fspath(path))

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of the probabilities."""
        return list(self._fields["classes"])

    @property
    def shape(self) -> dict[str, Any]:
        """The sizes of the network."""
        return dict(self._fields["shape"])

    @property
    def training(self) -> dict[str, Any] | None:
        """How the model was trained, if that is known."""
        training: dict[str, Any] | None = self._fields["training"]
        return training

    def predict_proba(self, X: Any, *, device: str = "auto") -> tuple[Any, Any]:
        """The class probabilities (n, T, K) and the confidence (n, T) at every step. They are
        zero after a series' own end. ``device`` is as for :func:`train`."""
        found = self._inner.score(sequences(collection(X)), device)
        return found["probs"], found["scores"]

    def score(self, X: Any, y: Any, *, device: str = "auto") -> Traces:
        """Runs the network over every prefix of every series. Use series that did not train
        it: a rule calibrated on training series promises nothing.

        Parameters
        ----------
        X : series, as for :func:`train`
        y : array of (n)
            The true classes.
        device : str
            As for :func:`train`.
        """
        series = collection(X)
        labels = as_array(y)
        check_axes(labels, "y", ["n"])
        if len(labels) != len(series):
            raise ValueError(f"{len(labels)} labels for {len(series)} series")
        found = self._inner.score(sequences(series), device)
        found.pop("gap", None)
        names = np.array(self.classes)
        unequal = (series.lengths != series.timepoints).any()
        return Traces(
            **found,
            labels=numbers_of(labels.astype(str), names, "y"),
            lengths=series.lengths if unequal else None,
            classes=names,
        )

    def __repr__(self) -> str:
        shape = self.shape
        return (
            f"Model({shape['layers']} layers of {shape['hidden']} units, {shape['features']} "
            f"features, {shape['classes']} classes)"
        )

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Model) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Model._of, (self._inner,))


def train(
    X: Any,
    y: Any,
    *,
    hidden: int = 32,
    layers: int = 1,
    gap_head: bool = False,
    gamma: float = 0.2,
    learning_rate: float = 1e-3,
    batch: int = 64,
    patience: int = 30,
    max_epochs: int = 10_000,
    validation_fraction: float = 0.125,
    normalise: bool = True,
    seed: int = 0,
    device: str = "auto",
    progress: EpochProgress = False,
) -> Model:
    """Trains the two-head LSTM, until the validation loss stops improving.

    Parameters
    ----------
    X : array of (n_cases, n_channels, n_timepoints) or (n_cases, n_timepoints), or a list
        The series; a list of (n_channels, n_timepoints) arrays if lengths differ.
    y : array of (n_cases)
        Their classes, numbers or names.
    hidden, layers : int
        Units per recurrent layer, and how many layers.
    gap_head : bool
        Whether to train a head that estimates the gap itself.
    gamma : float
        The weight of the binary losses beside the cross-entropy.
    learning_rate, batch : float, int
        Adam's rate, and sequences per step.
    patience, max_epochs : int
        Stop after this many epochs without improvement, or in all.
    validation_fraction : float
        The share of the series that finds the best epoch.
    normalise : bool
        Whether to scale every channel to mean 0 and deviation 1.
    seed : int
        Decides the validation part, the first weights and the order of the series.
    device : str
        ``"cpu"``; ``"cuda"`` or ``"cuda:1"``, an NVIDIA GPU; or ``"auto"``: a GPU if there is
        one and the network is large enough to gain by it (64 units or more).
    progress : bool or callable
        Show a tqdm bar, or call this after every epoch with its number, the losses in
        training and validation, and the accuracy in validation.

    Returns
    -------
    Model
        The same data and seed give the same bits, at any number of threads. A GPU gives
        other bits, but the same at every run.
    """
    options = {
        "hidden": hidden,
        "layers": layers,
        "gap_head": gap_head,
        "gamma": gamma,
        "learning_rate": learning_rate,
        "batch": batch,
        "patience": patience,
        "max_epochs": max_epochs,
        "validation_fraction": validation_fraction,
        "normalise": normalise,
        "seed": seed,
    }
    labels = as_array(y)
    check_axes(labels, "y", ["n"])
    names, numbers = np.unique(labels, return_inverse=True)
    with epochs_bar(progress) as tell:
        core = _core.Model.train(
            sequences(collection(X)),
            numbers.astype(np.uint32),
            [str(name) for name in names],
            json.dumps(options),
            tell,
            device,
        )
    return Model._of(core)
