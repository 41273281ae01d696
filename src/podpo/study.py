"""Runs of a study, side by side in worker processes; one CSV row per evaluation, and one per iteration.

results/<study>/evaluations.csv   one row per evaluation of each run
results/<study>/training.csv      one row per iteration of each run: the training return
logs/study/<study>/…              the run folders, from which a study that was stopped goes on

A worker trains one run after the other in the same simulator, which is built once. One that dies takes its run along
and is replaced; the next call of the study tries that run again, from its last checkpoint.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from podpo.config import RunConfig
from podpo.evaluation import AGENTS, evaluate, evaluation_seed
from podpo.metrics import CsvTable, read_table
from podpo.run_folder import RunFolder, create_run, describe_run
from podpo.studies import Study, Variant
from podpo.tasks import make_task
from podpo.training import Training

Row = dict[str, Any]
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    variant: Variant
    seed: int
    log_root: str

    @property
    def config(self) -> RunConfig:
        return replace(self.variant.config, seed=self.seed, log_root=self.log_root)

    @property
    def name(self) -> str:
        return f"{self.variant.label}, seed {self.seed}"


@dataclass
class Worker:
    """A process that trains, and the pipe to it."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None


def dismiss(*workers: Worker) -> None:
    """End processes, with time to save what they are at."""
    for worker in workers:
        worker.pipe.close()  # whereupon an idle one ends by itself
        if worker.job is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(timeout=PATIENCE_S)
        worker.process.kill()


def run_study(
    study: Study, results: Path, log_root: Path, num_workers: int, max_time_s: float | None, console: Console
) -> int:
    """Run what is missing; returns how many runs failed. No new run starts after `max_time_s`."""
    folder = results / study.name
    folder.mkdir(parents=True, exist_ok=True)
    tables = Tables(folder)
    jobs = [
        Job(variant, seed, str(log_root / study.name / _slug(variant.label)))
        for seed in study.seeds
        for variant in study.variants
        if (variant.label, str(seed)) not in tables.finished
    ]
    total = len(study.seeds) * len(study.variants)
    console.print(f"{study.name}: {study.question} {total - len(jobs)} of {total} runs are there", highlight=False)
    deadline = None if max_time_s is None else time.monotonic() + max_time_s
    about = provenance()
    failures = 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("runs", total=len(jobs))
        for job, outcome in outcomes(jobs, min(num_workers, max(len(jobs), 1)), deadline):
            if isinstance(outcome, str):
                failures += 1
                progress.console.print(f"[red]{job.name} failed: {outcome}[/]", highlight=False)
            else:
                tables.add(study, job, *outcome, about)
                progress.console.print(f"{job.name}: {_in_words(outcome[0][-1])}", highlight=False)
            progress.advance(bar)
    tables.close()
    return failures


def outcomes(
    jobs: Sequence[Job], num_workers: int, deadline: float | None = None
) -> Iterator[tuple[Job, tuple[list[Row], list[Row]] | str]]:
    """Each job with its rows, or with the reason why there are none, in the order in which they end."""
    waiting = list(jobs)
    num_threads = max((os.cpu_count() or 1) // num_workers, 1)
    workers = [_hire(num_threads) for _ in range(num_workers)]
    try:
        while True:
            for worker in workers:
                late = deadline is not None and time.monotonic() > deadline
                if worker.job is None and waiting and not late:
                    worker.job = waiting.pop(0)
                    worker.pipe.send(worker.job)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                return
            for pipe in wait([worker.pipe for worker in busy]):
                worker = next(w for w in busy if w.pipe is pipe)
                job, worker.job = worker.job, None
                assert job is not None
                try:
                    outcome = worker.pipe.recv()
                except EOFError:
                    worker.process.join()
                    outcome = f"its process ended with code {worker.process.exitcode}"
                if isinstance(outcome, str):  # who knows in what state the simulator or the GPU is now
                    dismiss(worker)
                    workers[workers.index(worker)] = _hire(num_threads)
                yield job, outcome
    finally:
        dismiss(*workers)


def _hire(num_threads: int) -> Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, num_threads))  # which may have children
    process.start()
    theirs.close()
    return Worker(process, ours)


def work(pipe: Connection, num_threads: int) -> None:
    """Train what comes through the pipe, and send back the rows, or the error in words."""
    torch.set_num_threads(num_threads)
    os.setsid()  # Ctrl-C is the study's to handle, which then asks each worker once to save and end
    training: Training | None = None
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            if job.variant.agent is not None:
                outcome = evaluate_agent(job), []
            else:
                training = train(job, training)
                if training.stop_signal is not None:
                    return
                outcome = rows_of(training.folder)
            pipe.send(outcome)
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def train(job: Job, before: Training | None) -> Training:
    """Train a run to its end, from its last checkpoint if it was begun; in the simulators of the run before."""
    folder = begun_run(job)
    checkpoint = folder.last if folder is not None and folder.last.is_file() else None
    if folder is None or checkpoint is None:
        folder = create_run(job.config)
    with folder.being_written():
        training = Training(job.config, folder, Console(quiet=True), checkpoint, reuse=before)
        if training.iteration < job.config.max_iterations:
            training.run()
    return training


def begun_run(job: Job) -> RunFolder | None:
    """The newest run folder of a job."""
    runs = sorted((Path(job.log_root) / job.config.task).glob(f"*_seed{job.seed}"))
    runs = [RunFolder(path) for path in runs if RunFolder(path).config_file.is_file()]
    return runs[-1] if runs and runs[-1].read_config() == job.config else None


def rows_of(folder: RunFolder) -> tuple[list[Row], list[Row]]:
    """A run's evaluations and its iterations."""
    evaluations, iterations = (read_table(folder.path / name) for name in ("evaluations.csv", "progress.csv"))
    names = {"iteration": "iteration", "env_steps": "env_steps", "wall_s": "train_s", "return": "Train/mean_reward"}
    columns = [{ours: row.get(theirs, "") for ours, theirs in names.items()} for row in iterations]
    return [dict(row) for row in evaluations], columns


def evaluate_agent(job: Job) -> list[Row]:
    """What an agent earns that needs no training."""
    from podpo.construction import resolve_device

    config, agent = job.config, job.variant.agent
    assert agent is not None
    seed = evaluation_seed(config.seed, "training")
    task = make_task(config.task, config.eval_episodes, seed, resolve_device(config.device, config.task))
    torch.manual_seed(config.seed)
    result = evaluate(AGENTS[agent](task), task)
    return [{"iteration": 0, "env_steps": 0, "train_s": 0.0} | {f"zero/{n}": v for n, v in result.as_dict().items()}]


class Tables:
    """The CSV files of a study."""

    def __init__(self, folder: Path) -> None:
        path = folder / "evaluations.csv"
        rows = read_table(path) if path.exists() else []
        self.finished = {_run_of(row) for row in rows if row["is_last"] == "1"}

        def is_finished(row: dict[str, str]) -> bool:  # of others, a crash has let only a part be written
            return _run_of(row) in self.finished

        self.evaluations = CsvTable(path, is_finished)
        self.training = CsvTable(folder / "training.csv", is_finished)

    def add(self, study: Study, job: Job, evaluations: list[Row], iterations: list[Row], about: Row) -> None:
        head = {"task": job.config.task, "variant": job.variant.label, "seed": job.seed}
        for row in iterations:
            self.training.append(head | row)
        for i, row in enumerate(evaluations):
            row["wall_s"] = row.pop("train_s")
            last = {"is_last": int(i == len(evaluations) - 1)}
            self.evaluations.append(head | last | row | {"study": study.name} | about)

    def close(self) -> None:
        self.evaluations.close()
        self.training.close()


def provenance() -> Row:
    about = describe_run()
    return {key: about[key] for key in ("command", "commit", "machine")} | {"torch": torch.__version__}


def _run_of(row: Mapping[str, str]) -> tuple[str, str]:
    return row["variant"], row["seed"]


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")


def _in_words(row: Row) -> str:
    numbers = {"noise-free": "zero/return_mean", "training": "train_return", "survival": "zero/survival"}
    return ", ".join(f"{word} {float(row[name]):.2f}" for word, name in numbers.items() if row.get(name))
