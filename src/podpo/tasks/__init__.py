"""The tasks by name. A task is an rsl_rl `VecEnv`; the heavy import happens when one is made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from podpo.installation import LIBRARIES_LINE, missing_libraries
from podpo.validation import ConfigError, near_and_known

if TYPE_CHECKING:
    from podpo.tasks.toy import ToyTask

TASKS: dict[str, str] = {
    "point-track": "podpo.tasks.toy:PointTrack",
    "multi-goal": "podpo.tasks.toy:MultiGoal",
    "bandit": "podpo.tasks.toy:Bandit",
}


def check_task(name: str) -> str:
    """The name, if there is a task of that name."""
    if name not in TASKS:
        raise ConfigError(f"there is no task {name!r}: {near_and_known(name, TASKS)}")
    return name


def make_task(name: str, num_envs: int, seed: int, device: str = "cpu") -> ToyTask:
    """A task with `num_envs` environments; the same seed gives the same episodes."""
    module, _, attribute = TASKS[check_task(name)].partition(":")
    try:
        home = import_module(module)
    except (ImportError, OSError) as error:
        remedy = f"run '{LIBRARIES_LINE}'" if missing_libraries() else "'podpo doctor' tells what is missing"
        raise ConfigError(f"the task {name!r} cannot be loaded ({error}): {remedy}.") from error
    return getattr(home, attribute)(num_envs=num_envs, seed=seed, device=device)
