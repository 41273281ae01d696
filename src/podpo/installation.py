"""How podpo is installed here, and the lines that add what is missing."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

LIBRARIES = ("libGL.so.1", "libEGL.so.1", "libEGL_mesa.so.0")
"""What Genesis opens by name."""
LIBRARIES_LINE = "apt-get install -y libgl1 libegl1 libegl-mesa0 libgl1-mesa-dri"
IS_CHECKOUT = (Path(__file__).parents[2] / "pyproject.toml").is_file()
"""A checkout is run through uv, whose environment the system's pip knows nothing of."""


def missing_libraries() -> list[str]:
    """Libraries that Genesis needs and this system does not have (Linux only)."""
    if platform.system() != "Linux":
        return []
    return [library for library in LIBRARIES if not _can_load(library)]


def has_gpu() -> bool:
    """Whether CUDA sees a GPU, asked of the driver itself: importing torch would take seconds."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def num_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def uses_gpu(device: str) -> bool:
    """Whether a simulated task would run on a GPU."""
    return device.startswith("cuda") or (device == "auto" and has_gpu())


def extra_line(extra: str) -> str:
    """The command that installs one of podpo's extras."""
    return f"uv sync --extra {extra}" if IS_CHECKOUT else f"pip install 'podpo[{extra}]'"


def package_line(requirement: str) -> str:
    """The command that installs another package."""
    return f"{'uv pip' if IS_CHECKOUT else 'pip'} install '{requirement}'"


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
