"""What tests share: simulated traces, and the golden files where there are any."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import haltwise

ROOT = Path(__file__).resolve().parents[2]


def simulated(n: int, seed: int = 0, steps: int = 10, classes: int = 3) -> haltwise.Traces:
    """Traces of a classifier that gets surer, and right more often, as it reads on."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    sure = np.clip(np.linspace(0.3, 1, steps) + rng.normal(0, 0.15, (n, steps)), 0, 1)
    right = rng.random((n, steps)) < 0.4 + 0.6 * sure
    predictions = np.where(right, labels[:, None], (labels[:, None] + 1) % classes)
    return haltwise.Traces(sure.astype(np.float32), predictions, labels)


@pytest.fixture(scope="session")
def traces() -> haltwise.Traces:
    return simulated(4000)


@pytest.fixture(scope="session")
def rule(traces: haltwise.Traces) -> haltwise.Rule:
    return haltwise.calibrate(traces, method="conditional")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of golden files, beside the one that HALTWISE_DATA names."""
    data = os.environ.get("HALTWISE_DATA")
    folder = Path(data or "") / "../golden"
    if not data or not folder.is_dir():
        pytest.skip("no golden files; set HALTWISE_DATA to the folder beside them")
    return folder


@pytest.fixture(scope="session")
def walks() -> tuple[np.ndarray, np.ndarray]:
    """Series that drift up or down: (n_cases, n_channels, n_timepoints) and names."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(["down", "up"], 500))
    drift = np.where(y == "up", 0.6, -0.6)[:, None, None]
    return np.cumsum(drift + rng.normal(size=(1000, 2, 20)), axis=2), y


@pytest.fixture(scope="session")
def command() -> str:
    """The haltwise binary that the Rust tests built."""
    path = Path(os.environ.get("HALTWISE_BINARY", ROOT / "target/debug/haltwise"))
    if not path.exists():
        pytest.skip("the haltwise binary is not built; cargo build makes it")
    return str(path)
