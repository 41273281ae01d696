"""What is installed, what is missing, and the line that mends it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from podpo.system_libraries import REMEDY, missing_libraries


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
    findings = [check() for check in CHECKS]
    table = Table(box=None, pad_edge=False)
    for title in ("", "found", "to mend it"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        colour = "green" if not finding.remedy else "red" if finding.needed else "yellow"
        table.add_row(finding.subject, f"[{colour}]{finding.state}[/]", escape(finding.remedy))
    Console().print(table)
    return int(any(f.remedy and f.needed for f in findings))


def check_python() -> Finding:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding("python", platform.python_version(), "" if supported else "use Python 3.11, 3.12 or 3.13")


def check_package(name: str, needed: bool = True, remedy: str = "") -> Finding:
    try:
        return Finding(name, version(name), needed=needed)
    except PackageNotFoundError:
        return Finding(name, "missing", remedy or f"pip install {name}", needed)


def check_rsl_rl() -> Finding:
    found = check_package("rsl-rl-lib", remedy="pip install 'rsl-rl-lib>=5.0.1,<6'")
    if found.remedy or (5, 0, 1) <= tuple(int(part) for part in found.state.split(".")[:3]) < (6,):
        return found
    return Finding(found.subject, found.state, "pip install 'rsl-rl-lib>=5.0.1,<6'")


def check_gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("GPU", f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    return Finding("GPU", "none: the toy tasks need none")


def check_genesis() -> Finding:
    return check_package("genesis-world", needed=False, remedy="pip install 'podpo[genesis]'")


def check_genesis_libraries() -> Finding:
    missing = missing_libraries()
    if not missing:
        return Finding("graphics libraries", "all there", needed=False)
    return Finding("graphics libraries", f"missing {', '.join(missing)}", REMEDY, needed=False)


def check_extra(name: str, purpose: str) -> Callable[[], Finding]:
    return lambda: check_package(name, needed=False, remedy=f"pip install 'podpo[{name}]'  ({purpose})")


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    lambda: check_package("torch"),
    check_rsl_rl,
    lambda: check_package("onnxruntime"),
    lambda: check_package("tensorboard"),
    check_gpu,
    check_genesis,
    check_genesis_libraries,
    check_extra("wandb", "only for --logger wandb"),
    lambda: check_package("imageio-ffmpeg", needed=False, remedy="pip install imageio-ffmpeg  (only for .mp4 films)"),
)
