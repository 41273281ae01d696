"""The command line: `podpo train | eval | play | export | plot | doctor`, also as `python -m podpo`.

Only light modules are imported here; torch comes with the command that needs it, so that --help is quick.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg, subcommand

from podpo.config import AlgorithmName, ConfigError, Deployment, RunConfig, near_and_known, require

DEFAULT_TASK = "point-track"
INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Train(RunConfig):
    """Train a policy. Without a task, the main one."""

    task: Positional[str] = DEFAULT_TASK
    """Name of the task: point-track, multi-goal or bandit."""
    resume: str | None = None
    """Go on with a run: `latest`, a run folder or a checkpoint. Its settings hold unless given anew here."""

    def run(self) -> int:
        from podpo.commands import train

        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(RunConfig)}
        return train(RunConfig(**values), self.resume)


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Measure a trained policy, or an agent that does nothing (zero) or anything (random)."""

    policy: Positional[str]
    """A run folder, a checkpoint, `latest`, `zero` or `random`."""
    task: str = DEFAULT_TASK
    """Task for the zero and random agents."""
    noise: Deployment = "zero"
    """The action: at zero noise, at sampled noise, or the mean over several noises."""
    episodes: int = 256
    """Number of episodes, run side by side."""
    seed: int | None = None
    """Seed of the episodes; the run's own by default."""
    best: bool = False
    """Take the checkpoint with the best noise-free return instead of the last."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __post_init__(self) -> None:
        require(self.episodes >= 1, "episodes", self.episodes, "use 1 or more")

    def run(self) -> int:
        from podpo.commands import evaluate_policy

        return evaluate_policy(self)


@dataclass(frozen=True, kw_only=True)
class Play:
    """Film a policy."""

    policy: Positional[str]
    """A run folder, a checkpoint, `latest`, `zero` or `random`."""
    video: Path
    """File to write: .gif, or .mp4."""
    task: str = DEFAULT_TASK
    """Task for the zero and random agents."""
    noise: Deployment = "zero"
    """The action: at zero noise, at sampled noise, or the mean over several noises."""
    seed: int = 1
    """Seed of the episode."""
    best: bool = False
    """Take the checkpoint with the best noise-free return instead of the last."""

    def run(self) -> int:
        from podpo.commands import play

        return play(self)


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a policy as one file, checked against the original before it is put in place."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """A run folder, a checkpoint or `latest`."""
    out: Path = Path("policy.onnx")
    """File to write: .onnx (ONNX) or .pt (TorchScript)."""
    noise: Literal["zero", "mean", "input"] = "zero"
    """`zero` and `mean` fix the noise (obs -> actions); `input` takes it (obs, noise -> actions)."""
    best: bool = False
    """Take the checkpoint with the best noise-free return instead of the last."""

    def run(self) -> int:
        from podpo.commands import export

        return export(self)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw the learning curves of runs."""

    runs: Positional[tuple[str, ...]]
    """Run folders, or `latest`."""
    out: Path = Path("curve.png")
    """Picture to write."""

    def run(self) -> int:
        from podpo.commands import plot

        return plot(self)


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Tell what is installed, what is missing, and the line that mends it."""

    def run(self) -> int:
        from podpo.doctor import examine

        return examine()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code (0 done, 1 failed, 2 bad input, 130 interrupted)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = parse(given)
        return command.run()
    except ConfigError as error:
        print(f"podpo: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"podpo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("podpo: interrupted", file=sys.stderr)
        return INTERRUPTED


def parse(arguments: list[str]) -> Any:
    """The command that the arguments name, with every setting in place."""
    commands: dict[str, Any] = {"eval": Eval, "play": Play, "export": Export, "plot": Plot, "doctor": Doctor}
    known = ["train", *commands]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in known:
        raise ConfigError(f"there is no command {arguments[0]!r}: {near_and_known(arguments[0], known)}")
    train = starting_point(arguments[1:] if arguments[:1] == ["train"] else [])
    union: Any = Annotated[Train, subcommand("train", default=train)]
    for name, command in commands.items():
        union |= Annotated[command, subcommand(name)]
    return tyro.cli(union, args=arguments or ["--help"], prog="podpo", description=__doc__)


def starting_point(arguments: list[str]) -> Train:
    """The settings that flags are applied to: the preset of task and algorithm, or those of a run to resume."""
    from podpo.presets import preset
    from podpo.run_folder import find_run

    resume = _value_of("--resume", arguments)
    if resume is not None:
        folder, _ = find_run(resume, _value_of("--log-root", arguments) or "logs")
        return _as_train(folder.read_config(), resume)
    task = arguments[0] if arguments and not arguments[0].startswith("-") else DEFAULT_TASK
    name = _value_of("--algorithm.name", arguments) or "podpo"
    algorithm: AlgorithmName = "ppo" if name == "ppo" else "podpo"  # any other value is tyro's to refuse
    return _as_train(preset(task, algorithm), None)


def _as_train(config: RunConfig, resume: str | None) -> Train:
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(RunConfig)}
    return Train(**values, resume=resume)


def _value_of(flag: str, arguments: list[str]) -> str | None:
    for position, argument in enumerate(arguments):
        if argument == flag and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(flag + "="):
            return argument.partition("=")[2]
    return None
