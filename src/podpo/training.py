"""Training, whole: rollouts, updates, evaluations, checkpoints, and going on after a stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rsl_rl.algorithms import PPO
from torch import Tensor

from podpo.baselines.ppo import naming_divergence, restore_step_size
from podpo.checkpoint import (
    random_state,
    read_checkpoint,
    seed_everything,
    set_random_state,
    write_checkpoint,
)
from podpo.config import RunConfig
from podpo.construction import build_algorithm, resolve_device
from podpo.episodes import Episodes
from podpo.evaluation import AGENTS, Evaluation, deployed, evaluate, evaluate_side_by_side, evaluation_seed
from podpo.metrics import Metrics, check_logger
from podpo.progress import ProgressDisplay
from podpo.run_folder import RunFolder, write_json
from podpo.tasks import make_task
from podpo.tasks.task import Task
from podpo.validation import require, require_finite

NOISE_WORDS = {"zero": "without noise", "sample": "sampled", "mean": "averaged"}


class Training:
    """One run: `run()` it, from the start or from a checkpoint."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        console: Console | None = None,
        checkpoint: Path | None = None,
        reuse: Training | None = None,
    ) -> None:
        """`checkpoint` is what to go on from; `reuse` a training that is over, whose simulators may be taken."""
        self.config, self.folder = config, folder
        self.console = console or Console()
        self.device = resolve_device(config.device, config.task)
        on_cpu = self.device == "cpu"
        require(config.num_processes == 1 or on_cpu, "num_processes", config.num_processes, "use 1 on a GPU")
        check_logger(config.logger)
        self.task = self._make_task(config.num_envs, config.seed, reuse and reuse.task)
        if config.desynchronize_episodes:
            self.task.desynchronize()
        seed_everything(config.seed)  # after the task: a simulator may have thrown the dice
        self.algorithm = build_algorithm(config, self.task, self.device, fresh=checkpoint is None)
        self.algorithm.train_mode()
        self.episodes = Episodes(config.num_envs, self.device)
        self.iteration = 0
        self.train_s = 0.0
        self.best_return = -float("inf")
        self.stop_signal: int | None = None
        self._evaluation_task = reuse and reuse._evaluation_task
        self._evaluated_iteration = -1
        self._troubles: set[str] = set()
        if checkpoint is not None:
            self._load(checkpoint)

    def run(self) -> dict[str, Evaluation]:
        """Train until the last iteration, the time limit or a signal; returns the final evaluations."""
        config = self.config
        metrics = Metrics(config, self.folder, self.iteration)
        self._started = time.monotonic()
        try:
            with (
                self._signals(),
                ProgressDisplay(self.console, self.iteration, config.max_iterations, config.max_time) as display,
            ):
                while self.iteration < config.max_iterations and not self._should_stop():
                    with naming_divergence():
                        row = self._iterate()
                    with self._going_on_without_disk(display):
                        metrics.log_iteration(row)
                    display.show(self.iteration, row)
                    if self.iteration % config.eval_interval == 0:
                        self._evaluate(metrics, display)
                    if self.iteration % config.checkpoint_interval == 0:
                        with self._going_on_without_disk(display):
                            self.save(self.folder.last)
                self.save(self.folder.last)
                results = self._evaluate(metrics, display)
                self.save(self.folder.last)  # which knows now of that evaluation, too
                return results
        finally:
            with suppress(OSError):  # every row is on the disk already
                metrics.close()

    def _make_task(self, num_envs: int, seed: int, before: Task | None) -> Task:
        """The run's task, as new; it is `before` itself if that has the right shape, since simulators build slowly."""
        order = (self.config.task, num_envs, self.device, self.config.num_processes)
        if before is None or before.made_to != order:
            name, num_envs, device, num_processes = order
            return make_task(name, num_envs, seed, device, num_processes)
        before.reset(seed)
        return before

    def _iterate(self) -> dict[str, float]:
        """One rollout and one update."""
        config, algorithm = self.config, self.algorithm
        start = time.perf_counter()
        task_metrics: dict[str, list[Tensor]] = {}
        with torch.inference_mode(), self._few_threads():
            obs = self.task.get_observations().to(self.device)
            for _ in range(config.num_steps_per_env):
                obs, rewards, dones, extras = self.task.step(algorithm.act(obs))
                algorithm.process_env_step(obs, rewards, dones, extras)
                self.episodes.add(rewards, dones)
                for name, value in extras.get("log", {}).items():
                    if not name.startswith("Drift/"):
                        task_metrics.setdefault(name, []).append(torch.as_tensor(value, dtype=torch.float))
            self.episodes.read()
            collected = time.perf_counter()
            algorithm.compute_returns(obs)
        losses = algorithm.update()
        require_finite(losses)
        finished = time.perf_counter()
        self.iteration += 1
        self.train_s += finished - start
        samples = config.num_envs * config.num_steps_per_env
        return {
            "iteration": self.iteration,
            "env_steps": self.iteration * samples,
            "train_s": self.train_s,
            **self.episodes.means(),
            "Policy/mean_std": algorithm.get_policy().output_std.mean().item(),
            **{f"Loss/{name}": value for name, value in losses.items()},
            "Loss/learning_rate": algorithm.learning_rate,
            "Perf/total_fps": samples / (finished - start),
            "Perf/collection_time": collected - start,
            "Perf/learning_time": finished - collected,
            **getattr(algorithm, "diagnostics", {}),
            **{name: torch.stack(values).mean().item() for name, values in task_metrics.items()},
        }

    @contextmanager
    def _few_threads(self) -> Iterator[None]:
        """Keep the networks to one thread where the cores are busy simulating; more would only wait for a turn."""
        before = torch.get_num_threads()
        torch.set_num_threads(1 if self.config.num_processes > 1 else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _evaluate(self, metrics: Metrics, display: ProgressDisplay) -> dict[str, Evaluation]:
        """Evaluate without touching training's random numbers; keeps the best state by noise-free return."""
        config = self.config
        with torch.random.fork_rng(devices=[self.device] if self.device.startswith("cuda") else []):
            task = self._fresh_evaluation_task()
            torch.manual_seed(config.seed)
            policy = self.algorithm.get_policy()
            policy.eval()
            policies = {noise: deployed(policy, noise) for noise in config.eval_deployments}
            with self._few_threads():
                results = evaluate_side_by_side(policies, task)
            policy.train()
        if self.iteration == self._evaluated_iteration:
            return results
        self._evaluated_iteration = self.iteration
        row: dict[str, float] = {
            "iteration": self.iteration,
            "env_steps": self.iteration * self.config.num_envs * self.config.num_steps_per_env,
            "train_s": self.train_s,
            "train_return": self.episodes.means().get("Train/mean_reward", float("nan")),
            "spread": policy.output_std.mean().item(),
        }
        for noise, result in results.items():
            row |= {f"{noise}/{name}": value for name, value in result.as_dict().items()}
        with self._going_on_without_disk(display):
            metrics.log_evaluation(row)
        best = results["zero"].return_mean
        if best > self.best_return:
            with self._going_on_without_disk(display):
                self._save_best(best)
        display.say(
            f"  evaluation at iteration {self.iteration}: return "
            + ", ".join(f"{result.return_mean:.2f} {NOISE_WORDS[noise]}" for noise, result in results.items())
        )
        return results

    def evaluate_agent(self, name: str) -> Evaluation:
        """What an agent earns that needs no training, on the episodes of the evaluations."""
        task = self._fresh_evaluation_task()
        with self._few_threads():
            return evaluate(AGENTS[name](task), task)

    def _fresh_evaluation_task(self) -> Task:
        num_envs = self.config.eval_episodes * len(self.config.eval_deployments)
        seed = evaluation_seed(self.config.seed, "training")
        self._evaluation_task = self._make_task(num_envs, seed, self._evaluation_task)
        return self._evaluation_task

    # State --------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write everything that the rest of the run depends on."""
        state = {
            "algorithm": self.algorithm.save(),
            "training": {
                "iteration": self.iteration,
                "train_s": self.train_s,
                "best_return": self.best_return,
                "evaluated_iteration": self._evaluated_iteration,
                "episodes_running": self.episodes.running,
                "episodes_finished": list(self.episodes.finished),
            },
            "task": self.task.state_dict(),
            "random": random_state(self.device),
        }
        write_checkpoint(path, state)

    def _save_best(self, best_return: float) -> None:
        before, self.best_return = self.best_return, best_return
        try:
            self.save(self.folder.best)
        except OSError:
            self.best_return = before  # so that the next good evaluation tries again
            raise

    def _load(self, path: Path) -> None:
        """Continue from a checkpoint: weights, optimisers, normalisers, counters, tasks and dice."""
        state = read_checkpoint(path, self.device)
        self.algorithm.load(state["algorithm"], None, True)
        if isinstance(self.algorithm, PPO):
            restore_step_size(self.algorithm, self.config.algorithm)
        training = state["training"]
        self.iteration = training["iteration"]
        self.train_s = training["train_s"]
        self.best_return = training["best_return"]
        self._evaluated_iteration = training["evaluated_iteration"]
        self.episodes.running = training["episodes_running"]
        self.episodes.finished.extend(tuple(pair) for pair in training["episodes_finished"])
        self.task.load_state_dict(state["task"])
        set_random_state(state["random"], self.device)

    @contextmanager
    def _going_on_without_disk(self, display: ProgressDisplay) -> Iterator[None]:
        """A full disk must not end hours of training; the newest good checkpoint stays in place."""
        try:
            yield
        except OSError as error:
            trouble = str(error.strerror)
            if trouble not in self._troubles:
                display.say(f"[yellow]cannot write to {self.folder.path}: {trouble}; training goes on without[/]")
            self._troubles.add(trouble)

    # Stopping -----------------------------------------------------------------------------------------------

    def _should_stop(self) -> bool:
        limit = self.config.max_time
        return self.stop_signal is not None or (limit is not None and time.monotonic() - self._started >= limit)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and a polite kill end the run after the iteration, with a checkpoint; a second one at once."""

        def request_stop(number: int, frame: object) -> None:
            if self.stop_signal is not None:
                raise KeyboardInterrupt
            self.stop_signal = number
            # A handler may interrupt a print; only a bare write is safe here.
            os.write(2, b"\nstopping after this iteration; once more to stop at once\n")

        previous: dict[int, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                previous[number] = signal.signal(number, request_stop)
        except ValueError:  # not the main thread: the caller's signals are its own
            previous = {}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def write_summary(training: Training, results: dict[str, Evaluation]) -> None:
    """The final evaluations, beside the run."""
    write_json(training.folder.path / "evaluation.json", {noise: r.as_dict() for noise, r in results.items()})
