"""A task spread over processes: a simulator that computes on one core alone uses all of them so.

Each process simulates its share of the environments; actions and what comes of them lie in memory that all share.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.multiprocessing import get_context

from podpo.tasks.task import Task
from podpo.validation import ProcessDiedError

SEED_STRIDE = 10_000_019
"""From the seed of one process to that of the next."""

MakeTask = Callable[[int, int], Task]
"""(num_envs, seed) -> task; a function of a module, since it travels to other processes."""


class Crew:
    """Processes that simulate, kept for all tasks that come: starting one takes longer than a task's scene."""

    by_size: dict[int, Crew] = {}  # noqa: RUF012  one for the whole program

    def __init__(self, size: int) -> None:
        context = get_context("spawn")
        self.pipes: list[Any] = []
        self.processes: list[Any] = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=_serve, args=(theirs,), daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)
        self.num_tasks = 0

    @classmethod
    def of(cls, size: int) -> Crew:
        if size not in cls.by_size:
            cls.by_size[size] = cls(size)
        return cls.by_size[size]

    def ask(self, *messages: Any) -> list[Any]:
        """Send each process its message (or all the same one), and wait for all answers."""
        if len(messages) == 1:
            messages *= len(self.pipes)
        try:
            for pipe, message in zip(self.pipes, messages, strict=True):
                pipe.send(message)
            answers = [pipe.recv() for pipe in self.pipes]
        except (EOFError, ConnectionError):
            type(self).by_size.clear()
            raise ProcessDiedError(
                "a process of the simulator has died (was the memory full?); a training goes on from its last "
                "checkpoint with --resume"
            ) from None
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


class ShardedTask(Task):
    """The same task in several processes, as one."""

    def __init__(self, make: MakeTask, num_envs: int, seed: int, num_processes: int) -> None:
        self.num_envs, self.device, self.num_processes = num_envs, "cpu", num_processes
        self.crew = Crew.of(num_processes)
        self.id = self.crew.num_tasks
        self.crew.num_tasks += 1
        bounds = [num_envs * i // num_processes for i in range(num_processes + 1)]
        self.shares = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        sizes = [(share.stop - share.start, seed + i * SEED_STRIDE) for i, share in enumerate(self.shares)]
        described = self.crew.ask(*(("make", self.id, (make, *size)) for size in sizes))[0]
        self.num_actions, self.num_obs = described["num_actions"], described["num_obs"]
        self.max_episode_length, self.step_dt = described["max_episode_length"], described["step_dt"]
        self.measures, self.log_names = described["measures"], described["log"]
        self.cfg = described["cfg"] | {"num_envs": num_envs, "seed": seed}
        self.shared = {name: torch.zeros(num_envs, *shape).share_memory_() for name, shape in self._shapes().items()}
        self.shared |= {
            name: torch.zeros(num_envs, dtype=torch.bool).share_memory_() for name in ("dones", "time_outs")
        }
        self.shared["lengths"] = torch.zeros(num_envs, dtype=torch.long).share_memory_()
        self.log = torch.zeros(num_processes, len(self.log_names)).share_memory_()
        self.crew.ask(
            *(
                ("share", self.id, ({n: tensor[share] for n, tensor in self.shared.items()}, self.log[i], sizes[i][1]))
                for i, share in enumerate(self.shares)
            )
        )

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        obs, measures = (self.num_obs,), (len(self.measures),)
        return {"actions": (self.num_actions,), "obs": obs, "final_obs": obs, "rewards": (), "measures": measures}

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        self.shared["actions"].copy_(actions)
        self.crew.ask(("step", self.id, ()))
        shared = self.shared
        extras: dict[str, Any] = {
            "time_outs": shared["time_outs"].clone(),
            "final_obs": self._as_observations(shared["final_obs"]),
            "measures": dict(zip(self.measures, shared["measures"].clone().unbind(dim=1), strict=True)),
            "log": dict(zip(self.log_names, self.log.mean(dim=0).unbind(), strict=True)),
        }
        return self.get_observations(), shared["rewards"].clone(), shared["dones"].clone(), extras

    def get_observations(self) -> TensorDict:
        return self._as_observations(self.shared["obs"])

    def reset(self, seed: int | None = None) -> TensorDict:
        seeds = [None if seed is None else seed + i * SEED_STRIDE for i in range(self.num_processes)]
        self.crew.ask(*(("reset", self.id, (each,)) for each in seeds))
        return self.get_observations()

    def desynchronize(self) -> None:
        self.crew.ask(("desynchronize", self.id, ()))

    @property
    def episode_length_buf(self) -> Tensor:
        return self.shared["lengths"]

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: Tensor) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.crew.ask(*(("set_lengths", self.id, (lengths[share].clone(),)) for share in self.shares))

    def state_dict(self) -> dict[str, Tensor]:
        states = self.crew.ask(("state_dict", self.id, ()))
        return {f"{i}.{name}": value for i, state in enumerate(states) for name, value in state.items()}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        states: list[dict[str, Tensor]] = [{} for _ in self.shares]
        for name, value in saved.items():
            process, _, own_name = name.partition(".")
            states[int(process)][own_name] = value
        self.crew.ask(*(("load_state_dict", self.id, (state,)) for state in states))

    def export_metadata(self) -> dict[str, Any]:
        return self.crew.ask(("export_metadata", self.id, ()))[0]

    def summarize(self, measures: Mapping[str, float]) -> dict[str, float]:
        return self.crew.ask(("summarize", self.id, (dict(measures),)))[0]

    def _as_observations(self, obs: Tensor) -> TensorDict:
        return TensorDict({"policy": obs.clone()}, batch_size=[self.num_envs], device=self.device)


class _Share:
    """What one process holds of a task."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def describe(self) -> dict[str, Any]:
        task = self.task
        _, _, _, extras = task.step(torch.zeros(task.num_envs, task.num_actions))
        names = ("num_actions", "num_obs", "max_episode_length", "step_dt", "cfg")
        self.log_names = list(extras.get("log", {}))  # of a task that logs at every step
        lists = {"measures": list(extras.get("measures", {})), "log": self.log_names}
        return {name: getattr(task, name) for name in names} | lists

    def share(self, tensors: dict[str, Tensor], log: Tensor, seed: int) -> None:
        self.shared, self.log = tensors, log
        self.reset(seed)

    def step(self) -> None:
        extras: dict[str, Any]
        obs, rewards, dones, extras = self.task.step(self.shared["actions"])
        self._show(obs)
        self.shared["rewards"].copy_(rewards)
        self.shared["dones"].copy_(dones)
        self.shared["time_outs"].copy_(extras["time_outs"])
        self.shared["final_obs"].copy_(extras["final_obs"]["policy"])
        for i, value in enumerate(extras.get("measures", {}).values()):
            self.shared["measures"][:, i] = value
        for i, name in enumerate(self.log_names):
            self.log[i] = extras["log"][name]

    def reset(self, seed: int | None) -> None:
        self._show(self.task.reset(seed))

    def desynchronize(self) -> None:
        self.task.desynchronize()
        self._show(self.task.get_observations())

    def set_lengths(self, lengths: Tensor) -> None:
        self.task.episode_length_buf = lengths
        self._show(self.task.get_observations())

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        self.task.load_state_dict(saved)
        self._show(self.task.get_observations())

    def _show(self, obs: TensorDict) -> None:
        self.shared["obs"].copy_(obs["policy"])
        self.shared["lengths"].copy_(self.task.episode_length_buf)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)


def _serve(pipe: Any) -> None:
    """Answer one message after the other, until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
    shares: dict[int, _Share] = {}
    while True:
        try:
            verb, task_id, arguments = pipe.recv()
        except EOFError:
            return
        try:
            if verb == "make":
                make, num_envs, seed = arguments
                shares[task_id] = _Share(make(num_envs, seed))
                answer = shares[task_id].describe()
            else:
                answer = getattr(shares[task_id], verb)(*arguments)
        except Exception as error:
            answer = error
        pipe.send(answer)
