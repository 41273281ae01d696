"""Statistics of a few runs: interquartile means, stratified bootstrap intervals, probability of improvement.

The measures of Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice". Everywhere, the scores of a
method are a list with one array per task, with one number per run (and any dimensions before that one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Scores = Sequence[Array]
LEAST_RUNS = 5
"""With fewer runs there are points, but no interval and no verdict."""
NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number and the interval that holds it."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        if np.isnan(self.low):
            return format(self.value, spec)
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def iqm(scores: Scores) -> Array:
    """Mean of the middle half of all runs of all tasks."""
    ordered = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def improvement(ours: Scores, theirs: Scores) -> Array:
    """Probability that a run of ours earns more than one of theirs (a draw counts half), averaged over tasks."""
    chances: list[Array] = []
    for a, b in zip(ours, theirs, strict=True):
        gaps = a[..., :, None] - b[..., None, :]
        chances.append(((gaps > 0) + 0.5 * (gaps == 0)).mean(axis=(-2, -1)))
    return np.mean(chances, axis=0)


def estimate(statistic: Callable[..., Array], *methods: Scores, seed: int = 0) -> Estimate:
    """`statistic` of the methods' scores, with its 95 % interval: runs are drawn anew, with replacement, within each
    method and task, and the interval is that of the percentiles."""
    value = float(statistic(*methods))
    if min(len(runs) for scores in methods for runs in scores) < LEAST_RUNS:
        return Estimate(value, float("nan"), float("nan"))
    dice = np.random.default_rng(seed)
    resampled = statistic(
        *([runs[dice.integers(len(runs), size=(NUM_RESAMPLES, len(runs)))] for runs in scores] for scores in methods)
    )
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))


def one_task(runs: ArrayLike) -> Scores:
    """The scores of a method that was tried on one task."""
    return [np.asarray(runs, dtype=float)]


def iqm_difference(ours: Scores, theirs: Scores) -> Array:
    return iqm(ours) - iqm(theirs)


def iqm_gain_percent(ours: Scores, theirs: Scores) -> Array:
    """By how many percent the interquartile mean of ours lies above that of theirs."""
    return 100 * (iqm(ours) / iqm(theirs) - 1)
