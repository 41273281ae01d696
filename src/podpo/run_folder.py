"""The folder of one training run: what was asked for, what ran, metrics and checkpoints.

logs/<task>/<time>_<algorithm>_seed<k>/
    params/config.json      the configuration, whole
    params/run.json         command, commit, versions, machine; one entry per start
    progress.csv            one row per iteration
    evaluations.csv         one row per evaluation
    checkpoints/last.pt     the newest state, from which training resumes bit for bit
    checkpoints/best.pt     the state with the best noise-free return
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: nobody keeps two processes from training one run
    fcntl = None

from podpo.config import RunConfig
from podpo.validation import ConfigError, from_dict

SOURCES = ("src", "pyproject.toml", "benchmarks/*.py")
"""What a result depends on; with uncommitted changes in it, a commit does not tell what ran."""
VERSIONED = ("podpo", "torch", "rsl-rl-lib", "tensordict", "numpy", "genesis-world")


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "params" / "config.json"

    @property
    def last(self) -> Path:
        return self.path / "checkpoints" / "last.pt"

    @property
    def best(self) -> Path:
        return self.path / "checkpoints" / "best.pt"

    def read_config(self) -> RunConfig:
        """The configuration that the run was started with."""
        try:
            record = json.loads(self.config_file.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path} is no run folder: {self.config_file} cannot be read ({error}).") from None
        if not isinstance(record, dict):
            raise ConfigError(f"{self.config_file} holds no settings.")
        try:
            return from_dict(RunConfig, record)
        except ConfigError as error:
            raise ConfigError(f"{self.config_file}: {error}") from None

    @contextlib.contextmanager
    def being_written(self) -> Iterator[None]:
        """Keep other processes from training this run, too; the system lets go of it even after kill -9."""
        with (self.path / ".lock").open("w") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ConfigError(f"{self.path} is being trained by another process: wait for it.") from None
            yield


def create_run(config: RunConfig) -> RunFolder:
    """A new folder with the records of `config`."""
    stem = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{config.algorithm.name}_seed{config.seed}"
    root = Path(config.log_root) / config.task
    for attempt in range(1, 1000):
        folder = RunFolder(root / (stem if attempt == 1 else f"{stem}_{attempt}"))
        try:
            (folder.path / "checkpoints").mkdir(parents=True)
            break
        except FileExistsError:
            continue
    else:
        raise ConfigError(f"log_root = {config.log_root!r} cannot work: no free name for {stem} in {root}.")
    write_records(folder, config)
    return folder


def branch_run(origin: RunFolder, checkpoint: Path, config: RunConfig) -> RunFolder:
    """A new folder to go on in from an earlier checkpoint of `origin`, which keeps all that came after it."""
    branch = create_run(config)
    for target in (branch.last, branch.best):
        shutil.copyfile(checkpoint, target)
    for table in ("progress.csv", "evaluations.csv"):
        shutil.copyfile(origin.path / table, branch.path / table)
    return branch


FIXED_FOR_A_RUN = ("task", "num_envs", "num_processes", "num_steps_per_env", "seed", "desynchronize_episodes")
FIXED_FOR_AN_ALGORITHM = ("name", "actor", "critic", "optimizer")


def check_resumed(before: RunConfig, after: RunConfig) -> None:
    """Refuse to go on with a run of another shape; schedules, limits and intervals may change."""
    for names, old, new, where in (
        (FIXED_FOR_A_RUN, before, after, ""),
        (FIXED_FOR_AN_ALGORITHM, before.algorithm, after.algorithm, "algorithm."),
    ):
        for name in names:
            if getattr(old, name) != getattr(new, name):
                raise ConfigError(
                    f"{where}{name} = {getattr(new, name)!r} cannot work: the run to resume has "
                    f"{getattr(old, name)!r}. Leave it out, or start a new run."
                )


def discard_run(folder: RunFolder) -> None:
    """Remove a run that could not start, and the folders around it that it leaves empty."""
    shutil.rmtree(folder.path)
    with contextlib.suppress(OSError):
        folder.path.parent.rmdir()
        folder.path.parent.parent.rmdir()


def write_records(folder: RunFolder, config: RunConfig) -> None:
    """The configuration that holds from now on, and one more entry of who started what."""
    history = folder.path / "params" / "run.json"
    starts: list[Any] = []
    with contextlib.suppress(OSError, ValueError):  # there is none yet, or a crash has damaged it
        starts = json.loads(history.read_text())
    write_json(history, [*starts, describe_run()])
    write_json(folder.config_file, asdict(config))


def find_run(name: str, log_root: str = "logs", best: bool = False) -> tuple[RunFolder, Path]:
    """The run and the checkpoint that `name` means: `latest`, a run folder, or a checkpoint file."""
    if Path(name).is_file() and Path(name).parent.name == "checkpoints":
        return RunFolder(Path(name).parent.parent), Path(name)
    folder = find_folder(name, log_root)
    checkpoint = folder.best if best else folder.last
    if not checkpoint.is_file():
        others = [str(other) for other in (folder.last, folder.best) if other.is_file()]
        instead = f"there is {others[0]}" if others else "it ended before the first was written, or has just begun"
        raise ConfigError(f"the run has no checkpoint {checkpoint}: {instead}.")
    return folder, checkpoint


def find_folder(name: str, log_root: str = "logs") -> RunFolder:
    """The run that `name` means, whether or not it has a checkpoint."""
    folder = RunFolder(_latest_run(log_root) if name == "latest" else Path(name))
    if not folder.config_file.is_file():
        raise ConfigError(
            f"there is no run at {str(folder.path)!r}: give a run folder (such as "
            f"logs/point-track/<time>_podpo_seed1), a file in its checkpoints/, or 'latest'."
        )
    return folder


def _latest_run(log_root: str) -> Path:
    checkpoints = list(Path(log_root).glob("*/*/checkpoints/*.pt"))
    if not checkpoints:
        raise ConfigError(f"there is no run to take as 'latest' in {log_root!r}: train one first, or give its path.")
    return max(checkpoints, key=lambda file: file.stat().st_mtime).parent.parent


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file so that a kill or a full disk at any moment leaves the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, record: Any) -> None:
    text = json.dumps(record, indent=2) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def describe_run() -> dict[str, Any]:
    """What someone needs to know to repeat a run: command, commit, versions, machine."""
    return {
        "command": shlex.join(["podpo", *sys.argv[1:]]),
        "commit": commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "versions": {name: installed for name in VERSIONED if (installed := _installed(name))},
        "machine": describe_machine(),
    }


def commit() -> str:
    """Commit of podpo's source; PODPO_COMMIT tells it where the source has come without its own history."""
    changed = "+changes" if _git("status", "--porcelain", "--", *SOURCES) else ""
    return os.environ.get("PODPO_COMMIT") or _git("rev-parse", "HEAD") + changed


def describe_machine() -> str:
    """Processor, cores and GPU in a line."""
    import torch

    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{processor}, {os.cpu_count()} cores{gpu}"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    """Output of git in podpo's own source tree, empty where it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
