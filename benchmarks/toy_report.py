"""Tables and figures of the toy tasks, from the CSV files in benchmarks/results/toy/ alone.

uv run python benchmarks/toy_report.py           prints the tables, renews them and the figures in docs/
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from podpo.plots import save_figure

RESULTS = Path(__file__).parent / "results" / "toy"
RESULTS_PAGE = Path(__file__).parents[1] / "docs" / "results.md"
FIGURES = RESULTS_PAGE.with_suffix("")
EQUAL_TIME_S = 60.0
NUM_SEEDS, T_QUANTILE = 5, 2.776
"""The 97.5 % quantile of Student's t with four degrees of freedom."""
MOST = 100.0
"""Reward of 100 steps without any error."""
COLORS = {
    "podpo": "C0",
    "ppo": "C1",
    "ppo, larger steps": "C2",
    "ppo, entropy bonus .01": "C2",
    "skip": "C0",
    "plain": "C3",
    "skip, own noise alone": "C2",
    "plain, own noise alone": "C4",
}
RETURNS = {"without noise": "zero/return_mean", "sampled": "sample/return_mean", "training": "train_return"}

Rows = list[dict[str, str]]
Runs = dict[str, dict[int, Rows]]
"""Rows of an experiment by variant and seed."""


def load(experiment: str, task: str = "point-track") -> Runs:
    found: Runs = defaultdict(lambda: defaultdict(list))
    with (RESULTS / f"{experiment}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["task"] == task:
                found[row["variant"]][int(row["seed"])].append(row)
    return found


def values_at(seeds: dict[int, Rows], axis: str, at: float, column: str) -> np.ndarray:
    """`column` of every seed, in their order, at the point `at` of the axis, between evaluations by a straight line."""
    return np.array([_value_at(seeds[seed], axis, at, column) for seed in sorted(seeds)])


def _value_at(rows: Rows, axis: str, at: float, column: str) -> float:
    known = [row for row in rows if row[column] not in ("", "nan")]
    points = [float(row[axis]) for row in known]
    if not points[0] <= at <= points[-1]:
        raise ValueError(f"{axis} = {at:g} lies outside of what was measured, {points[0]:g} to {points[-1]:g}")
    return float(np.interp(at, points, [float(row[column]) for row in known]))


def last_values(seeds: dict[int, Rows], column: str) -> np.ndarray:
    return np.array([float(seeds[seed][-1][column]) for seed in sorted(seeds)])


def interval(values: np.ndarray, digits: int = 1) -> str:
    """Mean and 95 % interval of Student's t over five seeds; so few are too few for a bootstrap."""
    if len(values) != NUM_SEEDS:
        raise ValueError(f"the quantile of t is that of {NUM_SEEDS} seeds, here are {len(values)}")
    half = T_QUANTILE * values.std(ddof=1) / NUM_SEEDS**0.5
    return f"{values.mean():.{digits}f} [{values.mean() - half:.{digits}f}, {values.mean() + half:.{digits}f}]"


def table(*rows: list[str]) -> list[str]:
    header, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [header, "|---" * len(rows[0]) + "|", *body]


# Tables -----------------------------------------------------------------------------------------------------


def point_track_table() -> list[str]:
    runs = load("point-track")
    steps = shared_steps(runs)
    points = [
        (f"{steps / 4e3:.0f} thousand steps", "env_steps", steps / 4),
        (f"{steps / 1e3:.0f} thousand steps", "env_steps", steps),
        (f"{EQUAL_TIME_S / 4:.0f} s of training", "train_s", EQUAL_TIME_S / 4),
        (f"{EQUAL_TIME_S:.0f} s of training", "train_s", EQUAL_TIME_S),
    ]
    rivals = [name for name in runs if name != "podpo"]
    rows = [["point-track at", "return", *runs, *(f"podpo minus {name}" for name in rivals)]]
    for where, axis, at in points:
        for label, column in RETURNS.items():
            own = [interval(values_at(seeds, axis, at, column)) for seeds in runs.values()]
            ahead = [paired(runs["podpo"], runs[name], axis, at, column) for name in rivals]
            rows.append([where, label, *own, *ahead])
    return table(*rows)


def paired(ours: dict[int, Rows], theirs: dict[int, Rows], axis: str, at: float, column: str) -> str:
    """Interval of the difference between trainings of the same seed."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"the seeds are not the same: {sorted(ours)} and {sorted(theirs)}")
    return interval(values_at(ours, axis, at, column) - values_at(theirs, axis, at, column), 2)


def controls_table() -> list[str]:
    """At the largest number of steps that all have made."""
    runs, ppo = load("controls"), load("point-track")["ppo"]
    at = shared_steps(runs)
    rows = [[f"at {at / 1e3:.0f} thousand steps", *RETURNS, *(f"{label}, minus PPO" for label in RETURNS)]]
    for variant, seeds in runs.items():
        own = [interval(values_at(seeds, "env_steps", at, column)) for column in RETURNS.values()]
        ahead = [paired(seeds, ppo, "env_steps", at, column) for column in RETURNS.values()]
        rows.append([variant, *own, *ahead])
    return table(*rows)


def lead_table() -> list[str]:
    """From which second of training on PODPO's mean stays ahead."""
    runs = load("point-track")
    rivals = [name for name in runs if name != "podpo"]
    rows = [["podpo's mean is ahead for good from second", *rivals]]
    for label, column in RETURNS.items():
        rows.append([label, *(_lead_s(runs["podpo"], runs[name], column) for name in rivals)])
    return table(*rows)


def _lead_s(ours: dict[int, Rows], theirs: dict[int, Rows], column: str) -> str:
    seconds = np.arange(5, EQUAL_TIME_S + 0.5, 0.5)
    ahead = [
        values_at(ours, "train_s", s, column).mean() > values_at(theirs, "train_s", s, column).mean() for s in seconds
    ]
    behind = np.flatnonzero(np.logical_not(ahead))
    first = behind[-1] + 1 if len(behind) else 0
    return f"{seconds[first]:.0f}" if first < len(seconds) else f"later than {EQUAL_TIME_S:.0f}"


def shared_steps(runs: Runs) -> float:
    return min(float(rows[-1]["env_steps"]) for seeds in runs.values() for rows in seeds.values())


def speed_table() -> list[str]:
    rows = [["point-track", "seconds per iteration, training alone on the machine"]]
    for variant, seeds in load("point-track").items():
        per_iteration = last_values(seeds, "train_s") / last_values(seeds, "iteration")
        rows.append([variant, interval(per_iteration, 3)])
    return table(*rows)


def actor_init_table() -> list[str]:
    rows = [["initialisation", *RETURNS]]
    for variant, seeds in load("actor-init").items():
        rows.append([variant, *(interval(last_values(seeds, column)) for column in RETURNS.values())])
    return table(*rows)


def modes_table() -> list[str]:
    rows = [["task", "algorithm", "coverage at iteration 2", "10", "60", "success", "return without noise"]]
    for task in ("multi-goal", "bandit"):
        for variant, seeds in load("modes", task).items():
            coverage = [values_at(seeds, "iteration", at, "sample/coverage") for at in (2, 10, 60)]
            end = [last_values(seeds, column) for column in ("sample/success", "zero/return_mean")]
            rows.append([task, variant, *(interval(values, 2) for values in (*coverage, *end))])
    return table(*rows)


def search_table(algorithm: str, num_shown: int = 4) -> list[str]:
    """The best draws and the worst, by the mean of the noise-free return over the whole training."""
    draws = {v: s for v, s in load("search").items() if v.startswith(f"{algorithm}:")}
    column = RETURNS["without noise"]
    scores = {v: means(s, column) for v, s in draws.items()}
    ranked = sorted(draws, key=lambda v: -fmean(scores[v]))
    rows = [[f"{algorithm}, {len(draws)} draws", "mean over training, each seed", "at the end, each seed"]]
    for rank in (*range(num_shown), len(ranked) - 1):
        variant = ranked[rank]
        setting, at_the_end = variant.partition(": ")[2], last_values(draws[variant], column)
        rows.append([f"{rank + 1}. {setting}", points(scores[variant]), points(at_the_end)])
    return table(*rows)


def finals_table() -> list[str]:
    """The finalists at full length: too few seeds for an interval."""
    rows = [["finalist", "mean over training, each seed", *(f"{label}, each seed" for label in RETURNS)]]
    for variant, seeds in load("finals").items():
        at_the_end = (points(last_values(seeds, column)) for column in RETURNS.values())
        rows.append([variant, points(means(seeds, RETURNS["without noise"])), *at_the_end])
    return table(*rows)


def means(seeds: dict[int, Rows], column: str) -> list[float]:
    """Mean of each seed over all its evaluations."""
    return [fmean(float(row[column]) for row in seeds[seed]) for seed in sorted(seeds)]


def points(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def tables() -> Iterator[list[str]]:
    yield point_track_table()
    yield lead_table()
    yield speed_table()
    yield controls_table()
    yield actor_init_table()
    yield modes_table()
    yield search_table("podpo")
    yield search_table("ppo")
    yield finals_table()


# Figures ----------------------------------------------------------------------------------------------------


def draw_bands(
    ax: Axes,
    runs: Runs,
    axis: str,
    column: str,
    style: str = "-",
    label: str = "",
    transform: Callable[[np.ndarray], np.ndarray] = lambda y: y,
) -> None:
    """Mean over seeds as a line, their range as a band."""
    for variant, seeds in runs.items():
        known = [[float(row[axis]) for row in rows if row[column] not in ("", "nan")] for rows in seeds.values()]
        grid = np.linspace(max(points[0] for points in known), min(points[-1] for points in known), 60)
        curves = transform(np.array([values_at(seeds, axis, at, column) for at in grid]).T)
        ax.plot(grid, curves.mean(0), style, color=COLORS[variant], label=variant + label)
        ax.fill_between(grid, curves.min(0), curves.max(0), color=COLORS[variant], alpha=0.15, linewidth=0)
    ax.grid(alpha=0.3)


def point_track_figure() -> None:
    """Above, what a policy earns; below, what it misses of the most there is, where the end can be told apart."""
    runs = load("point-track")
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex="col", sharey="row", layout="constrained")
    for column, axis in enumerate(("env_steps", "train_s")):
        for row, transform in enumerate((lambda y: y, lambda y: MOST - y)):
            draw_bands(axes[row, column], runs, axis, RETURNS["without noise"], "-", ", without noise", transform)
            draw_bands(axes[row, column], runs, axis, RETURNS["training"], ":", ", training", transform)
    axes[0, 0].set(ylabel="return", title="point-track: mean and range of five seeds")
    axes[1, 0].set(ylabel=f"{MOST:.0f} - return", yscale="log", ylim=(0.5, None), xlabel="environment steps")
    axes[1, 1].set(xlabel="training time [s]", xlim=(0, EQUAL_TIME_S))
    axes[0, 0].legend()
    save_figure(figure, FIGURES / "point_track.png")


def actor_init_figure() -> None:
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    draw_bands(ax, load("actor-init"), "env_steps", RETURNS["without noise"])
    ax.set(xlabel="environment steps", ylabel="return without noise", title="point-track: noise skip or plain actor")
    ax.legend()
    save_figure(figure, FIGURES / "actor_init.png")


def modes_figure() -> None:
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for column, task in enumerate(("multi-goal", "bandit")):
        runs = load("modes", task)
        draw_bands(axes[0, column], runs, "iteration", "sample/coverage")
        draw_bands(axes[1, column], runs, "iteration", "sample/return_mean")
        axes[0, column].set(title=f"{task}: mode coverage of sampled actions", ylim=(0, 1.05))
        axes[1, column].set(title=f"{task}: return of sampled actions", xlabel="iteration")
        axes[0, column].legend()
    save_figure(figure, FIGURES / "mode_coverage.png")


def write_into(page: Path, lines: list[str]) -> None:
    """Put a table in the place of the one with the same head."""
    text = page.read_text()
    before = re.search(re.escape(lines[0]) + r"\n(\|.*\n)*", text)
    if before is None:
        print(f"({page.name} has no table with this head)")
        return
    page.write_text(text[: before.start()] + "\n".join(lines) + "\n" + text[before.end() :])


def main() -> None:
    for lines in tables():
        print("\n".join(lines), end="\n\n")
        write_into(RESULTS_PAGE, lines)
    for draw in (point_track_figure, actor_init_figure, modes_figure):
        draw()


if __name__ == "__main__":
    main()
