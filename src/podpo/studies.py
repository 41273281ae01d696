"""The studies by name: which settings are trained with which seeds. `podpo study NAME` runs one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from podpo.config import ActorConfig, AlgorithmConfig, AlgorithmName, NetworkConfig, PPOConfig, RunConfig
from podpo.presets import preset
from podpo.validation import ConfigError, near_and_known

SEARCH_ITERATIONS = 75
ALGORITHMS: tuple[AlgorithmName, ...] = ("podpo", "ppo")


@dataclass(frozen=True)
class Variant:
    """One line of a study's table."""

    label: str
    config: RunConfig
    agent: str | None = None
    """Instead of training: `zero` or `random`, which need none."""


@dataclass(frozen=True)
class Study:
    """Every variant with every seed."""

    name: str
    question: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]


def go2_search(on_gpu: bool) -> Study:
    """As many iterations for PPO as for PODPO; the winner of each is the one with the highest noise-free return."""
    base = dict(max_iterations=SEARCH_ITERATIONS, eval_interval=SEARCH_ITERATIONS)
    variants = [
        Variant(
            f"podpo: temperatures {' '.join(map(str, temperatures))}, noise {noise}",
            _changed("go2-walk", "podpo", on_gpu, {"temperatures": temperatures, "exploration_std": noise}, **base),
        )
        for temperatures in ((0.02, 0.15, 2.0), (2.0,))
        for noise in (0.0, 0.2)
    ] + [
        Variant(
            f"ppo: entropy {entropy}, step size for KL {kl}",
            _changed("go2-walk", "ppo", on_gpu, {"ppo": PPOConfig(entropy_coef=entropy, desired_kl=kl)}, **base),
        )
        for entropy in (0.01, 0.003)
        for kl in (0.01, 0.02)
    ]
    return Study("go2-search", "Which settings learn best on go2-walk?", tuple(variants), (101,))


CPU_SEARCH_S = 400.0
NUM_DRAWS = 7
"""Settings that the search for a CPU draws for each algorithm."""
SHARED_CHOICES: dict[str, tuple[Any, ...]] = {
    "num_envs, num_steps_per_env": ((128, 24), (256, 24), (128, 48)),
    "hidden_dims": ((128, 128), (256, 128, 64)),
    "noise_std": (0.3, 0.5, 1.0),
    "num_learning_epochs": (3, 5),
    "num_mini_batches": (4, 8),
    "gamma": (0.97, 0.99),
}
OWN_CHOICES: dict[AlgorithmName, dict[str, tuple[Any, ...]]] = {
    "podpo": {
        "learning_rate": (2e-4, 5e-4, 1e-3),
        "temperatures": ((0.02, 0.15, 2.0), (2.0,)),
        "exploration_std": (0.0, 0.1, 0.2),
    },
    "ppo": {"desired_kl": (0.01, 0.03, 0.1), "entropy_coef": (0.0, 0.001, 0.005)},
}


def go2_cpu_search(on_gpu: bool) -> Study:
    """As many settings for PPO as for PODPO, drawn at random (what both have, alike), for the same time on one core."""
    dice = random.Random(0)
    shared = _balanced_draws(SHARED_CHOICES, dice)
    variants = [
        _drawn(name, theirs | own)
        for name in ALGORITHMS
        for theirs, own in zip(shared, _balanced_draws(OWN_CHOICES[name], dice), strict=True)
    ]
    return Study("go2-cpu-search", "Which settings learn go2-walk fastest on one core?", tuple(variants), (101,))


def _balanced_draws(choices: dict[str, tuple[Any, ...]], dice: random.Random) -> list[dict[str, Any]]:
    """Settings in which each value of a choice occurs about as often as the others."""
    columns = []
    for values in choices.values():
        column = [values[i % len(values)] for i in range(NUM_DRAWS)]
        dice.shuffle(column)
        columns.append(column)
    return [dict(zip(choices, row, strict=True)) for row in zip(*columns, strict=True)]


def _drawn(name: AlgorithmName, drawn: dict[str, Any]) -> Variant:
    label = f"{name}: " + "; ".join(f"{key} = {value}" for key, value in drawn.items())
    settings = dict(drawn)
    num_envs, num_steps = settings.pop("num_envs, num_steps_per_env")
    networks = {"hidden_dims": settings.pop("hidden_dims")}
    actor = ActorConfig(noise_std=settings.pop("noise_std"), **networks)
    if name == "ppo":
        settings["ppo"] = PPOConfig(**{key: settings.pop(key) for key in OWN_CHOICES["ppo"]})
    algorithm = AlgorithmConfig(name=name, actor=actor, critic=NetworkConfig(**networks), **settings)
    base = preset("go2-walk", name)
    config = replace(
        base,
        algorithm=algorithm,
        num_envs=num_envs,
        num_processes=1,
        num_steps_per_env=num_steps,
        max_iterations=10_000,
        max_time=CPU_SEARCH_S,
        eval_interval=200,
        eval_episodes=32,
        eval_deployments=("zero", "sample", "mean"),
        device="cpu",
        film=False,
        logger="none",
    )
    return Variant(label, config)


def go2(on_gpu: bool) -> Study:
    return Study("go2", "PODPO against PPO on random commands", tuple(_against("go2-walk", on_gpu)), (1, 2, 3, 4, 5))


def go2_fixed(on_gpu: bool) -> Study:
    """Half as long: this task is learned in 120 iterations."""
    variants = tuple(_against("go2-walk-fixed", on_gpu, max_iterations=200))
    return Study("go2-fixed", "PODPO against PPO on one command", variants, (1, 2, 3))


STUDIES: dict[str, Callable[[bool], Study]] = {
    "go2-cpu-search": go2_cpu_search,
    "go2-search": go2_search,
    "go2": go2,
    "go2-fixed": go2_fixed,
}


def find_study(name: str, on_gpu: bool) -> Study:
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}: {near_and_known(name, STUDIES)}")
    return STUDIES[name](on_gpu)


def _against(task: str, on_gpu: bool, **run_settings: Any) -> Iterator[Variant]:
    """Both algorithms with their presets, and the robot that stands still."""
    for name in ALGORITHMS:
        yield Variant(name, _changed(task, name, on_gpu, {}, **run_settings))
    yield Variant("zero", _changed(task, "podpo", on_gpu, {}), agent="zero")


def _changed(
    task: str, algorithm: AlgorithmName, on_gpu: bool, settings: dict[str, Any], **run_settings: Any
) -> RunConfig:
    base = preset(task, algorithm, on_gpu)
    return replace(
        base,
        algorithm=replace(base.algorithm, **settings),
        eval_deployments=("zero", "sample", "mean"),
        film=False,
        logger="none",
        **run_settings,
    )
