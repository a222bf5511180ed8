"""What scikit-learn, aeon, sktime and tslearn ask of an estimator. `docs/python.md` lists the
checks that cannot pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from tslearn.early_classification import NonMyopicEarlyClassifier
from tslearn.utils import to_time_series_dataset

from haltwise import LSTM, EarlyClassifier, PrefixClassifier
from haltwise.aeon import AeonEarlyClassifier
from haltwise.sktime import SktimeEarlyClassifier
from haltwise.tslearn import TslearnEarlyClassifier

#: The checks fit to a few dozen series, which certify nothing.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the rule halts no sequence early"),
    pytest.mark.filterwarnings("ignore:at the last step the predictions"),
]

#: The checks that cannot pass.
SCIKIT_LEARN = {
    "check_n_features_in_after_fitting": "fewer time points are the beginning of a series",
}
AEON = {"check_non_state_changing_method"}
SKTIME = {
    "test_non_state_changing_method_contract",
    "test_fit_idempotent",
    "test_persistence_via_pickle",
    "test_save_estimators_to_file",
}


def test_the_docs_list_the_checks_that_cannot_pass():
    told = re.findall(r"`((?:check|test)_\w+)`", (ROOT / "docs/python.md").read_text())
    assert set(told) - {"check_estimator"} == SCIKIT_LEARN.keys() | AEON | SKTIME


@parametrize_with_checks(
    [
        EarlyClassifier(),
        EarlyClassifier(LogisticRegression(), checkpoints=2, fit_folds=None),
        PrefixClassifier(),
        LSTM(max_epochs=200),
    ],
    expected_failed_checks=lambda estimator: SCIKIT_LEARN,
    xfail_strict=True,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_scikit_learns_check_of_the_array_api():
    """SciPy reads the variable when it is loaded. Without it, the check is skipped above."""
    program = """if True:
        from haltwise import EarlyClassifier, PrefixClassifier
        from sklearn.utils.estimator_checks import check_array_api_input
        for estimator in (EarlyClassifier(), PrefixClassifier()):
            check_array_api_input(type(estimator).__name__, estimator, "numpy",
                expect_only_array_outputs=False)
        print("passed")
    """
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "passed\n"


def refused(results):
    """Why checks did not pass, by their names."""
    failed = {name: str(found) for name, found in results.items() if found != "PASSED"}
    return {name.split("[")[0].split("(")[0]: why for name, why in failed.items()}


def test_aeons_checks():
    from aeon.testing.estimator_checking import check_estimator

    results = check_estimator(AeonEarlyClassifier)
    found = refused(results)
    assert len(results) > 20 and set(found) == AEON, found
    assert "changed attributes: ['early_', 'state_info']" in found.popitem()[1]


def test_sktimes_checks():
    from sktime.utils.estimator_checks import check_estimator

    results = check_estimator(SktimeEarlyClassifier, verbose=False)
    found = refused(results)
    assert len(results) > 100
    assert set(found) == SKTIME, found
    assert "[state_info]" in found.pop("test_non_state_changing_method_contract")
    # What these three compare is a pair: the probabilities, and which series are decided.
    assert all("inhomogeneous shape" in why for why in found.values())


def aeons():
    from aeon.classification.early_classification import ProbabilityThresholdEarlyClassifier
    from aeon.classification.interval_based import TimeSeriesForestClassifier

    forest = TimeSeriesForestClassifier(n_estimators=10, random_state=0)
    return ProbabilityThresholdEarlyClassifier(forest, classification_points=[5, 10])


@pytest.mark.parametrize(
    "make",
    [
        aeons,
        lambda: AeonEarlyClassifier(EarlyClassifier(checkpoints=[5, 10], alpha=0.05)),
        lambda: SktimeEarlyClassifier(EarlyClassifier(checkpoints=[5, 10], alpha=0.05)),
    ],
    ids=["aeon's own", "for aeon", "for sktime"],
)
def test_adapters_answer_as_aeons_own_does(make, walks):
    X, y = walks
    early = make().fit(X[:700], y[:700])
    labels, decided = early.predict(X[700:, :, :5])
    assert labels.shape == decided.shape == (300,) and decided.dtype == bool
    assert (labels[~decided] == "-1").all() and 0 < decided.sum() < 300
    assert early.get_state_info().shape == (300, 4)
    rest, left = early.filter_X(X[700:], decided), early.filter_X(y[700:], decided)
    labels, decided = early.update_predict(rest)
    assert decided.all() and (labels == left).mean() > 0.7
    early.reset_state_info()
    probs, decided = early.predict_proba(X[700:])
    assert probs.shape == (300, 2) and decided.all()
    mean, accuracy, earliness = early.score(X[700:], y[700:])
    assert mean == pytest.approx(2 * accuracy * (1 - earliness) / (accuracy + 1 - earliness))
    assert accuracy > 0.8 and 0 < earliness < 1


@pytest.mark.parametrize("adapter", [AeonEarlyClassifier, SktimeEarlyClassifier])
def test_an_adapter_decides_as_what_it_adapts(adapter, walks):
    X, y = walks
    own = EarlyClassifier(checkpoints=5, alpha=0.05).fit(X[:700], y[:700])
    early = adapter(EarlyClassifier(checkpoints=5)).set_params(early__alpha=0.05)
    early.fit(X[:700], y[:700])
    assert early.early_.rule_ == own.rule_ and not hasattr(early.early, "rule_")
    assert np.array_equal(early.predict(X[700:])[0], own.predict(X[700:]))
    assert early.score(X[700:], y[700:]) == own.score_early(X[700:], y[700:])


def test_tslearns_methods(walks):
    """The same calls, with results of the same shape, for series that are (points, channels)."""
    X, y = walks[0].transpose(0, 2, 1), walks[1]
    theirs = NonMyopicEarlyClassifier(n_clusters=2, cost_time_parameter=0.01, random_state=0)
    ours = TslearnEarlyClassifier(EarlyClassifier(checkpoints=10), cost_time_parameter=0.01)
    for early in (theirs, ours):
        assert early.fit(X[:400], y[:400]) is early
        labels, points = early.predict_class_and_earliness(X[900:])
        assert labels.shape == points.shape == (100,) and (labels == y[900:]).mean() > 0.7
        assert np.array_equal(early.predict(X[900:]), labels)
        probs, again = early.predict_proba_and_earliness(X[900:])
        assert probs.shape == (100, 2) and np.array_equal(points, again)
        assert np.array_equal(early.classes_[probs.argmax(axis=1)], labels)
        assert np.array_equal(early.predict_proba(X[900:]), probs)
        cost = 1 - (labels == y[900:]).mean() + 0.01 * points.mean()
        assert early.early_classification_cost(X[900:], y[900:]) == pytest.approx(cost)
        assert early.score(X[900:], y[900:]) == (labels == y[900:]).mean()
    assert 1 < points.mean() < 20
    assert clone(ours).get_params()["early__checkpoints"] == 10


def test_tslearns_series_may_differ_in_length(walks):
    X, y = walks[0].transpose(0, 2, 1), walks[1]
    lengths = np.where(np.arange(1000) % 3, 20, 12)
    cut = [case[:length] for case, length in zip(X, lengths, strict=True)]
    padded = to_time_series_dataset(cut)
    assert np.isnan(padded[0, 12:]).all()
    early = TslearnEarlyClassifier(EarlyClassifier(checkpoints=5)).fit(padded[:700], y[:700])
    own = EarlyClassifier(checkpoints=5).fit([case.T for case in cut[:700]], y[:700])
    assert early.early_.rule_ == own.rule_
    assert np.array_equal(early.predict(padded[700:]), own.predict([c.T for c in cut[700:]]))
    _, points = early.predict_class_and_earliness(padded[700:])
    assert (points <= lengths[700:]).all()
