"""`podpo.drift` against the paper's pseudocode, hand-worked cases and the field's symmetries."""

import math
from contextlib import nullcontext
from typing import Any, Literal, get_args

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from podpo import drift
from podpo.drift import FIELD_PRESETS, PAPER_TEMPERATURES, candidate_V, compute_V, drift_loss, field

# A distance rounds by 2^-23; the exponent multiplies that by d / (tau s), about 400 at most here: 5e-5.
ROUNDING = 1e-4

# With this scale and tau = 1 an affinity is 2^-d, which makes the cases below workable by hand.
HALVING: dict[str, Any] = {"temperatures": (1.0,), "scale": 1 / math.log(2)}

few_examples = settings(max_examples=20, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)


def assert_same_field(actual: Tensor, expected: Tensor | np.ndarray, tolerance: float = ROUNDING) -> None:
    expected = torch.as_tensor(expected).double()
    assert actual.shape == expected.shape
    assert expected.abs().max() > 1e-6, "two vanishing fields agree whatever they are"
    assert (actual.double() - expected).abs().max() <= tolerance * expected.abs().max()


def points(*values: float) -> Tensor:
    """One observation with these one-dimensional actions, `[1, len(values), 1]`."""
    return torch.tensor(values, dtype=torch.float32).reshape(1, -1, 1)


def problem(seed: int, B: int = 3, G: int = 5, D: int = 3, N: int = 1) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(B, G, D, generator=rng), torch.randn(B, N, D, generator=rng)


# --- Algorithm 2 ------------------------------------------------------------------------------------------


SHAPES = {
    "the paper's": {"G": 8},
    "several positives": {"N": 4},
    "one dimension": {"D": 1},
    "two candidates": {"G": 2},
    "one observation": {"B": 1},
    "many dimensions": {"D": 29},
}


@pytest.mark.parametrize("scale", ["batch", "observation", 0.7])
@pytest.mark.parametrize("mask_self", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_agrees_with_algorithm_2(shape: dict[str, int], mask_self: bool, scale: Any) -> None:
    x, y_pos = problem(0, **shape)
    V = compute_V(x, y_pos, x, mask_self=mask_self, scale=scale)
    assert_same_field(V, reference.compute_V(x, y_pos, x, mask_self=mask_self, scale=scale))


@pytest.mark.parametrize("num_negatives", [1, 4, 7])
def test_negatives_of_another_number_are_not_masked(num_negatives: int) -> None:
    x, y_pos = problem(1, G=5)
    y_neg = torch.cat([x, x + 0.3], dim=1)[:, :num_negatives]
    V = compute_V(x, y_pos, y_neg)
    assert_same_field(V, reference.compute_V(x, y_pos, y_neg))
    assert torch.equal(V, compute_V(x, y_pos, y_neg, mask_self=False))


def test_clustered_candidates_agree_with_algorithm_2() -> None:
    x, y_pos = problem(2, G=8)
    x = y_pos + torch.tensor([0.0, 1.0]).repeat(4)[None, :, None] + 1e-3 * x
    assert_same_field(compute_V(x, y_pos, x), reference.compute_V(x, y_pos, x))


def test_a_far_off_origin_agrees_with_algorithm_2() -> None:
    x, y_pos = problem(3)
    x, y_pos = x + 1e4, y_pos + 1e4
    assert_same_field(compute_V(x, y_pos, x), reference.compute_V(x, y_pos, x))


def test_below_the_least_scale_agrees_with_algorithm_2() -> None:
    x, y_pos = (2e-4 * actions for actions in problem(4))
    assert_same_field(compute_V(x, y_pos, x), reference.compute_V(x, y_pos, x))
    V = compute_V(x, y_pos, x, scale="observation")
    assert_same_field(V, reference.compute_V(x, y_pos, x, scale=drift.MIN_SCALE))


def test_one_candidate_without_the_mask_agrees_with_algorithm_2() -> None:
    x, y_pos = problem(5, G=1)
    V = compute_V(x, y_pos, x, mask_self=False, temperatures=(2.0,))
    assert_same_field(V, reference.compute_V(x, y_pos, x, mask_self=False, temperatures=(2.0,)))


def test_one_candidate_has_nothing_to_be_pushed_by() -> None:
    """W_pos = A_pos * sum(A_neg), and the only negative is masked: Algorithm 2 gives exactly zero."""
    x, y_pos = problem(5, G=1)
    assert not reference.compute_V(x, y_pos, x).any()
    assert not compute_V(x, y_pos, x).any()


def test_affinity_floor_agrees_with_algorithm_2() -> None:
    x, y_pos = problem(6, N=3)
    floored = compute_V(x, y_pos, x, affinity_floor=1e-2)
    assert_same_field(floored, reference.compute_V(x, y_pos, x, affinity_floor=1e-2))
    assert (floored - compute_V(x, y_pos, x)).abs().max() > 0.1


def test_fields_of_the_temperatures_sum_to_V() -> None:
    x, y_pos = problem(7)
    fields, p = field(x, y_pos, x)
    for tau, V_tau, p_tau in zip(PAPER_TEMPERATURES, fields, p, strict=True):
        assert_same_field(V_tau, reference.compute_V(x, y_pos, x, temperatures=(tau,)))
        assert torch.allclose(p_tau.sum(dim=2), torch.ones(3, 5))
    assert torch.equal(compute_V(x, y_pos, x), fields.sum(dim=0))


def test_row_softmax_is_positives_then_negatives() -> None:
    """x = 0 sees 2^-2, itself and 2^-1, so [1, 2] / 3 with the mask; x = 1 sees 2^-1 and 2^-1."""
    _, p = field(points(0, 1), points(2), points(0, 1), **HALVING)
    assert torch.allclose(p[0, 0], torch.tensor([[1 / 3, 0, 2 / 3], [1 / 2, 1 / 2, 0]]))


# --- Hand-worked cases ------------------------------------------------------------------------------------


def test_two_candidates_by_hand() -> None:
    """x = 0 and 1, positive at 2, affinities 2^-d.

                   to y = 2   to x = 0   to x = 1      row softmax        column softmax
        x = 0         1/4      masked      1/2        1/3   -   2/3       1/3   -    1
        x = 1         1/2       1/2       masked      1/2  1/2   -        2/3   1    -

    A = sqrt(row column): [1/3, -, sqrt(2/3)] and [sqrt(1/3), sqrt(1/2), -], and W_pos = W_neg = the product
    of the two entries left. V(0) = W (2 - 1) = sqrt(2/3) / 3, V(1) = W (2 - 0) = 2 sqrt(1/6).
    """
    V = compute_V(points(0, 1), points(2), points(0, 1), **HALVING)
    assert_same_field(V, points(math.sqrt(2 / 3) / 3, 2 * math.sqrt(1 / 6)), 1e-6)


def test_scales_by_hand() -> None:
    """The unmasked distances of the case above are 2, 1, 1, 1: mean 5/4, so tau must be 4/5 of the former.

    A second observation, ten times as wide, has mean 50/4; that of both is 55/8.
    """
    x, y_pos = torch.cat([points(0, 1), points(0, 10)]), torch.cat([points(2), points(20)])
    by_hand = points(math.sqrt(2 / 3) / 3, 2 * math.sqrt(1 / 6))

    own_tau = (4 / 5 / math.log(2),)
    V = compute_V(x, y_pos, x, temperatures=own_tau, scale="observation")
    assert_same_field(V, torch.cat([by_hand, 10 * by_hand]), 1e-6)
    assert_same_field(compute_V(x[:1], y_pos[:1], x[:1], temperatures=own_tau), by_hand, 1e-6)

    common_tau = (8 / 55 / math.log(2),)
    assert_same_field(compute_V(x, y_pos, x, temperatures=common_tau)[:1], by_hand, 1e-6)


def test_the_self_mask_keeps_candidates_apart() -> None:
    """x = -1 and 1, positive at 0, affinities 2^-d: repelled outwards with the mask, drawn in without.

    Masked, x = -1:    row [2/3, -, 1/3], column [1/2, -, 1], A = [1, -, 1] / sqrt(3), W = 1/3
                       V = 1/3 (0 - 1) = -1/3
    Unmasked, x = -1:  affinities [1/2, 1, 1/4], row [2, 4, 1] / 7, column [1/2, 4/5, 1/5]
                       A = [sqrt(1/7), 4 / sqrt(35), 1 / sqrt(35)]
                       V = 0 - sqrt(1/7) (4 / sqrt(35) (-1) + 1 / sqrt(35) (1)) = 3 / sqrt(245)
    """
    x, y_pos = points(-1, 1), points(0)
    assert_same_field(compute_V(x, y_pos, x, **HALVING), points(-1 / 3, 1 / 3), 1e-6)
    unmasked = compute_V(x, y_pos, x, mask_self=False, **HALVING)
    assert_same_field(unmasked, points(3 / math.sqrt(245), -3 / math.sqrt(245)), 1e-6)


def test_affinity_floor_by_hand() -> None:
    """The masked case above with every A at least sqrt(0.25) = 1/2: itself 1/2, the others 1 / sqrt(3).

    x = -1: V = 0 - 1 / sqrt(3) (1/2 (-1) + 1 / sqrt(3) (1)) = 1 / sqrt(12) - 1/3
    """
    V = compute_V(points(-1, 1), points(0), points(-1, 1), affinity_floor=0.25, **HALVING)
    inwards = 1 / math.sqrt(12) - 1 / 3
    assert_same_field(V, points(inwards, -inwards), 1e-6)


# --- Symmetries -------------------------------------------------------------------------------------------


@few_examples
@given(seed=seeds, N=st.integers(1, 3), D=st.integers(1, 4), mask_self=st.booleans())
def test_V_ignores_where_the_origin_is(seed: int, N: int, D: int, mask_self: bool) -> None:
    x, y_pos = problem(seed, N=N, D=D)
    shift = 8 * problem(seed + 1, G=1, D=D)[0]
    V = compute_V(x, y_pos, x, mask_self=mask_self)
    moved = compute_V(x + shift, y_pos + shift, x + shift, mask_self=mask_self)
    # The shifted inputs themselves are rounded, to 2^-20 at a distance of 8 to 16.
    assert_same_field(moved, V, 10 * ROUNDING)


@few_examples
@given(seed=seeds, N=st.integers(1, 3), D=st.integers(2, 5))
def test_V_turns_with_its_inputs(seed: int, N: int, D: int) -> None:
    x, y_pos = problem(seed, N=N, D=D)
    turn = torch.linalg.qr(problem(seed + 1, B=1, G=D, D=D)[0][0]).Q
    turned = compute_V(x @ turn, y_pos @ turn, x @ turn)
    assert_same_field(turned, compute_V(x, y_pos, x) @ turn, 2 * ROUNDING)


@few_examples
@given(seed=seeds, order=st.permutations(range(5)))
def test_permuted_candidates_permute_V(seed: int, order: list[int]) -> None:
    x, y_pos = problem(seed, N=2)
    assert_same_field(compute_V(x[:, order], y_pos, x[:, order]), compute_V(x, y_pos, x)[:, order])


@few_examples
@given(seed=seeds, factor=st.floats(0.05, 50), scale=st.sampled_from(["batch", "observation"]))
def test_relative_scales_make_V_proportional(seed: int, factor: float, scale: Any) -> None:
    x, y_pos = problem(seed)
    V = compute_V(x, y_pos, x, scale=scale)
    assert_same_field(compute_V(factor * x, factor * y_pos, factor * x, scale=scale), factor * V)


def test_a_fixed_scale_makes_V_disproportional() -> None:
    x, y_pos = problem(0)
    difference = compute_V(2 * x, 2 * y_pos, 2 * x, scale=1.0) - 2 * compute_V(x, y_pos, x, scale=1.0)
    assert difference.abs().max() > 0.1


@few_examples
@given(seed=seeds)
def test_swapping_positives_and_negatives_turns_V_around(seed: int) -> None:
    x, y_pos = problem(seed, N=4)
    _, y_neg = problem(seed + 1, N=4)
    assert_same_field(compute_V(x, y_neg, y_pos), -compute_V(x, y_pos, y_neg))
    assert compute_V(x, y_pos, y_pos, mask_self=False).abs().max() < ROUNDING


@pytest.mark.parametrize("scale, isolated", [("observation", True), (0.7, True), ("batch", False)])
def test_isolation_of_observations(scale: Any, isolated: bool) -> None:
    x, y_pos = problem(0)
    before = compute_V(x, y_pos, x, scale=scale)
    x[0] *= 3
    after = compute_V(x, y_pos, x, scale=scale)
    assert not torch.equal(before[0], after[0])
    assert torch.equal(before[1:], after[1:]) == isolated


@pytest.mark.parametrize("preset", FIELD_PRESETS)
def test_no_mean_drift_once_the_distributions_agree(preset: str) -> None:
    """The mean over 100 independent sets is within 4 standard errors of 0; a shifted target's is not."""
    rng = torch.Generator().manual_seed(0)
    x, y_pos, y_neg = (torch.randn(100, 48, 2, generator=rng) for _ in range(3))

    def largest_mean_in_standard_errors(y_pos: Tensor) -> float:
        V = compute_V(x, y_pos, y_neg, mask_self=False, **FIELD_PRESETS[preset]).mean(dim=1)
        return (V.mean(dim=0).abs() / (V.std(dim=0) / 10)).max().item()

    assert largest_mean_in_standard_errors(y_pos) < 4
    assert largest_mean_in_standard_errors(y_pos + 0.5) > 20


# --- Normalisation per temperature ------------------------------------------------------------------------


@few_examples
@given(seed=seeds, D=st.integers(1, 4), scale=st.sampled_from(["batch", 0.7]))
def test_normalized_fields_have_the_size_of_a_typical_distance(seed: int, D: int, scale: Any) -> None:
    x, y_pos = problem(seed, D=D, N=2)
    plain, _ = field(x, y_pos, x, scale=scale)
    normalized, _ = field(x, y_pos, x, scale=scale, normalize="per-temperature")
    # d < 1e5 leaves out the masked entries, as line 6 of Algorithm 2 does.
    d = torch.cdist(x, torch.cat([y_pos, x], dim=1)) + 1e6 * torch.eye(5, 7).roll(2, dims=1)
    typical = d[d < 1e5].mean().item() if scale == "batch" else scale
    for V_tau, plain_tau in zip(normalized, plain, strict=True):
        assert V_tau.square().mean().sqrt().item() == pytest.approx(typical / math.sqrt(D), rel=1e-4)
        direction = plain_tau / plain_tau.square().mean().sqrt()
        assert_same_field(V_tau, direction * typical / math.sqrt(D))


@few_examples
@given(seed=seeds, factor=st.floats(0.05, 50))
def test_the_original_drifting_models_scale_with_their_inputs(seed: int, factor: float) -> None:
    x, y_pos = problem(seed, N=4)
    deng = FIELD_PRESETS["deng2026"]
    scaled = compute_V(factor * x, factor * y_pos, factor * x, **deng)
    assert_same_field(scaled, factor * compute_V(x, y_pos, x, **deng))


def test_presets_are_what_their_papers_say() -> None:
    x, y_pos = problem(0, G=8)
    assert torch.equal(compute_V(x, y_pos, x, **FIELD_PRESETS["podpo"]), compute_V(x, y_pos, x))
    deng = FIELD_PRESETS["deng2026"]
    assert deng["temperatures"] == (0.02, 0.05, 0.2)
    assert (deng["affinity_floor"], deng["normalize"], deng["scale"]) == (1e-6, "per-temperature", "batch")


# --- Numerics ---------------------------------------------------------------------------------------------


def test_no_underflow_at_the_lowest_temperature() -> None:
    """Two candidates are 1.2 scales from a positive that a third one holds: softmaxes of about e^-60."""
    x, y_pos = points(0, 1.2, 1.3), points(0.01)
    options: dict[str, Any] = {"temperatures": (0.02,), "scale": 1.0}
    logits = -torch.cdist(x, y_pos) / 0.02
    others = torch.tensor([[[-1.2 / 0.02], [-0.1 / 0.02], [-0.1 / 0.02]]])
    naive = torch.sqrt(torch.cat([logits, others], dim=2).softmax(dim=2)[..., :1] * logits.softmax(dim=1))
    assert naive[0, 2, 0] == 0

    V, expected = compute_V(x, y_pos, x, **options), reference.compute_V(x, y_pos, x, **options)
    assert 0 < np.abs(expected[0, 2]) < 1e-22
    assert V[0].double().numpy() == pytest.approx(expected[0], rel=ROUNDING, abs=0)


DEGENERATE = {
    "equal candidates": (torch.ones(2, 4, 3), torch.zeros(2, 1, 3)),
    "all points equal": (torch.ones(2, 4, 3), torch.ones(2, 1, 3)),
    "one candidate": problem(0, G=1),
    "one dimension": problem(0, D=1),
    "one number": (torch.ones(1, 1, 1), torch.ones(1, 1, 1)),
    "several positives": problem(0, N=5),
    "far apart": (1e4 * problem(0)[0], problem(0)[1]),
    "no observation": (torch.empty(0, 4, 3), torch.empty(0, 1, 3)),
}


@pytest.mark.parametrize("mask_self", [True, False])
@pytest.mark.parametrize("scale", ["batch", "observation"])
@pytest.mark.parametrize("preset", FIELD_PRESETS)
@pytest.mark.parametrize("x, y_pos", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_never_nan(x: Tensor, y_pos: Tensor, preset: str, scale: Any, mask_self: bool) -> None:
    options = FIELD_PRESETS[preset] | {"scale": scale, "mask_self": mask_self}
    V = compute_V(x, y_pos, x, **options)
    assert V.shape == x.shape
    assert V.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x, y_pos = (actions.to(dtype) for actions in problem(0, G=8))
    expected = compute_V(x.float(), y_pos.float(), x.float())
    for context in (nullcontext(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with context:
            V = compute_V(x, y_pos, x)
            from_float32 = compute_V(x.float(), y_pos.float(), x.float())
        assert V.dtype == torch.float32
        assert torch.equal(V, expected)
        assert torch.equal(from_float32, expected)


class Calls(TorchFunctionMode):
    """Collects the functions of torch that are called, with their keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func, kwargs or {}))
        return func(*args, **(kwargs or {}))


def test_nothing_can_be_rounded_to_tf32() -> None:
    """Matrix products are what a user's precision settings round; distances must not be made of them either."""
    x, y_pos = problem(0)
    with Calls() as calls:
        compute_V(x, y_pos, x)
    products = {Tensor.matmul, Tensor.__matmul__, torch.matmul, torch.mm, torch.bmm, torch.baddbmm, torch.einsum}
    assert not products & {func for func, _ in calls.seen}
    distances = [kwargs.get("compute_mode") for func, kwargs in calls.seen if func is torch.cdist]
    assert distances == ["donot_use_mm_for_euclid_dist"]


# --- Pools ------------------------------------------------------------------------------------------------


def test_a_pool_of_one_isolates_observations() -> None:
    x, y_pos = problem(0)
    assert torch.equal(candidate_V(x, y_pos), compute_V(x, y_pos, x))
    assert torch.equal(candidate_V(x, y_pos, scale=0.7), compute_V(x, y_pos, x, scale=0.7))


@pytest.mark.parametrize("pool_size, pools", [(2, [2, 2, 1]), (3, [3, 2]), (5, [5]), (99, [5])])
def test_pools_share_positives_and_negatives(pool_size: int, pools: list[int]) -> None:
    x, y_pos = problem(1, B=5, G=3, N=2)
    V = candidate_V(x, y_pos, pool_size, temperatures=(0.15, 2.0))
    for V_pool, x_pool, y_pool in zip(V.split(pools), x.split(pools), y_pos.split(pools), strict=True):
        together, positives = x_pool.reshape(1, -1, 3), y_pool.reshape(1, -1, 3)
        expected = reference.compute_V(together, positives, together, temperatures=(0.15, 2.0))
        assert_same_field(V_pool, expected.reshape(V_pool.shape))


def test_a_pool_of_no_observation() -> None:
    assert candidate_V(torch.empty(0, 4, 3), torch.empty(0, 1, 3), pool_size=2).shape == (0, 4, 3)


# --- Weights ----------------------------------------------------------------------------------------------


BY_HAND: dict[drift.Weighting, list[float]] = {
    "linear": [0.1, 0.3],
    "none": [0.1, 0.1],
    "log1p": [0.1 * math.log(2), 0.1 * math.log(4)],
    "tanh": [0.0761594156, 0.0995054754],
    "V-norm": [0.1, 0.1],
}


@pytest.mark.parametrize("weighting", get_args(drift.Weighting))
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1)])
def test_weights_by_hand(weighting: drift.Weighting, signs: tuple[int, int]) -> None:
    """At advantages 1 and 3 (or -1 and 3: the paper weighs by the size) with beta = 0.1."""
    advantage = torch.tensor([1.0, 3.0]) * torch.tensor(signs)
    V, w = drift.weigh(torch.ones(2, 4, 3), advantage, 0.1, weighting)
    assert w.tolist() == pytest.approx(BY_HAND[weighting])
    lengths = [1.0, 3.0] if weighting == "V-norm" else [1.0, 1.0]
    assert torch.equal(V, torch.tensor(lengths)[:, None, None].expand(2, 4, 3))


def test_the_paper_weighs_linearly_with_beta_one_tenth() -> None:
    assert drift.weigh(torch.ones(2, 4, 3), torch.tensor([1.0, 3.0]))[1].tolist() == pytest.approx([0.1, 0.3])


@pytest.mark.parametrize("weighting", ["linear", "none", "log1p", "tanh"])
def test_matched_weights_have_the_mean_of_the_linear_ones(weighting: drift.Weighting) -> None:
    """The mean of beta |A| is 0.5 (1 + 3) / 2 = 1; the ratio of two weights stays what it was."""
    _, w = drift.weigh(torch.ones(2, 4, 3), torch.tensor([1.0, 3.0]), 0.5, weighting, match_mean=True)
    assert w.mean().item() == pytest.approx(1)
    assert (w[1] / w[0]).item() == pytest.approx(BY_HAND[weighting][1] / BY_HAND[weighting][0])


@pytest.mark.parametrize("match_mean", [False, True])
def test_scaling_V_gives_the_gradient_of_scaling_the_loss(match_mean: bool) -> None:
    x, y_pos = problem(0)
    V, advantage = compute_V(x, y_pos, x), torch.tensor([0.3, 1.0, 2.5])

    def loss_and_gradient(weighting: drift.Weighting) -> tuple[float, Tensor]:
        leaf = x.clone().requires_grad_()
        loss = drift_loss(leaf, *drift.weigh(V, advantage, 0.1, weighting, match_mean))
        return loss.item(), torch.autograd.grad(loss, leaf)[0]

    (linear_loss, linear), (norm_loss, norm) = loss_and_gradient("linear"), loss_and_gradient("V-norm")
    assert_same_field(norm, linear, 1e-6)
    assert norm_loss != pytest.approx(linear_loss, rel=0.01)


# --- The loss ---------------------------------------------------------------------------------------------


def test_loss_by_hand() -> None:
    """|V|^2 is 1 + 4 = 5 and 0 for the first observation, 9 and 9 for the second; w = 2 and 1/3.

    Mean over G: 5/2 and 9. Weighted: 5 and 3. Over B = 2: 4; over a count of 16: 1/2.
    """
    V = torch.tensor([[[1.0, -2.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, -3.0]]])
    x, w = torch.zeros(2, 2, 2), torch.tensor([2.0, 1 / 3])
    assert drift_loss(x, V, w).item() == pytest.approx(4)
    assert drift_loss(x, V, w, over_actions="mean").item() == pytest.approx(2)
    assert drift_loss(x, V, w, count=16).item() == pytest.approx(0.5)
    assert drift_loss(x, V, w, count=torch.tensor(16.0)).item() == pytest.approx(0.5)


@pytest.mark.parametrize("count", [None, 7.0])
@pytest.mark.parametrize("over_actions, divisor", [("sum", 1), ("mean", 3)])
def test_gradient_is_minus_two_w_V(count: float | None, over_actions: Literal["sum", "mean"], divisor: int) -> None:
    x, y_pos = problem(0, B=4, G=5, D=3)
    x.requires_grad_()
    V = compute_V(x, y_pos, x)
    assert not V.requires_grad
    w = torch.tensor([0.5, 1.0, 2.0, 0.1])
    (gradient,) = torch.autograd.grad(drift_loss(x, V, w, count, over_actions), x)
    assert_same_field(gradient, -2 * w[:, None, None] * V / (5 * (count or 4) * divisor), 1e-5)


def test_the_target_is_constant() -> None:
    """Were x + V not detached, its gradient would reach x (and cancel) and V."""
    x, y_pos = problem(0)
    x.requires_grad_()
    V = compute_V(x, y_pos, x).requires_grad_()
    to_x, to_V = torch.autograd.grad(drift_loss(x, V, torch.ones(3)), (x, V), allow_unused=True)
    assert to_V is None
    assert to_x.abs().max() > 0.01


def test_gradient_steps_move_candidates_along_V() -> None:
    x, y_pos = problem(0)
    V = compute_V(x, y_pos, x)
    leaf = x.clone().requires_grad_()
    drift_loss(leaf, V, torch.ones(3), count=1).backward()
    assert leaf.grad is not None
    assert_same_field(x - leaf.grad * 5 / 2, x + V)


def test_an_empty_batch_has_zero_loss_and_zero_gradient() -> None:
    net = torch.nn.Linear(3, 2)
    x = net(torch.empty(0, 4, 3))
    V, w = drift.weigh(compute_V(x, torch.empty(0, 1, 2), x), torch.empty(0), match_mean=True)
    loss = drift_loss(x, V, w)
    loss.backward()
    assert loss.item() == 0
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def test_rms_is_safe_to_divide_by() -> None:
    V = torch.tensor([3.0, 4.0, 0.0, 0.0]).view(2, 1, 2)
    assert drift.rms(V).item() == pytest.approx(2.5)
    assert drift.rms(V, over=(1, 2)).flatten().tolist() == pytest.approx([12.5**0.5, 0.0])
    assert drift.rms(torch.zeros(1, 2, 2)).item() > 0


# --- Diagnostics ------------------------------------------------------------------------------------------


def test_diagnostics_of_a_uniform_softmax() -> None:
    """Equal points have equal affinities 1/6 to N + M = 6 points: 1 / (6 * 6 / 36) = 1."""
    x, y_pos = torch.ones(2, 4, 3), torch.ones(2, 2, 3)
    measured = drift.diagnostics(x, y_pos, x, mask_self=False, temperatures=(0.02, 2.0))
    for tau in ("0.02", "2"):
        assert measured[f"ess_ratio/{tau}"].item() == pytest.approx(1)
        assert measured[f"max_p/{tau}"].item() == pytest.approx(1 / 6)
    assert measured["spread"] == 0


def test_diagnostics_of_a_one_hot_softmax() -> None:
    x, y_neg = torch.zeros(2, 1, 3), 100 + torch.zeros(2, 4, 3)
    measured = drift.diagnostics(x, x, y_neg, temperatures=(0.02,))
    assert measured["ess_ratio/0.02"].item() == pytest.approx(1 / 5)
    assert measured["max_p/0.02"].item() == pytest.approx(1)


def test_diagnostics_by_hand() -> None:
    """`test_two_candidates_by_hand`: rows [1/3, 2/3] and [1/2, 1/2] of n = 3, V = sqrt(6) / 9, sqrt(6) / 3.

    ess_ratio: (1 / (5/9) + 1 / (1/2)) / 2 / 3 = 19/30. max_p: (2/3 + 1/2) / 2 = 7/12.
    In units of sqrt(6) / 9, V = 1 and 3: mean 2, mean square 5, signal 4/5.
    """
    measured = drift.diagnostics(points(0, 1), points(2), points(0, 1), **HALVING)
    assert {name: value.item() for name, value in measured.items()} == pytest.approx(
        {
            "spread": 0.5,
            "ess_ratio/1": 19 / 30,
            "max_p/1": 7 / 12,
            "V_norm/1": 2 * math.sqrt(6) / 9,
            "signal/1": 0.8,
            "noise/1": 1.25,
            "V_norm/total": 2 * math.sqrt(6) / 9,
            "signal/total": 0.8,
            "noise/total": 1.25,
        }
    )


def test_total_diagnostics_are_those_of_the_summed_field() -> None:
    x, y_pos = problem(0, G=8)
    measured = drift.diagnostics(x, y_pos, x)
    V = compute_V(x, y_pos, x)
    signal = V.mean(dim=1).square().sum(dim=1).mean() / V.square().sum(dim=2).mean()
    assert measured["V_norm/total"].item() == pytest.approx(V.norm(dim=2).mean().item())
    assert measured["signal/total"].item() == pytest.approx(signal.item())
    separately = [measured[f"V_norm/{tau:g}"].item() for tau in PAPER_TEMPERATURES]
    assert measured["V_norm/total"].item() < sum(separately)


def test_signal_is_one_where_the_candidates_of_an_observation_agree() -> None:
    """The two observations drift in opposite directions: only candidates of one are averaged."""
    x, y_pos = torch.zeros(2, 4, 2), torch.tensor([1.0, -1.0])[:, None, None].expand(2, 1, 2)
    measured = drift.diagnostics(x, y_pos, x - 3 * y_pos, mask_self=False)
    assert measured["signal/total"].item() == pytest.approx(1)
    assert measured["noise/total"].item() == pytest.approx(1)


def test_signal_is_zero_where_candidates_oppose_each_other() -> None:
    """`test_the_self_mask_keeps_candidates_apart`: V = -1/3 and 1/3."""
    measured = drift.diagnostics(points(-1, 1), points(0), points(-1, 1), **HALVING)
    assert measured["signal/total"].item() == pytest.approx(0, abs=1e-12)
    assert measured["V_norm/total"].item() == pytest.approx(1 / 3)
    assert measured["spread"].item() == pytest.approx(1)
