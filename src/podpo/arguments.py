"""What each command can be told; the docstrings are the help that the command line prints.

Only light modules are imported here; the work, and torch with it, comes when a command runs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from podpo.config import Deployment, RunConfig
from podpo.presets import DEFAULT_TASK
from podpo.validation import require


@dataclass(frozen=True, kw_only=True)
class Train(RunConfig):
    """Train a policy. Without a task, the main one."""

    task: Annotated[Positional[str], arg(metavar="[TASK]")] = DEFAULT_TASK
    """Name of the task: go2-walk, go2-walk-fixed, point-track, multi-goal or bandit."""
    resume: str | None = None
    """Go on with a run: `latest`, a run folder or a checkpoint. Its settings hold unless given anew here. From
    another checkpoint than its last, training goes on in a new folder."""

    def run(self) -> int:
        from podpo.commands import train

        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(RunConfig)}
        return train(RunConfig(**values), self.resume)


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """What finds a run and one of its checkpoints."""

    log_root: str = "logs"
    """Folder in which `latest` is looked for."""
    best: bool = False
    """Take the checkpoint with the best noise-free return instead of the last."""


@dataclass(frozen=True, kw_only=True)
class OfPolicy(OfRun):
    """What names a policy: a run's, or an agent that needs no training."""

    policy: Annotated[Positional[str], arg(metavar="RUN|zero|random")]
    """A run folder, a checkpoint, `latest`, `zero` or `random`."""
    task: str | None = None
    """Task of the zero and random agents (go2-walk when unset); a run has its own."""
    noise: Deployment = "zero"
    """A run's action: at zero noise, at sampled noise, or the mean over several noises."""


@dataclass(frozen=True, kw_only=True)
class Eval(OfPolicy):
    """Measure a trained policy, or an agent that does nothing (zero) or anything (random)."""

    episodes: int = 256
    """Number of episodes, run side by side."""
    seed: int | None = None
    """Seed of the episodes; the run's own by default."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __post_init__(self) -> None:
        require(self.episodes >= 1, "episodes", self.episodes, "use 1 or more")
        require(self.seed is None or 0 <= self.seed < 2**31, "seed", self.seed, "use 0 or more, below 2^31")

    def run(self) -> int:
        from podpo.commands import evaluate_policy

        return evaluate_policy(self)


@dataclass(frozen=True, kw_only=True)
class Play(OfPolicy):
    """Film a policy."""

    video: Path
    """File to write: .mp4, .gif, or .png for a sheet of frames."""
    seed: int = 1
    """Seed of the episode."""

    def run(self) -> int:
        from podpo.commands import play

        return play(self)


@dataclass(frozen=True, kw_only=True)
class Export(OfRun):
    """Write a policy as one file, checked against the original before it is put in place."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """A run folder, a checkpoint or `latest`."""
    out: Path = Path("policy.onnx")
    """File to write: .onnx (ONNX), .pt (TorchScript) or .safetensors (the weights alone)."""
    noise: Literal["zero", "mean", "input"] = "zero"
    """`zero` and `mean` fix the noise (obs -> actions); `input` takes it (obs, noise -> actions)."""

    def run(self) -> int:
        from podpo.commands import export

        return export(self)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw the learning curves of runs."""

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN ...")]
    """Run folders, or `latest`."""
    out: Path = Path("curve.png")
    """Picture to write."""
    log_root: str = "logs"
    """Folder in which `latest` is looked for."""

    def __post_init__(self) -> None:
        require(len(self.runs) > 0, "runs", self.runs, "name one or more run folders, or 'latest'")

    def run(self) -> int:
        from podpo.commands import plot

        return plot(self)


@dataclass(frozen=True, kw_only=True)
class StudyCommand:
    """Train a whole study: every variant with every seed. What is there already is not run again."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """go2, go2-fixed, go2-search or go2-cpu-search."""
    results: Path = Path("benchmarks/results")
    """Folder for the CSV files of all studies."""
    log_root: Path = Path("logs/study")
    """Folder for the run folders."""
    workers: int | None = None
    """Processes that train side by side; one per GPU, or one per core, when unset."""
    max_time: float | None = None
    """Seconds after which no further run is started."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; `auto` is a GPU, if there is one."""

    def __post_init__(self) -> None:
        require(self.workers is None or self.workers >= 1, "workers", self.workers, "use 1 or more")
        require(self.max_time is None or self.max_time > 0, "max_time", self.max_time, "use seconds > 0")

    def run(self) -> int:
        from podpo.commands import study

        return study(self)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Tables and figures of a study, from its CSV files alone."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """Name of the study."""
    results: Path = Path("benchmarks/results")
    """Folder with the CSV files of all studies."""
    out: Path | None = None
    """Folder for report.md and the figures; that of the study's CSV files when unset."""

    def run(self) -> int:
        from podpo.commands import report

        return report(self)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed, as ratios to the bare simulator in the same run."""

    what: Annotated[Positional[Literal["env", "train"]], arg(metavar="env|train")]
    """`env`: a step of the task; `train`: an iteration of PPO and of PODPO."""
    task: str = DEFAULT_TASK
    """A simulated task."""
    num_envs: int | None = None
    """Environments side by side; those of the task's preset when unset."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; `auto` is a GPU, if there is one."""
    results: Path | None = None
    """Folder of CSV files (env.csv, train.csv) to append to."""

    def __post_init__(self) -> None:
        require(self.num_envs is None or self.num_envs >= 1, "num_envs", self.num_envs, "use 1 or more")

    def run(self) -> int:
        from podpo.commands import bench

        return bench(self)


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Tell what is installed, what is missing, and the line that mends it."""

    def run(self) -> int:
        from podpo.doctor import examine

        return examine()


COMMANDS: dict[str, Any] = {
    "train": Train,
    "eval": Eval,
    "play": Play,
    "export": Export,
    "plot": Plot,
    "study": StudyCommand,
    "report": Report,
    "bench": Bench,
    "doctor": Doctor,
}
