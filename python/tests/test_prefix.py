"""The prefix classifier: alone, under an early classifier, live, and in one file."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

import haltwise
from haltwise import EarlyClassifier, PrefixClassifier
from haltwise._series import collection, fingerprints


@pytest.fixture(scope="module")
def fitted(walks):
    X, y = walks
    return PrefixClassifier().fit(X[:500], y[:500])


@pytest.fixture(scope="module")
def early(walks):
    X, y = walks
    return EarlyClassifier(checkpoints=10).fit(X[:700], y[:700])


def test_it_answers_for_every_prefix(fitted, walks):
    X, y = walks
    X, y = X[500:], y[500:]
    answers = fitted.answers(X)
    assert answers.shape == (500, 20, 2) and answers.dtype == np.float32
    assert np.allclose(answers.sum(axis=2), 1, atol=1e-5)
    for end in (1, 7, 20):
        assert np.array_equal(fitted.predict_proba(X[:, :, :end]), answers[:, end - 1])
    right = fitted.classes_[answers.argmax(axis=2)] == y[:, None]
    assert right[:, -1].mean() > 0.9 > right[:, 0].mean() > 0.5
    assert fitted.score(X, y) == right[:, -1].mean()
    assert set(fitted.predict(X)) == {"down", "up"}


def test_it_keeps_scikit_learns_conventions(fitted, walks):
    X, y = walks
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params() and not hasattr(copy, "classes_")
    with pytest.raises(NotFittedError, match="call fit first"):
        copy.predict(X)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.answers(X), fitted.answers(X))
    flat = X[:120, 0]
    assert cross_val_score(PrefixClassifier(4, trees=10), flat, y[:120], cv=3).mean() > 0.7
    numbers = PrefixClassifier(2).fit(X[:200], np.where(y[:200] == "up", 7, 3))
    assert numbers.predict(X[:5]).dtype.kind == "i" and numbers.classes_.tolist() == [3, 7]


def test_its_answers_about_training_series_are_out_of_sample(walks):
    """Labels drawn by chance cannot be told from series that were left out."""
    X, _ = walks
    y = np.random.default_rng(5).integers(2, size=300)
    fitted = PrefixClassifier([20]).fit(X[:300], y)
    out, known = fitted.fit_traces_, fitted.traces(X[:300], y)
    right = [(traces.probs[:, 0].argmax(axis=1) == y).mean() for traces in (out, known)]
    assert right[0] < 0.62 and right[1] > 0.8
    assert fitted.training_["checkpoints"][0]["accuracy"] == pytest.approx(right[0])


def test_any_number_of_threads_gives_the_same_bits(walks):
    X, y = walks
    made = [PrefixClassifier(5, n_jobs=jobs).fit(X[:100], y[:100]) for jobs in (1, 3, None, -1)]
    for other in made[1:]:
        assert np.array_equal(made[0].answers(X), other.answers(X))
    seeded = PrefixClassifier(5, random_state=1).fit(X[:100], y[:100])
    assert not np.array_equal(made[0].answers(X), seeded.answers(X))


def test_lengths_may_differ_and_values_may_be_missing(walks):
    X, y = walks
    cut = [case[:, :end].copy() for case, end in zip(X, [2, 9, 20, 20] * 250, strict=True)]
    for case in cut:
        case[1, 1] = np.nan
    fitted = PrefixClassifier([4, 8, 16]).fit(cut[:400], y[:400])
    assert fitted.checkpoints_.tolist() == [4, 8, 16]
    # Those that end before the first checkpoint propose nothing.
    assert len(fitted.fit_traces_) == 300 and set(fitted.fit_traces_.lengths) == {2, 3}
    answers = fitted.answers(cut[400:])
    assert (answers[1::4, 2] == answers[1::4, 1]).all() and np.isfinite(answers).all()
    # Before the first checkpoint: how common each class was.
    assert np.allclose(answers[0::4], np.unique(y[:400], return_counts=True)[1] / 400)
    with pytest.raises(ValueError, match="series 1 ends before the first .*, which is at 4"):
        fitted.traces(cut[400:], y[400:])


def test_a_stream_says_what_the_whole_series_does(fitted, walks):
    X, _ = walks
    answers = fitted.answers(X[500:520])
    for case, expected in zip(X[500:520], answers, strict=True):
        stream = fitted.stream()
        assert np.allclose(stream.latest.sum(), 1)
        said = [stream.observe(point) for point in case.T]
        assert np.array_equal(said, expected)
        assert (stream.points, stream.reached) == (20, 20)
        assert stream.observe(case[:, 0]) is None
    with pytest.raises(ValueError, match="channels"):
        fitted.stream().observe(1.0)
    one = PrefixClassifier([3]).fit(X[:50, 0], np.arange(50) % 2).stream()
    assert one.observe(0.5) is None and one.observe(np.nan) is None
    assert one.observe([0.1]).shape == (2,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": ["up"] * 20}, "at least two classes"),
        ({"y": ["up", "down"]}, "2 labels for 20 series"),
        ({"X": np.full((20, 1, 5), np.inf)}, "series 1, time point 1, channel 1 is inf"),
        ({"checkpoints": 0}, "at least 1"),
        ({"checkpoints": [0, 3]}, "must be numbers of time points"),
        ({"checkpoints": [9]}, "give checkpoints up to 5"),
        ({"checkpoints": [2.5]}, "or a list of time points"),
        ({"n_jobs": 0}, "n_jobs must be at least 1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(change, message):
    arguments = {"X": np.random.default_rng(0).normal(size=(20, 1, 5)), "y": ["up", "down"] * 10}
    arguments |= change
    X, y = arguments.pop("X"), arguments.pop("y")
    with pytest.raises(ValueError, match=message):
        PrefixClassifier(**arguments).fit(X, y)


def test_ctrl_c_ends_a_fit():
    program = """if True:
        import haltwise, numpy as np
        X = np.random.default_rng(0).normal(size=(4000, 1, 400))
        print("begun", flush=True)
        try:
            haltwise.PrefixClassifier(400).fit(X, np.arange(4000) % 2)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "begun\n"
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=120)
    assert said.split()[-1:] == ["interrupted"] and run.returncode == 0


def test_an_early_classifier_uses_it_and_every_series_set_aside_certifies(early, walks):
    X, y = walks
    assert isinstance(early.estimators_[0], PrefixClassifier) and early.fold_estimators_ == []
    record = early.rule_.record
    assert record["fitted_on"]["sequences"] == len(early.fit_traces_) == 490
    assert record["certified_on"]["sequences"] == 210
    assert early.checkpoints_.tolist() == list(range(2, 21, 2))
    found = early.evaluate(X[700:], y[700:])
    assert early.rule_.halts_early and found.gap <= 0.1 and found.early_accuracy > 0.8
    # Folds and bases of them are not needed, and are ignored.
    for ignored in (dict(fit_folds=None), dict(ensemble=False), dict(n_jobs=2)):
        same = clone(early).set_params(**ignored).fit(X[:700], y[:700])
        assert same.rule_ == early.rule_
    assert clone(early).set_params(method="marginal").fit(X[:700], y[:700]).fit_traces_ is None


def test_a_base_of_ones_own_choice_is_used(walks):
    X, y = walks
    base = PrefixClassifier(trees=0, n_jobs=1)
    early = EarlyClassifier(base, checkpoints=[5, 10]).fit(X[:300], y[:300])
    assert early.checkpoints_.tolist() == [5, 10, 20]
    assert early.estimators_[0].trees == 0 and base.checkpoints == 32


def test_checkpoints_that_few_training_series_reach_are_left_out(walks):
    X, y = walks
    cut = [case[:, : 20 if i < 5 else 12] for i, case in enumerate(X[:600])]
    early = EarlyClassifier(checkpoints=[4, 12, 16]).fit(cut, y[:600])
    assert early.checkpoints_.tolist() == [4, 12]
    assert early.predict_early(X[600:])[1].all()
    with pytest.raises(ValueError, match="fewer than 10 series reach the first checkpoint"):
        EarlyClassifier(checkpoints=[16]).fit(cut, y[:600])


def test_live_series_are_decided_point_by_point_as_whole_ones_are(early, walks):
    X, _ = walks
    labels, _ = early.predict_early(X[700:])
    probs = early.predict_proba(X[700:])
    ends = early.state_info[:, 3]
    for i, case in enumerate(X[700:760]):
        stream = early.stream()
        assert stream.prediction is None and stream.probabilities is None
        for point in case.T:
            if stream.observe(point):
                break
        assert stream.decided and stream.points == ends[i]
        assert stream.prediction == labels[i]
        assert np.array_equal(stream.probabilities, probs[i])
        assert stream.observe(case[:, 0]) and stream.points == ends[i]
    over = early.stream()
    over.observe(X[700, :, 0])
    over.end()
    assert over.decided and over.prediction in ("down", "up")
    other = EarlyClassifier(LogisticRegression(), checkpoints=4).fit(X[:700], walks[1][:700])
    with pytest.raises(ValueError, match="with another one, show series as they grow"):
        other.stream()
    with pytest.raises(NotFittedError):
        EarlyClassifier().stream()


def test_a_classifier_is_saved_and_loaded(fitted, walks, tmp_path):
    X, y = walks
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    again = PrefixClassifier.load(path)
    assert np.array_equal(again.answers(X), fitted.answers(X))
    assert again.get_params() == fitted.get_params() and again.fit_traces_ is None
    assert again.classes_.dtype == fitted.classes_.dtype
    numbers = PrefixClassifier([5]).fit(X[:100], np.where(y[:100] == "up", 7, 3))
    numbers.save(path)
    assert PrefixClassifier.load(path).predict(X[:5]).dtype == numbers.predict(X[:5]).dtype
    with pytest.raises(FileNotFoundError):
        PrefixClassifier.load(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="bad.safetensors"):
        PrefixClassifier.load(tmp_path / "bad.safetensors")


def test_an_early_classifier_is_one_file(early, walks, tmp_path):
    X, y = walks
    path = tmp_path / "early.safetensors"
    early.save(path)
    again = EarlyClassifier.load(path)
    assert again.rule_ == early.rule_ and again.get_params() == early.get_params()
    for X_ in (X[700:], X[700:, :, :7]):
        assert np.array_equal(again.predict_proba(X_), early.predict_proba(X_))
        for found, expected in zip(again.predict_early(X_), early.predict_early(X_), strict=True):
            assert np.array_equal(found, expected)
    assert np.array_equal(again.state_info, early.state_info)
    assert again.stream().observe(X[700, :, 0]) == early.stream().observe(X[700, :, 0])
    with pytest.raises(ValueError, match="all of these series were given to fit"):
        again.calibrate(*trained(early, X, y))
    assert haltwise.Rule.load(path) == early.rule_
    assert np.array_equal(PrefixClassifier.load(path).answers(X), early.estimators_[0].answers(X))
    early.estimators_[0].save(path)
    with pytest.raises(ValueError, match="it is a model without a rule"):
        EarlyClassifier.load(path)
    other = EarlyClassifier(LogisticRegression(), checkpoints=4).fit(X[:700], y[:700])
    with pytest.raises(ValueError, match="with another one, pickle it"):
        other.save(path)


def trained(early, X, y):
    """The series that trained it."""
    rows = [told in early._trained_on for told in fingerprints(collection(X))]
    return X[rows], y[rows]


def test_the_command_line_reads_the_one_file(early, walks, tmp_path, command):
    X, y = walks
    new = X[700:].astype(np.float32)
    early.save(tmp_path / "early.safetensors")
    np.savez(tmp_path / "new.npz", X=new.transpose(0, 2, 1), y=y[700:])

    def haltwise_(*arguments):
        run = subprocess.run(
            [command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return run.stdout

    haltwise_("score", "early.safetensors", "new.npz", "-o", "traces.npz")
    traces = haltwise.read_traces(tmp_path / "traces.npz")
    expected = early.traces(new, y[700:])
    assert np.array_equal(traces.probs, expected.probs)
    found = json.loads(haltwise_("evaluate", "early.safetensors", "traces.npz", "--json"))
    assert found["t_avg"] == early.evaluate(new, y[700:]).t_avg
    described = json.loads(haltwise_("inspect", "early.safetensors", "--json"))
    assert described["checkpoints"] == early.checkpoints_.tolist()
    assert described["rule"]["alpha"] == 0.1
    # One that the command line trained is read here.
    haltwise_("train", "new.npz", "--checkpoints", "4,20", "-o", "made.safetensors")
    made = PrefixClassifier.load(tmp_path / "made.safetensors")
    assert made.checkpoints_.tolist() == [4, 20] and list(made.classes_) == ["down", "up"]
    same = PrefixClassifier([4, 20]).fit(new, y[700:])
    assert np.array_equal(made.answers(new), same.answers(new))


def test_other_series_may_calibrate_it(walks):
    X, y = walks
    early = EarlyClassifier(calibration_fraction=None, checkpoints=5).fit(X[:500], y[:500])
    assert len(early.fit_traces_) == 500 and not hasattr(early, "rule_")
    early.calibrate(X[500:800], y[500:800])
    record = early.rule_.record
    parts = [record[part]["sequences"] for part in ("fitted_on", "certified_on")]
    assert parts == [500, 300] and early.evaluate(X[800:], y[800:]).gap <= 0.15
