"""What the commands do once their arguments are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Column, Table

from podpo.config import RunConfig
from podpo.evaluation import AGENTS, Policy, deployed, evaluate, load_policy, make_evaluation_task
from podpo.presets import DEFAULT_TASK, preset
from podpo.run_folder import create_run, discard_run, find_run, write_records
from podpo.tasks import make_task
from podpo.training import Training, check_resumed, write_summary
from podpo.validation import ConfigError

if TYPE_CHECKING:
    from podpo.cli import Eval, Export, Play, Plot


def train(config: RunConfig, resume: str | None) -> int:
    """Train, and end by saying where everything is."""
    console = Console()
    checkpoint: Path | None = None
    if resume is None:
        folder = create_run(config)
    else:
        folder, checkpoint = find_run(resume, config.log_root)
        check_resumed(folder.read_config(), config)
    try:
        training = Training(config, folder, console, checkpoint)
    except ConfigError:
        if checkpoint is None:
            discard_run(folder)
        raise
    if checkpoint is not None:
        write_records(folder, config)
        console.print(f"going on from iteration {training.iteration} of {config.max_iterations}", highlight=False)
    console.print(
        f"[bold]{config.algorithm.name}[/] on [bold]{config.task}[/]: {config.num_envs} environments, "
        f"seed {config.seed}, {training.device}",
        highlight=False,
    )
    results = training.run()
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


def evaluate_policy(asked: Eval) -> int:
    """Print what a policy or an agent earns."""
    policy, config = _policy_and_config(asked)
    seed = config.seed if asked.seed is None else asked.seed
    task = make_evaluation_task(replace(config, seed=seed), asked.episodes, "cpu", within="command")
    torch.manual_seed(seed)
    result = evaluate(policy or AGENTS[asked.policy](task), task)
    if asked.json:
        noise = None if policy is None else asked.noise
        record = {"policy": asked.policy, "task": config.task, "noise": noise, "seed": seed}
        print(json.dumps(record | result.as_dict()))
        return 0
    acting = asked.policy if policy is None else f"{asked.policy}, noise {asked.noise}"
    table = Table("", Column("", justify="right"), title=f"{acting}, on {config.task}", show_header=False)
    for name, value in result.as_dict().items():
        table.add_row(name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
    Console().print(table)
    return 0


def play(asked: Play) -> int:
    """Film a policy in a few environments side by side."""
    from podpo.video import NUM_FILMED, film

    policy, config = _policy_and_config(asked)
    task = make_task(config.task, num_envs=NUM_FILMED, seed=asked.seed)
    torch.manual_seed(asked.seed)
    film(policy or AGENTS[asked.policy](task), task, asked.video)
    Console().print(asked.video, soft_wrap=True, highlight=False)
    return 0


def export(asked: Export) -> int:
    """Write a policy file and say how far it is from the original."""
    from podpo.export import export_policy

    folder, checkpoint = find_run(asked.run_name, asked.log_root)
    config = folder.read_config()
    checkpoint = folder.best if asked.best else checkpoint
    model = load_policy(config, checkpoint)
    difference = export_policy(model, asked.out, asked.noise, config, run=str(checkpoint))
    Console().print(
        f"{asked.out} (largest difference from the policy: {difference:.1e})", soft_wrap=True, highlight=False
    )
    return 0


def plot(asked: Plot) -> int:
    """Draw learning curves."""
    from podpo.plots import plot_runs

    plot_runs([find_run(name, asked.log_root)[0] for name in asked.runs], asked.out)
    Console().print(asked.out, soft_wrap=True, highlight=False)
    return 0


def _policy_and_config(asked: Eval | Play) -> tuple[Policy | None, RunConfig]:
    """The trained policy and its run's configuration; no policy for the agents that need no training."""
    if asked.policy in AGENTS:
        return None, preset(asked.task or DEFAULT_TASK)
    folder, checkpoint = find_run(asked.policy, asked.log_root)
    config = folder.read_config()
    if asked.task not in (None, config.task):
        raise ConfigError(f"task = {asked.task!r} cannot work: {folder.path} was trained on {config.task!r}.")
    model = load_policy(config, folder.best if asked.best else checkpoint)
    return deployed(model, asked.noise), config
