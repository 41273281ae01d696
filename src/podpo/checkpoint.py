"""Checkpoints: all that training needs to go on as if it had never stopped, and nothing that runs code."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from podpo.run_folder import write_atomically
from podpo.validation import ConfigError


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain data; the previous file stays until the new one is whole."""
    whole = io.BytesIO()  # torch would not say in its own error that the disk is full
    torch.save(state, whole)
    write_atomically(path, lambda file: file.write(whole.getbuffer()))


def read_checkpoint(path: Path, device: str) -> dict[str, Any]:
    """Read a checkpoint without executing anything in it."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"there is no checkpoint {str(path)!r}.") from None
    except Exception as error:
        raise ConfigError(f"{str(path)!r} is no readable checkpoint ({type(error).__name__}).") from None
    if not isinstance(state, dict) or "algorithm" not in state:
        raise ConfigError(f"{str(path)!r} was not written by podpo train.")
    return state


def random_state(device: str) -> dict[str, Any]:
    """State of every global random generator that a run on `device` draws from."""
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if torch.device(device).type == "cuda" else None,
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any], device: str) -> None:
    torch.set_rng_state(state["torch"].cpu())
    if state["device"] is not None and torch.device(device).type == "cuda":
        torch.cuda.set_rng_state(state["device"].cpu(), device)
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
