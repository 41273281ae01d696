"""Learning curves as pictures, from the CSV files of run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from podpo.metrics import read_table
from podpo.run_folder import RunFolder
from podpo.validation import ConfigError, require

PICTURES = (".png", ".pdf", ".svg", ".jpg")


def plot_runs(runs: Sequence[RunFolder], out: Path) -> None:
    """Training return (dashed) and noise-free return of each run, over environment steps and over training time."""
    require(out.suffix in PICTURES, "out", str(out), f"end the name in one of {', '.join(PICTURES)}")
    legend_inch = 0.2 * ((len(runs) + 1) // 2)
    figure, (over_steps, over_time) = plt.subplots(
        1, 2, figsize=(11, 4 + legend_inch), sharey=True, layout="constrained"
    )
    colors = [f"C{i}" for i in range(10)] if len(runs) <= 10 else plt.get_cmap("turbo")(np.linspace(0, 1, len(runs)))
    for color, run in zip(colors, runs, strict=False):
        progress, evaluations = (_read(run, name) for name in ("progress.csv", "evaluations.csv"))
        label = f"{run.path.parent.name}/{run.path.name}"
        for axes, x in ((over_steps, "env_steps"), (over_time, "train_s")):
            draw_curve(axes, progress, x, "Train/mean_reward", color, "--", "")
            draw_curve(axes, evaluations, x, "zero/return_mean", color, "-", label)
    over_steps.set(xlabel="environment steps", ylabel="return", title="without noise (dashed: training)")
    over_time.set(xlabel="training time [s]")
    for axes in (over_steps, over_time):
        axes.grid(alpha=0.3)
    handles, labels = over_steps.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize="small", ncols=min(len(labels), 2))
    save_figure(figure, out)


def draw_curve(axes: Axes, rows: Sequence[dict[str, str]], x: str, y: str, color: Any, style: str, label: str) -> None:
    """One line; rows without a value for `y` (no episode has ended yet) are left out."""
    points = [(float(row[x]), float(row[y])) for row in rows if row.get(y)]
    marker = "o" if len(points) == 1 else None  # a line through one point is invisible
    axes.plot([p[0] for p in points], [p[1] for p in points], style, color=color, label=label, marker=marker)


def save_figure(figure: Figure, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)
    plt.close(figure)


def _read(run: RunFolder, name: str) -> list[dict[str, str]]:
    path = run.path / name
    if not path.is_file():
        raise ConfigError(f"the run {str(run.path)!r} has no {name}: it ended before its first row.")
    return read_table(path)
