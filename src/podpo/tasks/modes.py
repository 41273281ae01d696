"""How evenly a policy uses the equally good solutions of a task."""

from __future__ import annotations

import torch
from torch import Tensor


def mode_coverage(mode: Tensor, context: Tensor, num_modes: int, num_contexts: int = 1) -> float:
    """Effective share of the modes in use, from 1/num_modes (one only) to 1 (all alike); NaN if none was found.

    For each context, the exponential of the entropy of the modes found, over their number; the mean over
    contexts in which at least two episodes found one.
    """
    found = mode >= 0
    index = context[found] * num_modes + mode[found]
    counts = torch.bincount(index, minlength=num_modes * num_contexts).view(num_contexts, num_modes).double()
    counts = counts[counts.sum(dim=1) >= 2]
    p = counts / counts.sum(dim=1, keepdim=True)
    return float((torch.special.entr(p).sum(dim=1).exp() / num_modes).mean())
