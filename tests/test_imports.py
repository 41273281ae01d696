"""Imports go one way, and the command line answers before torch is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "podpo"

TORCH_ALONE = {"drift", "returns", "tasks.rewards"}
NO_TORCH = {"validation", "config", "presets", "arguments", "studies", "installation", "cli", "__init__", "__main__"}
LEVELS = [
    {"validation", "config", "drift", "returns", "installation", "statistics"},
    {
        "actor",
        "ranks",
        "samples",
        "episodes",
        "tasks.rewards",
        "tasks.cuda_graph",
        "tasks.modes",
        "tasks.genesis_scene",
    },
    {
        "ppo_config",
        "warm_start",
        "step_size",
        "baselines.ppo",
        "tasks.task",
        "tasks.robot_task",
        "tasks.go2_walk",
        "tasks.sharded",
        "tasks",
        "tasks.toy",
        "tasks.toy_drawing",
        "presets",
        "run_folder",
    },
    {"algorithm", "checkpoint", "metrics", "progress", "studies", "arguments", "episodes"},
    {"construction"},
    {"evaluation"},
    {"training", "plots", "export", "video", "doctor"},
    {"study", "report", "bench"},
    {"commands"},
    {"cli"},
    {"__main__", "__init__"},
]
"""A module imports from its own level or those above it in this list."""


def modules() -> dict[str, Path]:
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py")}
    return {name.removesuffix(".__init__") if "." in name else name: path for path, name in names.items()}


def imports(path: Path) -> set[str]:
    """Absolute names of all modules imported anywhere in a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_imports(path: Path) -> set[str]:
    return {name.removeprefix("podpo.") for name in imports(path) if name.startswith("podpo.")} & modules().keys()


def level(name: str) -> int:
    return next(i for i, names in enumerate(LEVELS) if name in names)


def test_every_module_has_a_level() -> None:
    listed = set.union(*LEVELS)
    assert {name for name in modules() if name != "baselines"} == listed


@pytest.mark.parametrize("name", sorted(set.union(*LEVELS) - {"__init__"}))
def test_imports_go_one_way(name: str) -> None:
    lazy = {"tasks": {"tasks.toy"}, "tasks.toy": {"tasks.toy_drawing"}}
    lazy["arguments"] = {"commands", "doctor"}
    typed_only = {"commands": {"arguments"}}
    for other in own_imports(modules()[name]):
        if other in typed_only.get(name, set()) | lazy.get(name, set()):
            continue
        assert level(other) <= level(name), f"{name} imports {other}"


@pytest.mark.parametrize("name", sorted(TORCH_ALONE))
def test_the_mathematics_imports_torch_alone(name: str) -> None:
    allowed = {"__future__", "collections", "contextlib", "typing", "torch"}
    assert {imported.partition(".")[0] for imported in imports(modules()[name])} <= allowed


@pytest.mark.parametrize("name", ["actor", "algorithm", "ranks", "samples", "step_size", "ppo_config", "warm_start"])
def test_the_algorithm_knows_no_task(name: str) -> None:
    assert not {other for other in own_imports(modules()[name]) if other.startswith("tasks")}


@pytest.mark.parametrize("name", ["tasks", "tasks.toy", "tasks.toy_drawing"])
def test_a_task_knows_no_algorithm(name: str) -> None:
    assert not own_imports(modules()[name]) & {"actor", "algorithm", "training", "evaluation", "drift"}


def test_the_light_modules_import_no_torch() -> None:
    names = ", ".join(f"podpo.{name}" for name in sorted(NO_TORCH - {"__init__", "__main__"}))
    heavy = ("torch", "rsl_rl", "matplotlib", "rich.progress")
    code = f"import sys, {names}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
