"""The command line, also as `python -m podpo`.

Only light modules are imported here; torch comes with the command that needs it, so that --help is quick.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import tyro
from tyro.conf import subcommand

from podpo import __version__
from podpo.arguments import COMMANDS, Train
from podpo.config import AlgorithmName, RunConfig
from podpo.installation import uses_gpu
from podpo.presets import DEFAULT_TASK, preset
from podpo.run_folder import find_run
from podpo.validation import ConfigError, DivergedError, ProcessDiedError, near_and_known

DESCRIPTION = "Train robots with one-step generative policies."
INTERRUPTED = 130


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
