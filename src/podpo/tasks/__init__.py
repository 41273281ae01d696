"""The tasks by name. A task is an rsl_rl `VecEnv`; the heavy import happens when one is made."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from podpo.installation import LIBRARIES_LINE, extra_line, missing_libraries
from podpo.validation import ConfigError, near_and_known

if TYPE_CHECKING:
    from podpo.tasks.task import Task

TASKS: dict[str, str] = {
    "go2-walk": "podpo.tasks.go2_walk:Go2Walk",
    "go2-walk-fixed": "podpo.tasks.go2_walk:Go2WalkFixed",
    "point-track": "podpo.tasks.toy:PointTrack",
    "multi-goal": "podpo.tasks.toy:MultiGoal",
    "bandit": "podpo.tasks.toy:Bandit",
}


def check_task(name: str) -> str:
    """The name, if there is a task of that name."""
    if name not in TASKS:
        raise ConfigError(f"there is no task {name!r}: {near_and_known(name, TASKS)}")
    return name


MAX_RETURNS = {"go2-walk": 24.0, "go2-walk-fixed": 24.0, "point-track": 100.0, "bandit": 1.0}
"""The most that an episode can pay, where it is known."""


def is_simulated(name: str) -> bool:
    """Whether a task runs in a simulator: it takes a while to build, and gains from a GPU."""
    return "toy" not in TASKS[check_task(name)]


def make_task(name: str, num_envs: int, seed: int, device: str = "cpu", num_processes: int = 1) -> Task:
    """A task with `num_envs` environments; the same seed (and number of processes) gives the same episodes."""
    if num_processes == 1:
        task = task_class(name)(num_envs=num_envs, seed=seed, device=device)
    else:
        from podpo.tasks.sharded import ShardedTask

        task = ShardedTask(partial(make_task, name), num_envs, seed, num_processes)
    task.made_to = (name, num_envs, device, num_processes)
    return task


def make_filmed_task(name: str, seed: int, device: str = "cpu") -> Task:
    """A task that can draw pictures of itself, with as many environments as one shows well."""
    home = task_class(name)
    return home(num_envs=home.num_filmed, seed=seed, device=device, for_film=True)


def task_class(name: str) -> type[Task]:
    """The class of a task, whose simulator is imported now."""
    module, _, attribute = TASKS[check_task(name)].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, OSError) as error:
        raise ConfigError(f"the task {name!r} cannot be loaded ({error}): {_remedy(name)}.") from error


def _remedy(name: str) -> str:
    if is_simulated(name) and find_spec("genesis") is None:
        return f"run '{extra_line('genesis')}'"
    return f"run '{LIBRARIES_LINE}'" if missing_libraries() else "'podpo doctor' tells what is missing"
