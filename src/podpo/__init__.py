"""Positive-Only Drifting Policy Optimization: online RL with one-step generative policies, on rsl_rl.

`podpo:PODPO` is the algorithm that an rsl_rl runner calls; `podpo:OneStepActor` its policy. The pure
mathematics is in `podpo.drift` and `podpo.returns`. Importing this package imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podpo.actor import OneStepActor
    from podpo.algorithm import PODPO
    from podpo.config import PODPOConfig

__all__ = ["PODPO", "OneStepActor", "PODPOConfig", "__version__"]

try:
    __version__ = version("podpo")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"

_HOMES = {"PODPO": "podpo.algorithm", "OneStepActor": "podpo.actor", "PODPOConfig": "podpo.config"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'podpo' has no attribute {name!r}; it has {', '.join(__all__)}")
