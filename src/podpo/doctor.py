"""What is installed, what is missing, and the line that mends it."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from podpo.installation import LIBRARIES_LINE, extra_line, missing_libraries, package_line


@dataclass(frozen=True)
class Finding:
    """One line of the report; without a remedy, all is well."""

    subject: str
    state: str
    remedy: str = ""
    needed: bool = True
    """Whether podpo itself cannot do without it."""


def examine() -> int:
    """Print the report; 1 if something is missing that podpo cannot do without."""
    findings = [finding for check in CHECKS for finding in check()]
    table = Table(box=None, pad_edge=False)
    for title in ("", "found", "to mend it"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        colour = "green" if not finding.remedy else "red" if finding.needed else "yellow"
        table.add_row(finding.subject, f"[{colour}]{finding.state}[/]", escape(finding.remedy))
    Console().print(table)
    return int(any(f.remedy and f.needed for f in findings))


def check_python() -> list[Finding]:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return [Finding("python", platform.python_version(), "" if supported else "use Python 3.11, 3.12 or 3.13")]


def check_package(name: str, remedy: str, only_for: str = "") -> Finding:
    needed = not only_for
    try:
        return Finding(name, version(name), needed=needed)
    except PackageNotFoundError:
        return Finding(name, "missing" if needed else f"missing, only for {only_for}", remedy, needed)


def check_requirements() -> list[Finding]:
    """Every package of the light core, each with the versions that pyproject.toml asks for."""
    try:
        needed = [line for line in requires("podpo") or [] if ";" not in line]
    except PackageNotFoundError:
        return [Finding("podpo", "run from its source, without being installed", package_line("."), needed=False)]
    return [check_package(re.split(r"[<>=!~\[ ]", line)[0], package_line(line)) for line in sorted(needed)]


def check_rsl_rl() -> list[Finding]:
    """rsl_rl once more, by its version: a simulator's own packages may have brought another one."""
    remedy = package_line("rsl-rl-lib>=5.0.1,<6")
    found = check_package("rsl-rl-lib", remedy)
    numbers = tuple(int(number) for number in re.findall(r"\d+", found.state)[:3])
    if found.remedy or (5, 0, 1) <= numbers < (6,):
        return []
    return [Finding("rsl-rl-lib", f"{found.state} is not supported", remedy)]


def check_gpu() -> list[Finding]:
    try:
        import torch
    except ImportError:
        return []  # named among the requirements
    if torch.cuda.is_available():
        return [Finding("GPU", f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")]
    return [Finding("GPU", "none: the toy tasks need none")]


def check_graphics_libraries() -> list[Finding]:
    missing = missing_libraries()
    state = f"missing {', '.join(missing)}" if missing else "all there"
    return [Finding("graphics libraries", state, LIBRARIES_LINE if missing else "", needed=False)]


def check_extras() -> list[Finding]:
    return [check_package(*extra) for extra in EXTRAS]


EXTRAS = (
    ("genesis-world", extra_line("genesis"), "tasks in the Genesis simulator"),
    ("example-robot-data", extra_line("g1"), "the model of the G1 robot"),
    ("envpool", extra_line("envpool"), "fast environments on a CPU"),
    ("wandb", extra_line("wandb"), "--logger wandb"),
    ("ray", extra_line("ray"), "sweeps over several machines"),
    ("imageio-ffmpeg", package_line("imageio-ffmpeg"), "films as .mp4"),
)
"""Package, the line that installs it, and what needs it."""

CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    check_python,
    check_requirements,
    check_rsl_rl,
    check_gpu,
    check_extras,
    check_graphics_libraries,
)
