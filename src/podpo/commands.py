"""What the commands do once their arguments are read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Column, Table

from podpo.config import RunConfig
from podpo.construction import resolve_device
from podpo.evaluation import AGENTS, Evaluation, Policy, deployed, evaluate, evaluation_seed, load_policy
from podpo.installation import uses_gpu
from podpo.presets import DEFAULT_TASK, preset
from podpo.progress import UnbrokenConsole
from podpo.run_folder import branch_run, check_resumed, create_run, discard_run, find_folder, find_run, write_records
from podpo.tasks import is_simulated, make_filmed_task, make_task
from podpo.tasks.task import Task
from podpo.training import NOISE_WORDS, Training, write_summary
from podpo.validation import ConfigError, DivergedError, require

if TYPE_CHECKING:
    from podpo.arguments import Bench, Eval, Export, Play, Plot, Report, StudyCommand


def train(config: RunConfig, resume: str | None) -> int:
    """Train, and end by saying where everything is."""
    console = UnbrokenConsole()
    origin, checkpoint = find_run(resume) if resume else (None, None)
    if origin is None or checkpoint is None:
        folder = create_run(config)
    else:
        check_resumed(origin.read_config(), config)
        folder = origin if checkpoint == origin.last else branch_run(origin, checkpoint, config)
    with folder.being_written():
        try:
            _announce(config, console)
            training = Training(config, folder, console, checkpoint)
        except ConfigError:
            if folder is not origin:
                discard_run(folder)
            raise
        if checkpoint is not None:
            if training.iteration >= config.max_iterations:
                return _say_that_it_is_done(training, console)
            write_records(folder, config)
            console.print(f"going on from iteration {training.iteration} of {config.max_iterations}", highlight=False)
        return _train(training, console)


def _announce(config: RunConfig, console: Console) -> None:
    device = resolve_device(config.device, config.task)
    console.print(
        f"[bold]{config.algorithm.name}[/] on [bold]{config.task}[/]: {config.num_envs} environments, "
        f"seed {config.seed}, {device}",
        highlight=False,
    )
    if is_simulated(config.task):
        console.print("building the simulator: half a minute, the first time two minutes", highlight=False)


def _train(training: Training, console: Console) -> int:
    config, folder = training.config, training.folder
    try:
        results = training.run()
    except DivergedError:
        console.print(f"what was saved before is in {folder.path / 'checkpoints'}", soft_wrap=True, highlight=False)
        raise
    write_summary(training, results)
    if training.stop_signal is None:
        _show_results({**results, "zero agent": training.evaluate_agent("zero")}, console)
    _draw(training, console)
    if training.iteration < config.max_iterations:
        console.print(
            f"stopped at iteration {training.iteration} of {config.max_iterations}; to go on: "
            f"podpo train --resume {folder.path}",
            soft_wrap=True,
            highlight=False,
        )
    console.print(folder.path, soft_wrap=True, highlight=False)
    return 0 if training.stop_signal is None else 128 + training.stop_signal


def _show_results(results: dict[str, Evaluation], console: Console) -> None:
    """The policy, with each noise that was evaluated, beside the agent that does nothing."""
    columns = [NOISE_WORDS.get(name, "doing nothing") for name in results]
    table = Table("", *(Column(column, justify="right") for column in columns))
    numbers = [result.as_dict() for result in results.values()]
    for label in numbers[0]:
        cells = [row.get(label, "") for row in numbers]
        table.add_row(label.replace("_", " "), *(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells))
    console.print(table)


def _draw(training: Training, console: Console) -> None:
    """The learning curve, and a film where the task is worth one; a training is no worse for lack of them."""
    from podpo.plots import plot_runs
    from podpo.video import film

    config, folder = training.config, training.folder
    try:
        plot_runs([folder], folder.path / "curve.png")
        if config.film and training.stop_signal is None:
            console.print("filming the policy", highlight=False)
            task = make_filmed_task(config.task, config.seed, training.device)
            film(deployed(training.algorithm.get_policy().eval(), "zero"), task, folder.path / "film.mp4")
    except Exception as error:  # graphics fail in many ways
        console.print(f"[yellow]no picture of the result: {error}[/]", highlight=False)


def _say_that_it_is_done(training: Training, console: Console) -> int:
    done, asked = training.iteration, training.config.max_iterations
    if done > asked:
        raise ConfigError(f"max_iterations = {asked} cannot work: the run has made {done} already.")
    console.print(f"the run is complete: {done} of {asked} iterations; for more, --max-iterations", highlight=False)
    console.print(training.folder.path, soft_wrap=True, highlight=False)
    return 0


def evaluate_policy(asked: Eval) -> int:
    """Print what a policy or an agent earns."""
    config, checkpoint, name = _policy_to_show(asked)
    seed = config.seed if asked.seed is None else asked.seed
    task_seed = evaluation_seed(seed, "command")
    task = make_task(config.task, asked.episodes, task_seed, resolve_device(config.device, config.task))
    policy = _policy(asked, config, checkpoint, task)
    torch.manual_seed(seed)
    result = evaluate(policy, task)
    if asked.json:
        noise = None if checkpoint is None else asked.noise
        record = {"policy": name, "task": config.task, "noise": noise, "seed": seed}
        print(json.dumps(record | result.as_dict()))
        return 0
    console = Console()
    acting = name if checkpoint is None else f"{name}, noise {asked.noise}"
    console.print(f"{acting}, on {config.task}", soft_wrap=True, highlight=False)
    table = Table("", Column("", justify="right"), show_header=False)
    for label, value in result.as_dict().items():
        table.add_row(label.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    return 0


def play(asked: Play) -> int:
    """Film a policy."""
    from podpo.video import film

    config, checkpoint, name = _policy_to_show(asked)
    task = make_filmed_task(config.task, asked.seed, resolve_device(config.device, config.task))
    torch.manual_seed(asked.seed)
    film(_policy(asked, config, checkpoint, task), task, asked.video)
    Console().print(f"{asked.video} (shows {name})", soft_wrap=True, highlight=False)
    return 0


def export(asked: Export) -> int:
    """Write a policy file and say how far it is from the original."""
    from podpo.export import NUM_CHECKED, export_policy

    folder, checkpoint = find_run(asked.run_name, asked.log_root, asked.best)
    config = folder.read_config()
    task = make_task(config.task, NUM_CHECKED, config.seed)
    model = load_policy(config, checkpoint, task)
    difference = export_policy(model, asked.out, asked.noise, config, task, run=str(checkpoint))
    Console().print(
        f"{asked.out} (from {checkpoint}; largest difference from the policy: {difference:.1e})",
        soft_wrap=True,
        highlight=False,
    )
    return 0


def plot(asked: Plot) -> int:
    """Draw learning curves."""
    from podpo.plots import plot_runs

    console = Console(stderr=True)
    folders = [find_folder(name, asked.log_root) for name in asked.runs]
    begun = [folder for folder in folders if (folder.path / "progress.csv").is_file()]
    for folder in folders:
        if folder not in begun:
            console.print(f"{folder.path} ended before its first iteration: left out", soft_wrap=True)
    require(len(begun) > 0, "runs", asked.runs, "name one that has begun")
    plot_runs(begun, asked.out)
    Console().print(asked.out, soft_wrap=True, highlight=False)
    return 0


def study(asked: StudyCommand) -> int:
    """Train what is missing of a study; 1 if a run has failed."""
    from podpo.studies import find_study
    from podpo.study import run_study

    on_gpu = uses_gpu(asked.device)
    declared = find_study(asked.name, on_gpu)
    num_workers = asked.workers or (max(torch.cuda.device_count(), 1) if on_gpu else os.cpu_count() or 1)
    console = UnbrokenConsole()
    failures = run_study(declared, asked.results, asked.log_root, num_workers, asked.max_time, console)
    console.print(asked.results / asked.name, soft_wrap=True, highlight=False)
    if failures:
        console.print(f"{failures} runs failed; the same command tries them again", highlight=False)
    return int(failures > 0)


def report(asked: Report) -> int:
    """Print a study's tables and draw its figures."""
    from podpo.report import write_report

    folder = asked.results / asked.name
    require((folder / "evaluations.csv").is_file(), "name", asked.name, f"there is no {folder}/evaluations.csv")
    text, pictures = write_report(folder, asked.out or folder)
    print(text)
    for picture in pictures:
        Console().print(picture, soft_wrap=True, highlight=False)
    return 0


def bench(asked: Bench) -> int:
    """Measure, show, and keep if asked to."""
    from podpo.bench import BENCHES, save_rows, show

    console = Console()
    rows = BENCHES[asked.what](asked.task, asked.num_envs, asked.device, Console(stderr=True))
    show(rows, console)
    if asked.results is not None:
        save_rows(rows, asked.results / f"{asked.what}.csv")
        console.print(asked.results / f"{asked.what}.csv", soft_wrap=True, highlight=False)
    return 0


def _policy_to_show(asked: Eval | Play) -> tuple[RunConfig, Path | None, str]:
    """A run's configuration, its checkpoint (none for the agents that need no training) and its name."""
    if asked.policy in AGENTS:
        return preset(asked.task or DEFAULT_TASK), None, asked.policy
    folder, checkpoint = find_run(asked.policy, asked.log_root, asked.best)
    config = folder.read_config()
    if asked.task not in (None, config.task):
        raise ConfigError(f"task = {asked.task!r} cannot work: {folder.path} was trained on {config.task!r}.")
    return config, checkpoint, str(checkpoint)


def _policy(asked: Eval | Play, config: RunConfig, checkpoint: Path | None, task: Task) -> Policy:
    if checkpoint is None:
        return AGENTS[asked.policy](task)
    return deployed(load_policy(config, checkpoint, task), asked.noise)
