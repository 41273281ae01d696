"""What the README shows, works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

from podpo.arguments import COMMANDS as CLI_COMMANDS
from podpo.cli import main, parse
from podpo.drift import compute_V, drift_loss

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.partition("#")[0].partition("podpo ")[2].strip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if language == "bash" and re.match(r"(uv run )?podpo ", line)
]


def test_there_is_one_of_each_command() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(CLI_COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--resume" not in c])
def test_commands_are_understood(command: str) -> None:
    assert parse(shlex.split(command)) is not None


@pytest.mark.slow
def test_commands_run_in_the_order_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--max-iterations", "1", "--eval-episodes", "4", "--num-envs", "8", "--no-film"]
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] in ("study", "report", "bench"):  # hours, or their results; tested by themselves
            continue
        if words[0] == "train" and "--resume" not in words:
            words += short
        if words[0] == "plot":
            words = [str(path) for word in words for path in (sorted(tmp_path.glob(word)) if "*" in word else [word])]
        assert main(words) == 0, command + capsys.readouterr().err


def test_the_mathematics_shown_is_what_it_says() -> None:
    (code,) = [block for language, block in BLOCKS if language == "python" and "compute_V" in block]
    x = torch.randn(5, 8, 3, requires_grad=True)
    shown = {"x": x, "y_pos": torch.randn(5, 1, 3), "w": torch.rand(5)}
    exec(code, shown)
    shown["loss"].backward()
    G, B = 8, 5
    assert x.grad is not None
    assert torch.allclose(x.grad, -2 * shown["w"][:, None, None] * shown["V"] / (G * B))
    assert shown["compute_V"] is compute_V
    assert shown["drift_loss"] is drift_loss


def test_the_file_tree_is_complete() -> None:
    """Every module is named in the tree, and nothing that is not there."""
    (tree,) = [block for _, block in BLOCKS if block.startswith("src/podpo/")]
    named = set(re.findall(r"[\w/]+\.(?:py|sh)", tree))
    modules = {path.relative_to(ROOT / "src" / "podpo").as_posix() for path in (ROOT / "src").rglob("*.py")}
    modules = {name for name in modules if "__" not in name}
    assert modules <= named
    others = {path.name for folder in ("benchmarks", "tests") for path in (ROOT / folder).iterdir()}
    assert {Path(name).name for name in named - modules} <= others
