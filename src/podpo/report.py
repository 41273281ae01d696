"""What a study has shown: tables with intervals and curves with bands, from its CSV files alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from podpo.metrics import read_table
from podpo.plots import save_figure
from podpo.run_folder import write_atomically
from podpo.statistics import (
    LEAST_RUNS,
    Estimate,
    estimate,
    improvement,
    iqm,
    iqm_difference,
    iqm_gain_percent,
    one_task,
)
from podpo.tasks import MAX_RETURNS

Array = NDArray[np.float64]
Rows = list[dict[str, str]]
RETURNS = {
    "train_return": "training return",
    "zero/return_mean": "noise-free return",
    "sample/return_mean": "sampled return",
    "mean/return_mean": "mean-of-8 return",
}
OTHERS = {
    "zero/survival": "survival",
    "zero/velocity_rmse_m_s": "velocity RMSE [m/s]",
    "zero/tracking": "tracking, of 1",
    "spread": "spread of actions",
}
REFERENCE = "ppo"
STILL = "zero"
"""The agent that does nothing; its return is where scores begin."""
RISING = 0.01
"""A curve that gains more than this share of its value over its last quarter still rises."""


class Study:
    """The rows of a study, by variant and seed."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.evaluations = read_table(folder / "evaluations.csv")
        training = folder / "training.csv"
        self.training = read_table(training) if training.is_file() else []
        labels = dict.fromkeys(row["variant"] for row in self.evaluations)
        self.trained = [label for label in labels if label != STILL]
        self.task = self.evaluations[0]["task"]
        self.max_return = MAX_RETURNS.get(self.task)

    def seeds(self, variant: str) -> list[str]:
        return list(dict.fromkeys(row["seed"] for row in self.evaluations if row["variant"] == variant))

    def final(self, variant: str, name: str) -> Array:
        """A number of the last evaluation, for each seed."""
        rows = [row for row in self.evaluations if row["variant"] == variant and row["is_last"] == "1"]
        return np.array([float(row[name]) for row in rows if row.get(name)])

    def curve(self, variant: str, name: str, x: str = "env_steps") -> tuple[Array, Array]:
        """A number over the evaluations: `x` `[points]` (its mean over seeds) and values `[seeds, points]`."""
        runs = [
            [(float(row[x]), float(row[name])) for row in self.run(self.evaluations, variant, seed) if row.get(name)]
            for seed in self.seeds(variant)
        ]
        return _aligned(runs)

    def training_curve(self, variant: str, x: str = "env_steps") -> tuple[Array, Array]:
        """The training return over iterations."""
        runs = [
            [(float(row[x]), float(row["return"])) for row in self.run(self.training, variant, seed) if row["return"]]
            for seed in self.seeds(variant)
        ]
        return _aligned(runs)

    @staticmethod
    def run(rows: Rows, variant: str, seed: str) -> Rows:
        """The rows of one run."""
        return [row for row in rows if row["variant"] == variant and row["seed"] == seed]


def _aligned(runs: list[list[tuple[float, float]]]) -> tuple[Array, Array]:
    """Runs cut to the length of the shortest, from their ends: the first iterations have no return yet."""
    length = min((len(run) for run in runs), default=0)
    table = np.array([run[len(run) - length :] for run in runs]).reshape(len(runs), length, 2)
    return table[:, :, 0].mean(axis=0), table[:, :, 1]


def write_report(folder: Path, out: Path) -> tuple[str, list[Path]]:
    """Write report.md and the figures into `out`; returns the text and the figures."""
    study = Study(folder)
    sections = [final_table(study)]
    if REFERENCE in study.trained:
        sections += [comparison_table(study), course_table(study)]
    sections.append(convergence(study))
    text = "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "report.md", lambda file: file.write(text.encode()))
    return text, [draw_curves(study, out / "curves.png")] if study.training else []


def final_table(study: Study) -> list[str]:
    """Every variant at the end of its training."""
    rows: list[tuple[str, list[str]]] = []
    columns = study.trained
    for name, label in RETURNS.items():
        rows.append((label, [_shown(study.final(v, name), ".2f") for v in columns]))
    if study.max_return is not None:
        most = study.max_return
        free = {v: study.final(v, "zero/return_mean") for v in columns}
        rows.append((f"regret ({most:g} minus noise-free return)", [_shown(most - free[v], ".2f") for v in columns]))
        still = study.final(STILL, "zero/return_mean")
        if len(still):
            score = {v: (free[v] - still.mean()) / (most - still.mean()) for v in columns}
            rows.append(
                (
                    f"score (0: stands still, {still.mean():.2f}; 1: {most:g})",
                    [_shown(score[v], ".3f") for v in columns],
                )
            )
    for name, label in OTHERS.items():
        rows.append((label, [_shown(study.final(v, name), ".3f") for v in columns]))
    rows.append(("seconds of training", [_shown(study.final(v, "wall_s"), ".0f") for v in columns]))
    if REFERENCE in columns:
        for label, curve, goal in _races(study):
            times = {v: _times_to(*_each(study, v, curve), goal) for v in columns}
            rows.append((f"seconds to PPO's final {label} ({goal:.2f})", [_shown_times(times[v]) for v in columns]))
    return _table([f"{study.task}, at the end", *(f"{v} ({len(study.seeds(v))} seeds)" for v in columns)], rows)


def comparison_table(study: Study) -> list[str]:
    """Every variant against PPO at the end: differences, ratios, probabilities."""
    rows = []
    for variant in study.trained:
        if variant == REFERENCE:
            continue
        for name, label in RETURNS.items():
            ours, theirs = one_task(study.final(variant, name)), one_task(study.final(REFERENCE, name))
            rows.append((f"{variant}: {label}", _against(ours, theirs)))
    return _table([f"{study.task}, minus {REFERENCE} at the end", "difference", "in percent", "P(better)"], rows)


def course_table(study: Study) -> list[str]:
    """The same in the course of training, at the same number of environment steps."""
    rows = []
    for variant in study.trained:
        if variant == REFERENCE:
            continue
        for name in ("train_return", "zero/return_mean"):
            steps, ours = study.curve(variant, name)
            _, theirs = study.curve(REFERENCE, name)
            points = min(ours.shape[1], theirs.shape[1])
            for i in range(points):
                cells = _against(one_task(ours[:, i]), one_task(theirs[:, i]))
                rows.append((f"{variant}: {RETURNS[name]} at {steps[i] / 1e6:.1f} million", cells))
    return _table([f"{study.task}, minus {REFERENCE} after steps", "difference", "in percent", "P(better)"], rows)


def convergence(study: Study) -> list[str]:
    """Which curves still rise."""
    lines = []
    for variant in study.trained:
        for label, values in (
            ("training return", study.training_curve(variant)[1]),
            ("noise-free return", study.curve(variant, "zero/return_mean")[1]),
        ):
            if values.shape[1] < 4:
                continue
            eighth = max(values.shape[1] // 8, 1)
            before, after = values[:, -2 * eighth : -eighth].mean(axis=1), values[:, -eighth:].mean(axis=1)
            gain = (after - before) / np.abs(before)
            verdict = "still rises: not converged" if np.median(gain) > RISING else "has levelled off"
            lines.append(f"- {variant}, {label}: {100 * np.median(gain):+.1f} % over its last eighth; {verdict}")
    return lines


def draw_curves(study: Study, path: Path) -> Path:
    """Training and noise-free return, over environment steps and over time: IQM with its interval, or single runs."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharey="row", sharex="col", layout="constrained")
    for column, x in enumerate(("env_steps", "wall_s")):
        for color, variant in zip((f"C{i}" for i in range(10)), study.trained, strict=False):
            _draw(axes[0, column], *study.training_curve(variant, x), color, variant)
            _draw(axes[1, column], *study.curve(variant, "zero/return_mean", x), color, variant)
    still = study.final(STILL, "zero/return_mean")
    for row, label in enumerate(("training return", "noise-free return")):
        axes[row, 0].set(ylabel=label)
        for ax in axes[row]:
            ax.grid(alpha=0.3)
            if row == 1 and len(still):
                ax.axhline(still.mean(), color="0.5", linestyle=":", label="stands still")
    axes[1, 0].set(xlabel="environment steps")
    axes[1, 1].set(xlabel="training time [s]")
    axes[0, 0].legend()
    save_figure(figure, path)
    return path


def _draw(axes: Axes, x: Array, values: Array, color: str, label: str) -> None:
    if not len(x):
        return
    middle = iqm([values.T])
    axes.plot(x, middle, color=color, label=label)
    if len(values) < LEAST_RUNS:
        axes.plot(x, values.T, color=color, alpha=0.3, linewidth=0.8)
        return
    bands = [estimate(iqm, one_task(values[:, i])) for i in range(0, len(x), max(len(x) // 50, 1))]
    at = x[:: max(len(x) // 50, 1)]
    axes.fill_between(at, [b.low for b in bands], [b.high for b in bands], color=color, alpha=0.2, linewidth=0)


def _against(ours: Sequence[Array], theirs: Sequence[Array]) -> list[str]:
    statistics: tuple[tuple[Callable[..., Array], str], ...] = (
        (iqm_difference, "+.2f"),
        (iqm_gain_percent, "+.1f"),
        (improvement, ".2f"),
    )
    return [f"{estimate(statistic, ours, theirs):{spec}}" for statistic, spec in statistics]


def _races(study: Study) -> list[tuple[str, str, float]]:
    """What PPO ends with, and by which curve others are timed until they have it, too."""
    _, training = study.training_curve(REFERENCE)
    tail = max(training.shape[1] // 20, 1)
    return [
        ("training return", "training", float(iqm(one_task(training[:, -tail:].mean(axis=1))))),
        ("noise-free return", "zero/return_mean", float(iqm(one_task(study.final(REFERENCE, "zero/return_mean"))))),
    ]


def _each(study: Study, variant: str, curve: str) -> tuple[list[Array], list[Array]]:
    """Times and values of each seed's curve."""
    rows = study.training if curve == "training" else study.evaluations
    name = "return" if curve == "training" else curve
    runs = [[r for r in study.run(rows, variant, seed) if r.get(name)] for seed in study.seeds(variant)]
    times = [np.array([float(r["wall_s"]) for r in run]) for run in runs]
    return times, [np.array([float(r[name]) for r in run]) for run in runs]


def _times_to(times: list[Array], values: list[Array], goal: float) -> Array:
    """Seconds until each run first has `goal`, between two points on a straight line; NaN for never."""
    found = []
    for at, value in zip(times, values, strict=True):
        above = np.flatnonzero(value >= goal)
        if not len(above):
            found.append(np.nan)
        elif (i := above[0]) == 0:
            found.append(at[0])
        else:
            share = (goal - value[i - 1]) / (value[i] - value[i - 1])
            found.append(at[i - 1] + share * (at[i] - at[i - 1]))
    return np.array(found)


def _shown_times(times: Array) -> str:
    reached = times[~np.isnan(times)]
    if len(reached) < len(times):
        return f"{len(reached)} of {len(times)} runs" + (f", after {np.sort(reached).round()}" if len(reached) else "")
    return _shown(times, ".0f")


def _shown(runs: Array, spec: str) -> str:
    """IQM and interval of enough runs; fewer, one by one."""
    if not len(runs):
        return ""
    if len(runs) < LEAST_RUNS:
        return ", ".join(format(run, spec) for run in runs)
    shown: Estimate = estimate(iqm, one_task(runs))
    return format(shown, spec)


def _table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + [f"| {label} | " + " | ".join(cells) + " |" for label, cells in rows if any(cells)]
