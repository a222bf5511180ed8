"""What looks right and is not: labels that are numbered in another way, and class names."""

import json
import warnings

import numpy as np
import pytest

import haltwise
from haltwise import Rule, Traces, calibrate


def said(n=1500, classes=5, seed=0, share=0.85):
    """Probabilities of three steps, and the labels from 0; the last class is never a label."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes - 1, n)
    wrong = random.integers(0, classes, n)
    probs = np.zeros((n, 3, classes), np.float32)
    for t, sure in enumerate((0.4, 0.7, 0.9)):
        right = random.random(n) < share * (0.6, 0.95, 1)[t]
        predicted = np.where(right, labels, wrong)
        top = (sure + 0.08 * random.random(n)).astype(np.float32)
        probs[:, t] = ((1 - top) / (classes - 1))[:, None]
        probs[np.arange(n), t, predicted] = top
    return probs, labels


def test_labels_that_start_at_1_are_refused():
    probs, labels = said()
    with pytest.raises(ValueError, match='chance alone gives .*label_check="skip"'):
        calibrate(probs=probs, labels=labels + 1)
    with pytest.warns(UserWarning, match="Number both from 0"):
        calibrate(probs=probs, labels=labels + 1, label_check="skip")


def test_a_rule_remembers_the_names_of_its_classes():
    probs, labels = said()
    names = [1, 2, 3, 4, 5]
    rule = calibrate(probs=probs, labels=labels + 1, classes=names)
    assert rule.classes == ["1", "2", "3", "4", "5"]
    assert Rule.from_json(rule.to_json()).classes == rule.classes
    probs, labels = said(seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rule.evaluate(probs=probs, labels=labels + 1)
        again = rule.evaluate(Traces(probs=probs, labels=labels + 1, classes=names))
    assert found == again
    assert found.late_accuracy == pytest.approx(0.88, abs=0.05)
    # A label that none of the classes has is no class.
    with pytest.raises(ValueError, match="0 is not one of the classes"):
        rule.evaluate(probs=probs, labels=labels)
    other = Traces(probs=probs, labels=labels + 1, classes=[5, 4, 3, 2, 1])
    with pytest.raises(ValueError, match="calibrated for the classes 1, 2, 3, 4, 5, in this order"):
        rule.evaluate(other)


def test_names_that_are_texts_are_used_too():
    probs, labels = said()
    names = np.array(["a", "b", "c", "d", "e"])
    rule = calibrate(probs=probs, labels=names[labels], classes=names)
    probs, labels = said(seed=1)
    by_name = rule.evaluate(probs=probs, labels=names[labels])
    assert by_name == rule.evaluate(probs=probs, labels=labels)
    assert by_name.late_accuracy > 0.8


def test_a_rule_without_names_has_none():
    probs, labels = said()
    rule = calibrate(probs=probs, labels=labels)
    assert rule.classes is None
    assert "class_names" not in json.loads(rule.to_json())


def test_evaluating_on_what_made_the_rule_is_told():
    probs, labels = said()
    rule = calibrate(probs=probs, labels=labels)
    with pytest.warns(UserWarning, match="made from these very traces"):
        assert rule.evaluate(probs=probs, labels=labels).calibrated_on == "all"
    with pytest.warns(UserWarning, match="made from some of these traces"):
        part = rule.evaluate(probs=probs[300:800], labels=labels[300:800])
    assert part.calibrated_on == "some"
    probs, labels = said(seed=1)
    assert rule.evaluate(probs=probs, labels=labels).calibrated_on is None


def test_a_rule_that_explores_promises_nothing():
    probs, labels = said()
    rule = calibrate(probs=probs, labels=labels, purpose="explore")
    assert rule.promise is None
    assert rule.describe() == "Nothing: the rule was made to compare settings."
    assert rule.expected is not None


def test_another_number_of_classes_is_refused():
    probs, labels = said()
    rule = calibrate(probs=probs, labels=labels)
    probs, labels = said(classes=4)
    with pytest.raises(ValueError, match="4"):
        rule.evaluate(probs=probs, labels=labels)


def test_probabilities_that_sum_to_more_than_1_are_not_called_logits():
    probs, labels = said(n=200)
    with pytest.raises(ValueError, match=r"sum to 1\.1, not to 1; divide them by their sum"):
        calibrate(probs=1.1 * probs, labels=labels)


def test_rules_halt_traces():
    probs, labels = said()
    rule = calibrate(probs=probs, labels=labels)
    traces = Traces(probs=probs, labels=labels)
    assert (rule.halt(traces) == rule.halt(probs=probs)).all()
    with pytest.raises(ValueError, match="give traces alone"):
        rule.halt(traces, probs=probs)


def test_an_estimator_that_is_not_fitted_says_what_to_call():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="call fit with"):
        haltwise.EarlyClassifier().predict(np.zeros((3, 1, 10)))


class Untrainable:
    """A base that must not be trained."""

    def fit(self, X, y):
        raise AssertionError("trained before the options were checked")

    def get_params(self, deep=True):
        return {}

    def predict_proba(self, X):
        raise AssertionError


def test_wrong_options_are_refused_before_anything_is_trained():
    series, labels = np.random.default_rng(0).normal(size=(40, 1, 12)), np.arange(40) % 2
    with pytest.raises(ValueError, match="alpha must lie"):
        haltwise.EarlyClassifier(Untrainable(), alpha=10).fit(series, labels)


def test_classes_that_are_floats_are_compared_by_value():
    """Whole labels were taken for positions in classes that were floats."""
    probs, labels = said()
    names = [1.0, 2.0, 3.0, 4.0, 5.0]
    rule = calibrate(probs=probs, labels=labels + 1.0, classes=names)
    assert rule == calibrate(probs=probs, labels=labels + 1, classes=[1, 2, 3, 4, 5])
    halves = Traces(probs=probs, labels=np.where(labels % 2, 0.5, 2.0), classes=[0.5, 2, 3, 4, 5])
    assert np.array_equal(halves.labels, np.where(labels % 2, 0, 1))
