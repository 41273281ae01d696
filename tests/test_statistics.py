from __future__ import annotations

import math

import numpy as np
import pytest

from podpo.statistics import Estimate, estimate, improvement, iqm, iqm_difference, iqm_gain_percent, one_task

A = one_task([18.0, 18.6, 17.45, 16.22, 17.09])
B = one_task([13.52, 16.15, 19.35, 14.77, 14.45, 17.22])
A3 = [
    np.array([1.11, 0.99, 0.86, 0.45, 1.08, 0.24, 1.03]),
    np.array([1.03, 1.21, 0.43, 0.93, 1.05, 0.84, 0.54]),
    np.array([0.72, 0.6, 0.61, 0.62, 0.94, 0.99, 0.86]),
]
B3 = [
    np.array([0.41, 0.48, 0.57, 0.83, 1.34, 0.85, 1.1]),
    np.array([0.48, 0.79, 0.76, 0.31, 0.18, 0.54, 0.32]),
    np.array([1.22, 1.15, 0.84, 0.83, 1.14, 1.6, 0.83]),
]
"""Runs, and below what rliable 1.2.0 makes of them (aggregate_iqm, probability_of_improvement, 20,000 resamples)."""


def test_point_estimates_are_those_of_rliable() -> None:
    assert iqm(A) == pytest.approx(17.513333333333332)
    assert iqm(B) == pytest.approx(15.647499999999999)
    assert iqm(A3) == pytest.approx(0.8536363636363635)
    assert iqm(B3) == pytest.approx(0.7654545454545455)
    assert improvement(A, B) == pytest.approx(0.7666666666666667)
    assert improvement(A3, B3) == pytest.approx(0.5340136054421768)


def test_intervals_are_those_of_rliable() -> None:
    """Both throw dice, so they agree to the precision of their percentiles."""
    assert estimate(iqm, A)[1:] == pytest.approx((16.51, 18.4), abs=0.02)
    assert estimate(iqm, B)[1:] == pytest.approx((14.2175, 17.7525), abs=0.1)
    assert estimate(iqm, A3)[1:] == pytest.approx((0.7027, 0.9691), abs=0.01)
    assert estimate(improvement, A, B)[1:] == pytest.approx((0.4333, 1.0), abs=0.04)
    assert estimate(improvement, A3, B3)[1:] == pytest.approx((0.3810, 0.6871), abs=0.02)


def test_differences_by_hand() -> None:
    ours, theirs = one_task([3.0, 5.0, 4.0, 9.0, 0.0]), one_task([2.0, 2.0, 2.0, 2.0, 2.0])
    # One of five runs is cut at each end: the mean of 3, 4 and 5.
    assert iqm_difference(ours, theirs) == pytest.approx(2.0)
    assert iqm_gain_percent(ours, theirs) == pytest.approx(100.0)
    assert improvement(theirs, theirs) == 0.5


def test_fewer_than_five_runs_get_no_interval() -> None:
    few = estimate(iqm, one_task([1.0, 2.0, 3.0, 4.0]))
    assert few.value == 2.5
    assert math.isnan(few.low)
    assert f"{few:.1f}" == "2.5"
    assert math.isnan(estimate(improvement, A, one_task([1.0, 2.0])).low)


def test_an_interval_holds_its_value_and_narrows_with_runs() -> None:
    dice = np.random.default_rng(0)
    wide, narrow = (estimate(iqm, one_task(dice.normal(size=n))) for n in (8, 80))
    assert wide.low < wide.value < wide.high
    assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)
    assert f"{Estimate(1.0, 0.5, 2.25):.2f}" == "1.00 [0.50, 2.25]"
