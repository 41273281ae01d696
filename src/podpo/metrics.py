"""Where a run's numbers go: two CSV files in the run folder, and tensorboard or wandb."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from podpo.config import RunConfig
from podpo.installation import extra_line
from podpo.run_folder import RunFolder, write_atomically
from podpo.validation import ConfigError


class ScalarWriter(Protocol):
    """What tensorboard's SummaryWriter does for us."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


class CsvTable:
    """A CSV file that grows by rows, and by columns: a number may be seen for the first time late in a run."""

    def __init__(self, path: Path, keep: Callable[[dict[str, str]], bool] = lambda row: True) -> None:
        """Rows that are there already and that `keep` does not want are removed."""
        self.path = path
        self._rewrite([row for row in read_table(path) if keep(row)] if path.exists() else [])

    def append(self, row: Mapping[str, Any]) -> None:
        if row.keys() <= set(self._writer.fieldnames):
            self._writer.writerow(row)
            self._file.flush()
        else:
            before = self._file
            self._rewrite([*read_table(self.path), row])
            before.close()

    def close(self) -> None:
        self._file.close()

    def _rewrite(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the file; where that fails, the old one stays in use."""
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, restval="")
        if rows:
            writer.writeheader()
            writer.writerows(rows)
        write_atomically(self.path, lambda file: file.write(text.getvalue().encode()))
        self._file = self.path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, columns, restval="")


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; a last row that a crash cut short is left out."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if None not in row and None not in row.values()]


class Metrics:
    """All destinations of one run."""

    def __init__(self, config: RunConfig, folder: RunFolder, start_iteration: int) -> None:

        def is_past(row: dict[str, str]) -> bool:  # the future of a checkpoint was lost in a crash
            return int(row["iteration"]) <= start_iteration

        self.progress = CsvTable(folder.path / "progress.csv", is_past)
        self.evaluations = CsvTable(folder.path / "evaluations.csv", is_past)
        self.writer = make_writer(config, folder, start_iteration)

    def log_iteration(self, row: Mapping[str, float]) -> None:
        self.progress.append(row)
        self._write(row)

    def log_evaluation(self, row: Mapping[str, float]) -> None:
        self.evaluations.append(row)
        self._write({"iteration": row["iteration"]} | {f"Eval/{n}": value for n, value in row.items() if "/" in n})

    def close(self) -> None:
        self.progress.close()
        self.evaluations.close()
        if self.writer is not None:
            self.writer.close()

    def _write(self, row: Mapping[str, float]) -> None:
        if self.writer is None:
            return
        for name, value in row.items():
            if name != "iteration":
                self.writer.add_scalar(name, value, int(row["iteration"]))


class WandbWriter:
    """Weights & Biases behind tensorboard's verb."""

    def __init__(self, config: RunConfig, folder: RunFolder) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        name = folder.path.name
        self._run = wandb.init(project="podpo", group=config.task, name=name, id=name, resume="allow", dir=folder.path)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._run.log({tag: scalar_value}, step=global_step)

    def close(self) -> None:
        self._run.finish()


def check_logger(name: str) -> None:
    """Refuse a logger that is not installed, before anything is created for it."""
    if name == "wandb" and find_spec("wandb") is None:
        raise ConfigError(f"logger = 'wandb' cannot work: it is not installed ({extra_line('wandb')}).")


def make_writer(config: RunConfig, folder: RunFolder, start_iteration: int) -> ScalarWriter | None:
    """The writer that `config.logger` asks for; tensorboard hides what a crashed run logged beyond its checkpoint."""
    if config.logger == "none":
        return None
    if config.logger == "wandb":
        return WandbWriter(config, folder)
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder.path), purge_step=start_iteration + 1 if start_iteration else None, flush_secs=10)
