"""The drifting field and the drifting loss of Positive-Only Drifting Policy Optimization.

For every observation b the generator proposes G candidate actions x. Each candidate is drawn towards the
positive action y_pos (the one that worked) and pushed away from the negatives y_neg (the other candidates):

    V = compute_V(x, y_pos, y_neg)                                     the paper's Algorithm 2
    L = 1/B_pos  sum_b  w(A_b)  1/G  sum_g  || x_g - sg(x_g + V_g) ||^2      the drifting loss

    symbol        here          meaning
    B, G, D       shapes        observations, candidates per observation, action dimensions
    N, M          shapes        positives and negatives per observation (the paper: N = 1, M = G)
    tau           temperatures  softmax temperature, in units of the mean distance
    beta, w(A)    weigh         advantage weight
    sg            detach        stop-gradient on the whole target

Tensors in, tensors out: this module knows no policy, no rollout and no simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Scale = Literal["batch", "observation"] | float
Normalize = Literal["none", "per-temperature"]
Weighting = Literal["linear", "none", "log1p", "tanh", "V-norm"]

PAPER_TEMPERATURES = (0.02, 0.15, 2.0)
MIN_SCALE = 1e-3
MASKED_LOGIT = -1e30  # finite, so that a row with nothing left (G = 1) has weight zero instead of NaN

FIELD_PRESETS: dict[str, dict[str, Any]] = {
    "podpo": {
        "temperatures": PAPER_TEMPERATURES,
        "scale": "batch",
        "normalize": "none",
        "affinity_floor": 0.0,
    },
    "deng2026": {
        "temperatures": (0.02, 0.05, 0.2),
        "scale": "batch",
        "normalize": "per-temperature",
        "affinity_floor": 1e-6,
    },
}
"""Keyword arguments of `compute_V`: the policy paper's field, and that of the original drifting models."""


class Field(NamedTuple):
    """The drifting field, temperature by temperature."""

    V: Tensor
    """Drift of each candidate, `[T, B, G, D]`; the paper's V is its sum over T."""
    p: Tensor
    """Row softmax: how much candidate g looks at each positive, then each negative, `[T, B, G, N + M]`."""


def compute_V(
    x: Tensor,
    y_pos: Tensor,
    y_neg: Tensor,
    temperatures: Sequence[float] = PAPER_TEMPERATURES,
    mask_self: bool = True,
    scale: Scale = "batch",
    normalize: Normalize = "none",
    affinity_floor: float = 0.0,
) -> Tensor:
    """Drifting vectors V `[B, G, D]` of candidates x `[B, G, D]` (Algorithm 2, exactly, by default).

    Args:
        x: candidate actions, `[B, G, D]`.
        y_pos: positive actions, `[B, N, D]`.
        y_neg: negative actions, `[B, M, D]`; the paper passes x itself.
        temperatures: one field is computed for each and all are summed.
        mask_self: where M = G, a candidate does not repel itself.
        scale: what distances are divided by before the softmax: their mean over the whole `"batch"` (the
            paper), over each `"observation"` (nothing leaks between observations), or a fixed value.
        normalize: `"per-temperature"` gives the field of each temperature the RMS of one typical distance
            per action dimension before the sum.
        affinity_floor: least value of the product of the two softmaxes, under the square root.
    """
    return field(x, y_pos, y_neg, temperatures, mask_self, scale, normalize, affinity_floor).V.sum(dim=0)


@torch.no_grad()
def field(
    x: Tensor,
    y_pos: Tensor,
    y_neg: Tensor,
    temperatures: Sequence[float] = PAPER_TEMPERATURES,
    mask_self: bool = True,
    scale: Scale = "batch",
    normalize: Normalize = "none",
    affinity_floor: float = 0.0,
) -> Field:
    """The field of each temperature apart, with its softmax; arguments as for `compute_V`."""
    num_pos, num_dims = y_pos.shape[1], x.shape[2]
    x, y_pos, y_neg = x.float(), y_pos.float(), y_neg.float()
    # V does not depend on the origin of action space; small coordinates keep float32 exact.
    origin = x.mean(dim=1, keepdim=True)
    x, y_pos, y_neg = x - origin, y_pos - origin, y_neg - origin

    d = torch.cdist(x, torch.cat([y_pos, y_neg], dim=1), compute_mode="donot_use_mm_for_euclid_dist")
    masked = _self_mask(d, num_pos, mask_self)
    s = _distance_scale(d, masked, scale)

    fields: list[Tensor] = []
    rows: list[Tensor] = []
    for tau in temperatures:
        logits = (-d / tau / s).masked_fill(masked, MASKED_LOGIT)
        log_row, log_column = logits.log_softmax(dim=2), logits.log_softmax(dim=1)
        # sqrt(row * column) underflows at tau = 0.02; half the sum of the logarithms does not.
        A = torch.exp((log_row + log_column) / 2).clamp_min(affinity_floor**0.5)
        A_pos, A_neg = A[:, :, :num_pos], A[:, :, num_pos:]
        W_pos = A_pos * A_neg.sum(dim=2, keepdim=True)
        W_neg = A_neg * A_pos.sum(dim=2, keepdim=True)
        V_tau = _weighted_sum(W_pos, y_pos) - _weighted_sum(W_neg, y_neg)
        if normalize == "per-temperature":
            over = (1, 2) if scale == "observation" else (0, 1, 2)
            V_tau = V_tau * (s / num_dims**0.5) / rms(V_tau, over)
        fields.append(V_tau)
        rows.append(log_row.exp())
    return Field(torch.stack(fields), torch.stack(rows))


def candidate_V(x: Tensor, y_pos: Tensor, pool_size: int = 1, **field_options: Any) -> Tensor:
    """V `[B, G, D]` when the candidates x are their own negatives.

    `pool_size` is the number of observations that share one contrastive set. At 1 every observation is
    isolated (the paper's method); at B or more all candidates repel each other and are drawn to all positive
    actions, whatever their observation (the global-batch drifting that the paper argues against). With
    `scale="batch"` each pool has a scale of its own.
    """
    num_obs, num_candidates, num_dims = x.shape
    pool_size = min(pool_size, num_obs)
    if pool_size <= 1:
        return compute_V(x, y_pos, x, **field_options)
    pools: list[Tensor] = []
    for start in range(0, num_obs, pool_size):
        pool = slice(start, start + pool_size)
        pooled = x[pool].reshape(1, -1, num_dims)
        V = compute_V(pooled, y_pos[pool].reshape(1, -1, num_dims), pooled, **field_options)
        pools.append(V.reshape(-1, num_candidates, num_dims))
    return torch.cat(pools)


def pool(actions: Tensor, pool_size: int) -> Tensor:
    """`[B, G, D]` as pools `[B // pool_size, pool_size G, D]`; observations that fill no pool are left out."""
    num_obs, num_candidates, num_dims = actions.shape
    pool_size = max(min(pool_size, num_obs), 1)
    whole = num_obs // pool_size * pool_size
    return actions[:whole].reshape(-1, pool_size * num_candidates, num_dims)


def weigh(
    V: Tensor, advantage: Tensor, beta: float = 0.1, weighting: Weighting = "linear", match_mean: bool = False
) -> tuple[Tensor, Tensor]:
    """The (V, w) that enter the loss for advantages `[B]`; w `[B]` is the paper's beta |A| by default.

    `"V-norm"` scales V by |A| instead of weighting the loss: the gradient is the same, the loss value is not.
    `match_mean` rescales w to the mean of beta |A|, so that weightings are compared at one step size.
    """
    size = advantage.abs()
    shaped = {
        "linear": size,
        "none": torch.ones_like(size),
        "log1p": size.log1p(),
        "tanh": size.tanh(),
        "V-norm": torch.ones_like(size),
    }[weighting]
    if weighting == "V-norm":
        return V * size[:, None, None], beta * shaped
    if match_mean:
        shaped = shaped * (size.mean() / shaped.mean().clamp_min(1e-8))
    return V, beta * shaped


def drift_loss(
    x: Tensor,
    V: Tensor,
    w: Tensor,
    count: float | Tensor | None = None,
    over_actions: Literal["sum", "mean"] = "sum",
) -> Tensor:
    """The drifting loss; its gradient with respect to x is `-2 w V / (G count)`.

    Args:
        x: candidates with gradient, `[B_pos, G, D]`.
        V: drift, `[B_pos, G, D]`.
        w: advantage weights, `[B_pos]`.
        count: what the sum over observations is divided by; B_pos (the paper) by default.
        over_actions: the squared norm sums over action dimensions (the paper's equation) or takes their mean.
    """
    # The whole target is constant: detaching V alone would leave x - (x + V) = -V, with zero gradient.
    target = (x + V).detach()
    squared = (x - target).square()
    per_candidate = squared.sum(dim=2) if over_actions == "sum" else squared.mean(dim=2)
    if count is None:
        count = max(x.shape[0], 1)
    return (w * per_candidate.mean(dim=1)).sum() / count


def rms(V: Tensor, over: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    """Root mean square over the named dimensions (kept), away from zero so that it can divide."""
    return V.square().mean(dim=over, keepdim=True).sqrt().clamp_min(1e-12)


@torch.no_grad()
def diagnostics(x: Tensor, y_pos: Tensor, y_neg: Tensor, **field_options: Any) -> dict[str, Tensor]:
    """Scalars that tell how the field works, for each temperature and in total.

    `ess_ratio` and `max_p` describe the row softmax over n = N + M entries: effective sample size
    1 / (n sum p^2), and the largest weight. `V_norm` is the mean length of V. `signal` is
    ||E V||^2 / E ||V||^2 over the candidates of one observation (1: all drift the same way); `noise` is its
    inverse (the paper calls the first "relative variance"). `spread` is the candidates' standard deviation.
    """
    fields, p = field(x, y_pos, y_neg, **field_options)
    temperatures = field_options.get("temperatures", PAPER_TEMPERATURES)
    measured: dict[str, Tensor] = {"spread": x.float().std(dim=1, correction=0).mean()}
    for tau, V_tau, p_tau in zip(temperatures, fields, p, strict=True):
        measured[f"ess_ratio/{tau:g}"] = (1 / p_tau.square().sum(dim=2) / p_tau.shape[2]).mean()
        measured[f"max_p/{tau:g}"] = p_tau.amax(dim=2).mean()
        measured |= _vector_diagnostics(V_tau, f"{tau:g}")
    return measured | _vector_diagnostics(fields.sum(dim=0), "total")


def _vector_diagnostics(V: Tensor, name: str) -> dict[str, Tensor]:
    power = V.square().sum(dim=2).mean().clamp_min(1e-30)
    signal = V.mean(dim=1).square().sum(dim=1).mean() / power
    return {
        f"V_norm/{name}": V.square().sum(dim=2).sqrt().mean(),
        f"signal/{name}": signal,
        f"noise/{name}": 1 / signal.clamp_min(1e-30),
    }


def _self_mask(d: Tensor, num_pos: int, mask_self: bool) -> Tensor:
    """True `[G, N + M]` where a candidate would be compared with itself."""
    num_candidates, num_columns = d.shape[1:]
    masked = torch.zeros(num_candidates, num_columns, dtype=torch.bool, device=d.device)
    if mask_self and num_candidates == num_columns - num_pos:
        masked[:, num_pos:] = torch.eye(num_candidates, dtype=torch.bool, device=d.device)
    return masked


def _distance_scale(d: Tensor, masked: Tensor, scale: Scale) -> Tensor:
    """What distances are divided by, broadcastable to `[B, G, N + M]`."""
    if not isinstance(scale, str):
        if scale <= 0:
            raise ValueError(f"scale = {scale} cannot work: use a positive number, 'batch' or 'observation'")
        return d.new_full((1, 1, 1), scale)
    dims = (0, 1, 2) if scale == "batch" else (1, 2)
    kept = (~masked).expand_as(d)
    mean = (d * kept).sum(dim=dims, keepdim=True) / kept.sum(dim=dims, keepdim=True)
    return mean.clamp_min(MIN_SCALE)


def _weighted_sum(W: Tensor, y: Tensor) -> Tensor:
    """W @ y, as a plain sum: a matrix product may be rounded to TF32 or bfloat16, as the user's settings say."""
    return (W.unsqueeze(-1) * y.unsqueeze(1)).sum(dim=2)
