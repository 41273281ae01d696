"""Flips signs and constants in the mathematics, one at a time: each flip must make the tests fail.

uv run python tests/mutants.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SUITE = (
    "test_drift.py",
    "test_returns.py",
    "test_algorithm.py",
    "test_actor.py",
    "test_rewards.py",
    "test_statistics.py",
    "test_report.py",
)
NUM_WORKERS = 2


class Mutant(NamedTuple):
    module: str
    code: str
    flipped: str


MUTANTS = (
    Mutant(
        "drift",
        "_weighted_sum(W_pos, y_pos) - _weighted_sum(W_neg, y_neg)",
        "_weighted_sum(W_pos, y_pos) + _weighted_sum(W_neg, y_neg)",
    ),
    Mutant("drift", "(-d / tau / s)", "(d / tau / s)"),
    Mutant("drift", "(-d / tau / s)", "(-d * tau / s)"),
    Mutant("drift", "log_softmax(dim=1)", "log_softmax(dim=2)"),
    Mutant("drift", "(log_row + log_column) / 2", "(log_row + log_column)"),
    Mutant("drift", "A_pos * A_neg.sum(dim=2, keepdim=True)", "A_pos * A_pos.sum(dim=2, keepdim=True)"),
    Mutant("drift", "PAPER_TEMPERATURES = (0.02, 0.15, 2.0)", "PAPER_TEMPERATURES = (0.02, 0.15, 0.2)"),
    Mutant("drift", "masked[:, num_pos:] = torch.eye", "masked[:, :0] = torch.eye"),
    Mutant("drift", 'dims = (0, 1, 2) if scale == "batch"', 'dims = (1, 2) if scale == "batch"'),
    Mutant("drift", "target = (x + V).detach()", "target = x + V.detach()"),
    Mutant("drift", "target = (x + V).detach()", "target = (x - V).detach()"),
    Mutant("drift", "per_candidate.mean(dim=1)", "per_candidate.sum(dim=1)"),
    Mutant("drift", '"linear": size,', '"linear": size.square(),'),
    Mutant("drift", "beta: float = 0.1", "beta: float = 1.0"),
    Mutant("returns", "gamma * (1 - terminated) * next_values", "gamma * next_values"),
    Mutant("returns", "next_values - values", "next_values + values"),
    Mutant("returns", "(1 - terminated) * (1 - truncated)\n", "(1 - terminated)\n"),
    Mutant("returns", "carry = gamma * lam *", "carry = gamma *"),
    Mutant("returns", "torch.maximum(error,", "torch.minimum(error,"),
    Mutant("algorithm", "(samples.advantages > 0).nonzero()", "(samples.advantages < 0).nonzero()"),
    Mutant("algorithm", "float() * (1 - truncated)", "float()"),
    Mutant("algorithm", "samples.actions[batch].unsqueeze(1)", "samples.actions[batch.flip(0)].unsqueeze(1)"),
    Mutant("algorithm", "nn.utils.get_total_norm([p.grad for p in", "nn.utils.clip_grad_norm_([p for p in"),
    Mutant("algorithm", "self.config.num_candidates)", "self.config.num_candidates + 1)"),
    Mutant(
        "actor",
        "action + self.noise_std * noise if self.skip else action\n\n    def sample",
        "action\n\n    def sample",
    ),
    Mutant("tasks/rewards", "torch.exp(-error_squared", "torch.exp(error_squared"),
    Mutant("tasks/rewards", "(height_m - target_m)", "(height_m + target_m)"),
    Mutant("tasks/rewards", "command[:, 2] - ang_vel_b", "command[:, 1] - ang_vel_b"),
    Mutant("statistics", "shape[-1] // 4", "shape[-1] // 8"),
    Mutant("statistics", "0.5 * (gaps == 0)", "(gaps == 0)"),
    Mutant("statistics", "[tail, 100 - tail]", "[2 * tail, 100 - 2 * tail]"),
    Mutant("report", "most - free[v]", "free[v]"),
    Mutant("report", "(goal - value[i - 1]) /", "(value[i] - goal) /"),
)


def survives(mutant: Mutant | None) -> bool:
    """Whether the suite passes on a copy of the source with the mutant in it (or without any)."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        if mutant is not None:
            path = source / "podpo" / f"{mutant.module}.py"
            text = path.read_text()
            if text.count(mutant.code) != 1:
                raise SystemExit(
                    f"{mutant.module}: {mutant.code!r} stands there {text.count(mutant.code)} times, not once"
                )
            path.write_text(text.replace(mutant.code, mutant.flipped))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *(str(ROOT / "tests" / name) for name in SUITE)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode > 1:
            raise SystemExit(f"pytest itself failed:\n{done.stdout}{done.stderr}")
        return done.returncode == 0


def main() -> int:
    if not survives(None):
        print("the suite fails without any mutant: mend that first")
        return 1
    with ThreadPoolExecutor(NUM_WORKERS) as workers:
        verdicts = list(workers.map(survives, MUTANTS))
    for mutant, survived in zip(MUTANTS, verdicts, strict=True):
        print(f"{'SURVIVED' if survived else 'killed  '}  {mutant.module}: {mutant.code!r} -> {mutant.flipped!r}")
    print(f"{len(MUTANTS) - sum(verdicts)} of {len(MUTANTS)} mutants killed")
    return int(any(verdicts))


if __name__ == "__main__":
    sys.exit(main())
