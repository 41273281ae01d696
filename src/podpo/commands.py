"""What the commands do once their arguments are read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Column, Table

from podpo.config import RunConfig
from podpo.evaluation import AGENTS, Policy, deployed, evaluate, load_policy, make_evaluation_task
from podpo.presets import DEFAULT_TASK, preset
from podpo.progress import UnbrokenConsole
from podpo.run_folder import branch_run, create_run, discard_run, find_folder, find_run, write_records
from podpo.tasks import make_task
from podpo.training import Training, check_resumed, write_summary
from podpo.validation import ConfigError, DivergedError, require

if TYPE_CHECKING:
    from podpo.cli import Eval, Export, Play, Plot


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


def _train(training: Training, console: Console) -> int:
    config, folder = training.config, training.folder
    console.print(
        f"[bold]{config.algorithm.name}[/] on [bold]{config.task}[/]: {config.num_envs} environments, "
        f"seed {config.seed}, {training.device}",
        highlight=False,
    )
    try:
        results = training.run()
    except DivergedError:
        console.print(f"what was saved before is in {folder.path / 'checkpoints'}", soft_wrap=True, highlight=False)
        raise
    write_summary(training, results)
    if training.iteration < config.max_iterations:
        console.print(
            f"stopped at iteration {training.iteration} of {config.max_iterations}; to go on: "
            f"podpo train --resume {folder.path}",
            soft_wrap=True,
            highlight=False,
        )
    console.print(folder.path, soft_wrap=True, highlight=False)
    return 0 if training.stop_signal is None else 128 + training.stop_signal


def _say_that_it_is_done(training: Training, console: Console) -> int:
    done, asked = training.iteration, training.config.max_iterations
    if done > asked:
        raise ConfigError(f"max_iterations = {asked} cannot work: the run has made {done} already.")
    console.print(f"the run is complete: {done} of {asked} iterations; for more, --max-iterations", highlight=False)
    console.print(training.folder.path, soft_wrap=True, highlight=False)
    return 0


def evaluate_policy(asked: Eval) -> int:
    """Print what a policy or an agent earns."""
    policy, config, name = _policy_to_show(asked)
    seed = config.seed if asked.seed is None else asked.seed
    task = make_evaluation_task(replace(config, seed=seed), asked.episodes, "cpu", within="command")
    torch.manual_seed(seed)
    result = evaluate(policy or AGENTS[asked.policy](task), task)
    if asked.json:
        noise = None if policy is None else asked.noise
        record = {"policy": name, "task": config.task, "noise": noise, "seed": seed}
        print(json.dumps(record | result.as_dict()))
        return 0
    console = Console()
    acting = name if policy is None else f"{name}, noise {asked.noise}"
    console.print(f"{acting}, on {config.task}", soft_wrap=True, highlight=False)
    table = Table("", Column("", justify="right"), show_header=False)
    for label, value in result.as_dict().items():
        table.add_row(label.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    return 0


def play(asked: Play) -> int:
    """Film a policy in a few environments side by side."""
    from podpo.video import NUM_FILMED, film

    policy, config, name = _policy_to_show(asked)
    task = make_task(config.task, num_envs=NUM_FILMED, seed=asked.seed)
    torch.manual_seed(asked.seed)
    film(policy or AGENTS[asked.policy](task), task, asked.video)
    Console().print(f"{asked.video} (shows {name})", soft_wrap=True, highlight=False)
    return 0


def export(asked: Export) -> int:
    """Write a policy file and say how far it is from the original."""
    from podpo.export import export_policy

    folder, checkpoint = find_run(asked.run_name, asked.log_root, asked.best)
    config = folder.read_config()
    model = load_policy(config, checkpoint)
    difference = export_policy(model, asked.out, asked.noise, config, run=str(checkpoint))
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


def _policy_to_show(asked: Eval | Play) -> tuple[Policy | None, RunConfig, str]:
    """A trained policy, its run's configuration and its name; no policy for the agents that need no training."""
    if asked.policy in AGENTS:
        return None, preset(asked.task or DEFAULT_TASK), asked.policy
    folder, checkpoint = find_run(asked.policy, asked.log_root, asked.best)
    config = folder.read_config()
    if asked.task not in (None, config.task):
        raise ConfigError(f"task = {asked.task!r} cannot work: {folder.path} was trained on {config.task!r}.")
    return deployed(load_policy(config, checkpoint), asked.noise), config, str(checkpoint)
