"""System libraries that Genesis opens by name, and the line that installs them."""

from __future__ import annotations

import ctypes
import platform

LIBRARIES = ("libGL.so.1", "libEGL.so.1", "libEGL_mesa.so.0")
REMEDY = "apt-get install -y libgl1 libegl1 libegl-mesa0 libgl1-mesa-dri"


def missing_libraries() -> list[str]:
    """Libraries that Genesis needs and this system does not have (Linux only)."""
    if platform.system() != "Linux":
        return []
    return [library for library in LIBRARIES if not _can_load(library)]


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
