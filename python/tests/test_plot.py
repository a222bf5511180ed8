"""Figures land on the axes they are given."""

from __future__ import annotations

import matplotlib
import numpy as np
from conftest import simulated

import haltwise
from haltwise import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def test_thresholds_and_p_values_are_drawn_where_asked(rule):
    _, (left, right) = plt.subplots(1, 2)
    assert plot.thresholds(rule, left, color="k") is left
    drawn = left.lines[0].get_ydata()
    assert np.array_equal(np.isnan(drawn), np.isinf(rule.thresholds))
    plot.p_values(rule, right)
    assert np.array_equal(right.lines[0].get_ydata(), rule.p_values)


def test_an_evaluation_is_drawn_with_its_interval_and_alpha(rule):
    evaluation = rule.evaluate(simulated(1000, seed=5))
    _, (left, right) = plt.subplots(1, 2)
    plot.gap_by_step(evaluation, left, alpha=rule.alpha)
    assert left.lines[1].get_ydata()[0] == 0.1 and len(left.collections) == 1
    plot.halted_by_step(evaluation, right)
    assert right.lines[0].get_ydata()[-1] == 1.0


def test_without_axes_the_current_ones_are_used(rule):
    _, ax = plt.subplots()
    assert plot.thresholds(rule) is ax


def test_several_are_drawn_together_by_their_names(rule, traces):
    average = haltwise.calibrate(traces, promise="average")
    new = simulated(1000, seed=5)
    rules = {"steps": rule, "average": average}
    results = {name: one.evaluate(new) for name, one in rules.items()}
    for draw, things in (
        (plot.thresholds, rules),
        (plot.p_values, rules),
        (plot.gap_by_step, results),
        (plot.halted_by_step, results),
    ):
        _, ax = plt.subplots()
        assert draw(things, ax) is ax
        names = [text.get_text() for text in ax.get_legend().get_texts()]
        assert names[:2] == ["steps", "average"]
        alone = draw(things["average"], plt.subplots()[1])
        assert np.array_equal(ax.lines[1].get_ydata(), alone.lines[0].get_ydata(), equal_nan=True)


def test_axes_get_a_title_unless_they_have_one(rule):
    _, (left, right) = plt.subplots(1, 2)
    right.set_title("Mine")
    assert plot.thresholds(rule, left).get_title() == "Threshold at step t"
    assert plot.thresholds(rule, right).get_title() == "Mine"
