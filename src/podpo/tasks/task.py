"""What every task of podpo is: rsl_rl's `VecEnv`, and what training, evaluation, films and export ask besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor


class Task(VecEnv):
    """A vectorised task. The same seed gives the same episodes.

    `extras` of a step holds `time_outs` (the clock ended the episode, not a failure), `final_obs` (observations
    before the reset) and `log` (numbers to log, each a scalar). Where a task has them, also `measures` (by name, a
    number for each environment, of which an evaluation takes the mean over all steps of an episode) and, for one with
    several equally good solutions, `mode` (the one that an episode found, -1 for none) and `context` (episodes of one
    context are compared with each other).
    """

    num_envs: int
    num_actions: int
    num_obs: int
    made_to: tuple[str, int, str, int] | None = None
    """Name, environments, device and processes that `make_task` was asked for."""
    step_dt: float
    """Seconds between two actions."""
    num_modes: int = 0
    num_contexts: int = 1
    num_filmed: int = 16
    """Environments in a film."""
    film_steps: int
    """Length of a film."""
    film_stride: int = 1
    """Steps from one frame to the next."""
    film_fps: int = 20
    ends_for_good: bool = False
    """The last step is the end of the task (nothing follows), not a time-out."""

    def __init__(self, num_envs: int, seed: int = 1, device: str = "cpu", for_film: bool = False) -> None:
        raise NotImplementedError

    @property
    def unwrapped(self) -> Task:
        return self

    def reset(self, seed: int | None = None) -> TensorDict:
        """Start a new episode in every environment; with a seed, the first one of a new task with that seed."""
        raise NotImplementedError

    def desynchronize(self) -> None:
        """Let the running episodes end at different times, as if training had gone on for long."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the future depends on."""
        raise NotImplementedError

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` returned."""
        raise NotImplementedError

    def render_frame(self) -> np.ndarray:
        """A picture of the present state, `[H, W, 3]` bytes; only of a task made for a film."""
        raise NotImplementedError

    def export_metadata(self) -> dict[str, Any]:
        """What a user of an exported policy must know about its actions."""
        raise NotImplementedError

    def summarize(self, measures: Mapping[str, float]) -> dict[str, float]:
        """What an evaluation reports of the means of `measures` over all steps of all episodes."""
        return dict(measures)
