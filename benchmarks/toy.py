"""PODPO and PPO on the toy tasks: trainings into CSV files, and from those alone tables and figures.

uv run python benchmarks/toy.py run point-track      trainings, two minutes per seed
uv run python benchmarks/toy.py run actor-init
uv run python benchmarks/toy.py run modes
uv run python benchmarks/toy.py run search           what the settings of point-track were chosen from
uv run python benchmarks/toy.py report               tables, and figures in docs/results/
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import track

from podpo.config import RunConfig
from podpo.metrics import CsvTable, read_table
from podpo.plots import save_figure
from podpo.presets import preset
from podpo.run_folder import create_run, describe_run
from podpo.training import Training

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "toy"
FIGURES = ROOT / "docs" / "results"
SEEDS = (21, 22, 23, 24, 25)
"""None of these was looked at while settings were chosen."""
SEARCH_SEEDS = (1, 2)
COLORS = {"podpo": "C0", "ppo": "C1", "skip": "C0", "plain": "C3"}
EQUAL_TIME_S = 60.0

Rows = list[dict[str, str]]


def point_track() -> Iterable[tuple[str, RunConfig]]:
    """About a minute of training for each algorithm; PPO's iterations are the shorter ones."""
    for name, max_iterations in (("podpo", 220), ("ppo", 320)):
        yield name, replace(preset("point-track", name), max_iterations=max_iterations, eval_interval=5)


def actor_init() -> Iterable[tuple[str, RunConfig]]:
    base = replace(preset("point-track"), max_iterations=80, eval_interval=5)
    for init in ("skip", "plain"):
        actor = replace(base.algorithm.actor, init=init)
        yield init, replace(base, algorithm=replace(base.algorithm, actor=actor))


def modes() -> Iterable[tuple[str, RunConfig]]:
    for task in ("multi-goal", "bandit"):
        for name in ("podpo", "ppo"):
            yield name, replace(preset(task, name), eval_interval=2)


def search() -> Iterable[tuple[str, RunConfig]]:
    """Six settings for each algorithm; the first of each is the one that was chosen."""
    slow = {"gamma": 0.99, "lam": 0.95}
    paper: dict[str, Any] = {"num_learning_epochs": 5, "num_mini_batches": 4, "step_size": "constant"}
    changes: dict[str, Any] = {
        "podpo": {},
        "podpo, gamma .99, lam .95": slow,
        "podpo, 5 epochs x 4, constant 1e-3": paper | {"learning_rate": 1e-3},
        "podpo, no exploration noise": {"exploration_std": 0.0},
        "podpo, temperature 2 alone": {"temperatures": (2.0,)},
        "podpo, scale per observation": {"scale": "observation"},
    }
    ppo = preset("point-track", "ppo").algorithm
    changes |= {
        "ppo": {},
        "ppo, gamma .99, lam .95": slow,
        "ppo, KL target .01": {"ppo": replace(ppo.ppo, desired_kl=0.01)},
        "ppo, entropy bonus .01": {"ppo": replace(ppo.ppo, entropy_coef=0.01)},
        "ppo, fixed 3e-3": {"ppo": replace(ppo.ppo, schedule="fixed"), "learning_rate": 3e-3},
        "ppo, 8 minibatches": {"num_mini_batches": 8},
    }
    for variant, change in changes.items():
        base = preset("point-track", "ppo" if variant.startswith("ppo") else "podpo")
        yield variant, replace(base, algorithm=replace(base.algorithm, **change), max_iterations=60)


EXPERIMENTS: dict[str, Callable[[], Iterable[tuple[str, RunConfig]]]] = {
    "point-track": point_track,
    "actor-init": actor_init,
    "modes": modes,
    "search": search,
}


def run(experiment: str) -> None:
    """Train every variant with every seed, one after the other, and write one CSV row per evaluation."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    about = describe_run()
    provenance = {"commit": about["commit"], "machine": about["machine"], "torch": about["versions"]["torch"]}
    path = RESULTS / f"{experiment}.csv"
    path.unlink(missing_ok=True)
    table = CsvTable(path)
    seeds = SEARCH_SEEDS if experiment == "search" else SEEDS
    jobs = [(variant, config, seed) for seed in seeds for variant, config in EXPERIMENTS[experiment]()]
    for variant, config, seed in track(jobs, description=experiment, console=Console(stderr=True)):
        with tempfile.TemporaryDirectory() as logs:
            config = replace(
                config, seed=seed, log_root=logs, logger="none", eval_interval=min(config.eval_interval, 5)
            )
            training = Training(config, create_run(config), Console(quiet=True))
            training.run()
            for row in read_table(training.folder.path / "evaluations.csv"):
                head = {"iteration": row.pop("iteration"), "task": config.task, "variant": variant, "seed": seed}
                command = f"python benchmarks/toy.py run {experiment}"
                table.append(head | row | {"command": command, **provenance})
    table.close()


# Report -----------------------------------------------------------------------------------------------------


def load(experiment: str, **wanted: str) -> dict[str, dict[int, Rows]]:
    """Rows of an experiment by variant and seed."""
    found: dict[str, dict[int, Rows]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / f"{experiment}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if all(row[key] == value for key, value in wanted.items()):
                found[row["variant"]][int(row["seed"])].append(row)
    return found


def value_at(rows: Rows, axis: str, at: float, column: str) -> float:
    """`column` at the point `at` of the axis, between evaluations by a straight line."""
    known = [row for row in rows if row[column] not in ("", "nan")]
    return float(np.interp(at, [float(row[axis]) for row in known], [float(row[column]) for row in known]))


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and 95 % bootstrap interval over seeds."""
    dice = np.random.default_rng(0)
    means = dice.choice(values, size=(10_000, len(values))).mean(axis=1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def show(values: np.ndarray) -> str:
    mean, low, high = interval(values)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def report_point_track() -> None:
    runs = load("point-track")
    shared_steps = min(float(rows[-1]["env_steps"]) for seeds in runs.values() for rows in seeds.values())
    columns = {"without noise": "zero/return_mean", "sampled": "sample/return_mean", "training": "train_return"}
    print(f"| point-track, {len(SEEDS)} seeds | " + " | ".join([*runs, "difference, paired"]) + " |")
    print("|---|" + "---|" * (len(runs) + 1))
    points = [("env_steps", shared_steps / 4), ("env_steps", shared_steps), ("train_s", EQUAL_TIME_S)]
    for axis, at in points:
        where = f"{at / 1e3:.0f} thousand steps" if axis == "env_steps" else f"{at:.0f} s of training"
        for label, column in columns.items():
            at_point = {v: np.array([value_at(s[seed], axis, at, column) for seed in SEEDS]) for v, s in runs.items()}
            cells = [show(values) for values in at_point.values()]
            print(f"| {where}, {label} | " + " | ".join([*cells, show(at_point["podpo"] - at_point["ppo"])]) + " |")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for ax, axis, label in zip(axes, ("env_steps", "train_s"), ("environment steps", "training time [s]"), strict=True):
        draw_bands(ax, runs, axis, "zero/return_mean", "-", "without noise")
        draw_bands(ax, runs, axis, "train_return", ":", "training")
        ax.set(xlabel=label)
    axes[0].set(ylabel="return", title=f"point-track: mean and range of {len(SEEDS)} seeds")
    axes[1].set(xlim=(0, EQUAL_TIME_S))
    axes[0].legend()
    save_figure(figure, FIGURES / "point_track.png")


def report_actor_init() -> None:
    runs = load("actor-init")
    print(f"\n| initialisation, {len(SEEDS)} seeds | return without noise | sampled | training |\n|---|---|---|---|")
    for variant, seeds in runs.items():
        last = [seeds[seed][-1] for seed in SEEDS]
        cells = [
            show(np.array([float(row[column]) for row in last]))
            for column in ("zero/return_mean", "sample/return_mean", "train_return")
        ]
        print(f"| {variant} | " + " | ".join(cells) + " |")
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    draw_bands(ax, runs, "env_steps", "zero/return_mean", "-", "without noise")
    ax.set(xlabel="environment steps", ylabel="return without noise", title="point-track: skip or plain actor")
    ax.legend()
    save_figure(figure, FIGURES / "actor_init.png")


def report_modes() -> None:
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    titles = ("mode coverage, sampled: start", "best", "end", "success, sampled", "return without noise")
    print("\n| " + " | ".join(["task, algorithm", *titles]) + " |")
    print("|---|---|---|---|---|---|")
    for column, task in enumerate(("multi-goal", "bandit")):
        runs = load("modes", task=task)
        for variant, seeds in runs.items():
            rows = [seeds[seed] for seed in SEEDS]
            coverage = [[float(r["sample/coverage"]) for r in run] for run in rows]
            numbers = (
                np.array([c[0] for c in coverage]),
                np.array([np.nanmax(c) for c in coverage]),
                np.array([c[-1] for c in coverage]),
                np.array([float(run[-1]["sample/success"]) for run in rows]),
                np.array([float(run[-1]["zero/return_mean"]) for run in rows]),
            )
            cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*interval(n)) for n in numbers]
            print("| " + " | ".join([f"{task}, {variant}", *cells]) + " |")
        draw_bands(axes[0, column], runs, "iteration", "sample/coverage", "-", "sampled")
        draw_bands(axes[1, column], runs, "iteration", "sample/return_mean", "-", "sampled")
        axes[0, column].set(title=f"{task}: mode coverage", ylim=(0, 1.05), xlabel="iteration")
        axes[1, column].set(title=f"{task}: return", xlabel="iteration")
        axes[0, column].legend()
    save_figure(figure, FIGURES / "mode_coverage.png")


def report_search() -> None:
    """Two seeds: points, no intervals."""
    print(f"\n| setting, seeds {SEARCH_SEEDS} | steps | return without noise | sampled |\n|---|---|---|---|")
    for variant, seeds in load("search").items():
        last = [rows[-1] for rows in seeds.values()]
        cells = [", ".join(f"{float(r[c]):.1f}" for r in last) for c in ("zero/return_mean", "sample/return_mean")]
        print(f"| {variant} | {int(last[0]['env_steps']) // 1000} thousand | " + " | ".join(cells) + " |")


def draw_bands(ax: plt.Axes, runs: dict[str, dict[int, Rows]], axis: str, column: str, style: str, label: str) -> None:  # pyright: ignore[reportPrivateImportUsage]
    """Mean over seeds as a line, their range as a band."""
    for variant, seeds in runs.items():
        end = min(float(rows[-1][axis]) for rows in seeds.values())
        start = max(float(rows[0][axis]) for rows in seeds.values())
        grid = np.linspace(start, end, 60)
        curves = np.array([[value_at(rows, axis, at, column) for at in grid] for rows in seeds.values()])
        ax.plot(grid, curves.mean(0), style, color=COLORS[variant], label=f"{variant}, {label}")
        ax.fill_between(grid, curves.min(0), curves.max(0), color=COLORS[variant], alpha=0.15, linewidth=0)
    ax.grid(alpha=0.3)


def main() -> None:
    match sys.argv[1:]:
        case ["run", name] if name in EXPERIMENTS:
            run(name)
        case ["report"]:
            report_point_track()
            report_actor_init()
            report_modes()
            report_search()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
