"""The command line, also as `python -m podpo`.

Only light modules are imported here; torch comes with the command that needs it, so that --help is quick.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro
from tyro.conf import Positional, arg, subcommand

from podpo import __version__
from podpo.config import AlgorithmName, Deployment, RunConfig
from podpo.installation import uses_gpu
from podpo.presets import DEFAULT_TASK, preset
from podpo.run_folder import find_run
from podpo.validation import ConfigError, DivergedError, ProcessDiedError, near_and_known, require

DESCRIPTION = "Train robots with one-step generative policies."
INTERRUPTED = 130


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
    """go2-search, go2 or go2-fixed."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code (0 done, 1 failed, 2 bad input, 130 interrupted)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"podpo {__version__}")
        return 0
    try:
        # Threads that wait for each other would otherwise burn the core that another training needs.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        return parse(given).run()
    except (DivergedError, ProcessDiedError) as error:
        print(f"podpo: {error}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"podpo: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"podpo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("podpo: interrupted", file=sys.stderr)
        return INTERRUPTED


def parse(arguments: list[str]) -> Any:
    """The command that the arguments name, with every setting in place."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise ConfigError(f"there is no command {arguments[0]!r}: {near_and_known(arguments[0], COMMANDS)}")
    first_word = next(iter(arguments[1:]), "-")
    task = DEFAULT_TASK if arguments[:1] != ["train"] or first_word.startswith("-") else first_word
    arguments = _with_resumed_checkpoint(arguments)
    parsed = _parse_from(task, arguments)
    if isinstance(parsed, Train) and parsed.resume is None and parsed.task != task:
        return _parse_from(parsed.task, arguments)  # the task came after a flag: now with its own preset
    return parsed


def _parse_from(task: str, arguments: list[str]) -> Any:
    """Parse with the preset of `task` (or the run to resume) below what the arguments say."""
    train = starting_point(arguments[1:] if arguments[:1] == ["train"] else [], task)
    union: Any = Annotated[Train, subcommand("train", default=train)]
    for name, command in COMMANDS.items():
        if name != "train":
            union |= Annotated[command, subcommand(name)]
    return tyro.cli(union, args=arguments or ["--help"], prog="podpo", description=DESCRIPTION)


def starting_point(arguments: list[str], task: str) -> Train:
    """The settings that flags are applied to: the preset of task and algorithm, or those of a run to resume."""
    resume = _value_of("--resume", arguments)
    if resume is not None:
        config = find_run(resume)[0].read_config()
        return _as_train(dataclasses.replace(config, max_time=None), resume)  # the limit was that process's own
    name = _value_of("--algorithm.name", arguments) or "podpo"
    algorithm: AlgorithmName = "ppo" if name == "ppo" else "podpo"  # any other value is tyro's to refuse
    return _as_train(preset(task, algorithm, uses_gpu(_value_of("--device", arguments) or "auto")), None)


def _with_resumed_checkpoint(arguments: list[str]) -> list[str]:
    """The arguments with --resume naming a file: what `latest` means may change from one look to the next."""
    found = _find("--resume", arguments)
    if arguments[:1] != ["train"] or found is None:
        return arguments
    _, checkpoint = find_run(found.value, _value_of("--log-root", arguments) or "logs")
    return [*arguments[: found.start], f"--resume={checkpoint}", *arguments[found.end :]]


def _as_train(config: RunConfig, resume: str | None) -> Train:
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(RunConfig)}
    return Train(**values, resume=resume)


class _Flag(NamedTuple):
    """A flag's value among the arguments, and where the two stand."""

    value: str
    start: int
    end: int


def _find(flag: str, arguments: list[str]) -> _Flag | None:
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == flag:  # the parser takes either
            if equals:
                return _Flag(value, i, i + 1)
            return _Flag(arguments[i + 1], i, i + 2) if i + 1 < len(arguments) else None
    return None


def _value_of(flag: str, arguments: list[str]) -> str | None:
    found = _find(flag, arguments)
    return None if found is None else found.value
