"""The LSTM: trained, scored, saved, interrupted."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import haltwise


@pytest.fixture(scope="module")
def model(walks):
    X, y = walks
    return haltwise.train(X[:300], y[:300], max_epochs=20)


def test_a_model_scores_every_prefix(model, walks):
    X, y = walks
    traces = model.score(X[300:], y[300:])
    assert traces.probs.shape == (700, 20, 2) and traces.scores.shape == (700, 20)
    right = traces.predictions == traces.labels[:, None]
    assert right[:, -1].mean() > 0.9 > right[:, 0].mean()
    rule = haltwise.calibrate(traces)
    assert rule.halts_early


def test_names_go_with_their_probabilities(model, walks):
    X, y = walks
    assert model.classes == ["down", "up"]
    probs, confidence = model.predict_proba(X[300:])
    said = np.array(model.classes)[probs[:, -1].argmax(axis=1)]
    assert (said == y[300:]).mean() > 0.9 and confidence.shape == (700, 20)


def test_series_may_differ_in_length(walks):
    X, y = walks
    cut = [case[:, : 5 + i % 16] for i, case in enumerate(X[:100])]
    model = haltwise.train(cut, y[:100], max_epochs=2)
    traces = model.score(cut, y[:100])
    assert traces.lengths.tolist() == [5 + i % 16 for i in range(100)]


def test_a_model_is_saved_pickled_and_the_same_for_the_same_seed(model, walks, tmp_path):
    X, y = walks
    model.save(tmp_path / "model.safetensors")
    assert haltwise.Model.load(tmp_path / "model.safetensors") == model
    assert pickle.loads(pickle.dumps(model)) == model
    assert haltwise.train(X[:300], y[:300], max_epochs=20) == model
    assert model.training["epochs"] == 20 and "32 units" in repr(model)
    with pytest.raises(FileNotFoundError):
        haltwise.Model.load(tmp_path / "none.pt")


def test_every_epoch_is_told(walks):
    X, y = walks
    told = []
    haltwise.train(X[:50], y[:50], max_epochs=3, progress=lambda *epoch: told.append(epoch))
    assert [epoch[0] for epoch in told] == [1, 2, 3] and all(len(epoch) == 4 for epoch in told)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"y": ["up"] * 20}, "at least two classes|nothing to tell apart"),
        ({"y": ["up", "down"]}, "2 labels for 20 sequences"),
        ({"X": np.full((20, 1, 5), np.nan)}, "series 0, time point 1, channel 1 is NaN"),
        ({"X": np.zeros((20, 1, 0))}, "length 0"),
        ({"X": np.zeros((20, 2, 3, 4))}, "series must be numbers"),
        ({"X": [["a"]] * 20}, "series must be numbers"),
        ({"hidden": 0}, "hidden|at least one"),
        ({"learning_rate": -1.0}, "the learning rate must be a positive number"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(change, message):
    arguments = {"X": np.random.default_rng(0).normal(size=(20, 1, 5)), "y": ["up", "down"] * 10}
    with pytest.raises(ValueError, match=message):
        haltwise.train(**{**arguments, **change})


def test_ctrl_c_ends_training():
    program = """if True:
        import haltwise, numpy as np
        X = np.random.default_rng(0).normal(size=(2000, 1, 50))
        def tell(epoch, *rest):
            print(epoch, flush=True)
        try:
            haltwise.train(X, np.arange(2000) % 2, patience=10_000, progress=tell)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "1\n"
    sent = time.monotonic()
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert said.split()[-1] == "interrupted" and run.returncode == 0
    assert time.monotonic() - sent < 30


def test_a_device_is_chosen_or_refused_by_name(model, walks):
    X, y = walks
    probs, _ = model.predict_proba(X[:20], device="cpu")
    assert (probs == model.predict_proba(X[:20])[0]).all()
    for device, message in [("cuda:99", "cuda:99 cannot be used"), ("gpu", "is no device")]:
        with pytest.raises(ValueError, match=message):
            model.score(X[:20], y[:20], device=device)
        with pytest.raises(ValueError, match=message):
            haltwise.train(X[:50], y[:50], max_epochs=1, device=device)
