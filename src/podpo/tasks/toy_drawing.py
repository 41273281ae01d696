"""Pictures of the toy tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from podpo.tasks.toy import Bandit, MultiGoal, PointTrack, ToyTask

SIZE_INCH, DPI = 4.0, 100
MARGINS = (0.18, 0.13, 0.79, 0.84)
"""Left, bottom, width and height of the axes; working them out anew for each frame would take most of the time."""


def draw_point_track(axes: Axes, task: PointTrack) -> None:
    """The first environment: each column is one dimension, the ring its target, the dot its point."""
    position, target = task.state["position"][0], task.state["phase"][0].sin()
    columns = np.arange(task.num_dims)
    axes.vlines(columns, target.cpu(), position.cpu(), color="0.8")
    axes.scatter(columns, target.cpu(), s=90, facecolors="none", edgecolors="C1", label="target")
    axes.scatter(columns, position.cpu(), s=30, color="C0", label="point")
    axes.set(ylim=(-2, 2), xlabel="dimension", ylabel="position")
    axes.legend(loc="upper right", ncols=2)


def draw_multi_goal(axes: Axes, task: MultiGoal) -> None:
    """All environments as dots among the goals."""
    axes.scatter(*task.goals.T.cpu(), s=900, color="C1", alpha=0.3)
    axes.scatter(*task.state["position"].T.cpu(), s=30, color="C0")
    axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal")


def draw_bandit(axes: Axes, task: Bandit) -> None:
    """All environments' latest actions, turned so that the two good ones lie left and right."""
    direction = task.last_direction
    across = torch.stack([-direction[:, 1], direction[:, 0]], dim=1)
    action = task.last_action
    axes.scatter([-1, 1], [0, 0], s=2500, color="C1", alpha=0.3)
    axes.scatter((action * direction).sum(dim=1).cpu(), (action * across).sum(dim=1).cpu(), s=30, color="C0")
    axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal")


DRAWINGS: dict[type[ToyTask], Callable[[Axes, Any], None]] = {
    PointTrack: draw_point_track,
    MultiGoal: draw_multi_goal,
    Bandit: draw_bandit,
}


def render(task: ToyTask) -> np.ndarray:
    """One frame `[H, W, 3]` of bytes."""
    figure = Figure(figsize=(SIZE_INCH, SIZE_INCH), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    DRAWINGS[type(task)](figure.add_axes(MARGINS), task)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
