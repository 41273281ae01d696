"""`podpo.returns` against hand-worked episodes, the definition, and rsl_rl's convention."""

import numpy as np
import pytest
import torch
from torch import Tensor

from podpo.returns import gae, next_state_values, standardize, value_loss


def column(*values: float) -> Tensor:
    """One environment over time, `[T, 1]`."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


NEVER = column(0, 0, 0)
VALUES, NEXT_VALUES = column(8, 16, 32), column(16, 32, 64)


def advantages(
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.5,
    lam: float = 0.5,
    values: Tensor = VALUES,
    next_values: Tensor = NEXT_VALUES,
) -> list[float]:
    """Of three steps with r = 1, 2, 4, by default V(s_t) = 8, 16, 32 and V(s_{t+1}) = 16, 32, 64."""
    A, targets = gae(column(1, 2, 4), values, next_values, terminated, truncated, gamma, lam)
    assert torch.equal(targets, A + values)
    return A[:, 0].tolist()


def test_an_episode_that_goes_on() -> None:
    """delta = r + V'/2 - V = 1 + 8 - 8, 2 + 16 - 16, 4 + 32 - 32 = 1, 2, 4, and gamma lam = 1/4.

    A_2 = 4, A_1 = 2 + 4/4 = 3, A_0 = 1 + 3/4 = 7/4.
    """
    assert advantages(NEVER, NEVER) == pytest.approx([1.75, 3, 4])


def test_a_termination_has_no_future() -> None:
    """delta_1 = 2 + 0 - 16 = -14 and nothing of A_2 is carried; A_0 = 1 - 14/4 = -5/2."""
    assert advantages(column(0, 1, 0), NEVER) == pytest.approx([-2.5, -14, 4])


def test_a_time_out_has_a_future_that_another_row_does_not_tell() -> None:
    """delta_1 = 2 as if it went on, and nothing of A_2 is carried; A_0 = 1 + 2/4 = 3/2."""
    assert advantages(NEVER, column(0, 1, 0)) == pytest.approx([1.5, 2, 4])


def test_a_failure_at_the_last_tick_is_a_failure() -> None:
    assert advantages(column(0, 1, 0), column(0, 1, 0)) == pytest.approx([-2.5, -14, 4])


def test_the_end_of_the_rollout() -> None:
    """A failure at the last step: delta_2 = 4 - 32 = -28, A_1 = 2 - 28/4 = -5, A_0 = 1 - 5/4."""
    assert advantages(column(0, 0, 1), NEVER) == pytest.approx([-0.25, -5, -28])
    assert advantages(NEVER, column(0, 0, 1)) == advantages(NEVER, NEVER)


def test_lambda_zero_is_the_one_step_error() -> None:
    assert advantages(NEVER, NEVER, lam=0) == pytest.approx([1, 2, 4])


def test_lambda_one_is_the_discounted_return() -> None:
    """4 + 64/2 = 36, 2 + 36/2 = 20, 1 + 20/2 = 11, less V = 32, 16, 8."""
    assert advantages(NEVER, NEVER, lam=1) == pytest.approx([3, 4, 4])


def test_without_discount() -> None:
    """delta = 1 + 16 - 8, 2 + 32 - 16, 4 + 64 - 32 = 9, 18, 36; A_1 = 18 + 36/2, A_0 = 9 + 36/2."""
    assert advantages(NEVER, NEVER, gamma=1) == pytest.approx([27, 36, 36])


def test_without_discount_and_with_lambda_one_it_is_the_plain_sum() -> None:
    """1 + 2 + 4 + 64 - 8 = 63."""
    assert advantages(NEVER, NEVER, gamma=1, lam=1)[0] == pytest.approx(63)


def test_a_perfect_critic_finds_no_advantage() -> None:
    """An episode that fails: V = 4, before it 2 + 4/2 = 4, before that 1 + 4/2 = 3."""
    failed = column(0, 0, 1)
    values, next_values = column(3, 4, 4), column(4, 4, 99)
    assert advantages(failed, NEVER, values=values, next_values=next_values) == pytest.approx([0, 0, 0])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_flags_of_any_type(dtype: torch.dtype) -> None:
    flags = column(0, 1, 0).to(dtype)
    assert advantages(flags, NEVER.to(dtype)) == pytest.approx([-2.5, -14, 4])
    assert advantages(NEVER.to(dtype), flags) == pytest.approx([1.5, 2, 4])


def rollout(seed: int, T: int = 24, N: int = 6) -> dict[str, Tensor]:
    """Random float32 data in which every kind of end occurs, also at the last step."""
    rng = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(T, N, generator=rng) for name in ("rewards", "values", "final_values")}
    drawn["last_values"] = torch.randn(N, generator=rng)
    ends = torch.rand(T, N, generator=rng)
    ends[-1, :3] = torch.tensor([0.0, 0.2, 0.3])
    drawn["terminated"] = (ends < 0.15) | (ends > 0.97)
    drawn["truncated"] = (ends >= 0.15) & (ends < 0.25) | (ends > 0.97)
    return drawn


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma, lam", [(0.99, 0.95), (0.9, 1.0), (1.0, 0.5)])
def test_agrees_with_the_definition(seed: int, gamma: float, lam: float) -> None:
    """A_t = sum_k (gamma lam)^k delta_{t+k}, up to and with the step that ends the episode, in float64."""
    data = rollout(seed)
    next_values = next_state_values(data["values"], data["last_values"], data["truncated"], data["final_values"])
    A, targets = gae(data["rewards"], data["values"], next_values, data["terminated"], data["truncated"], gamma, lam)

    rewards, values, final_values, last_values = (
        data[name].double().numpy() for name in ("rewards", "values", "final_values", "last_values")
    )
    terminated, truncated = data["terminated"].numpy(), data["truncated"].numpy()
    expected = np.zeros_like(rewards)
    T, N = rewards.shape
    for t in range(T):
        for n in range(N):
            for k in range(T - t):
                now = t + k
                if terminated[now, n]:
                    successor = 0.0
                elif truncated[now, n]:
                    successor = final_values[now, n]
                else:
                    successor = last_values[n] if now == T - 1 else values[now + 1, n]
                delta = rewards[now, n] + gamma * successor - values[now, n]
                expected[t, n] += (gamma * lam) ** k * delta
                if terminated[now, n] or truncated[now, n]:
                    break
    # float32 sums of up to 24 terms of order 1.
    assert A.dtype == torch.float32
    assert A.double().numpy() == pytest.approx(expected, abs=2e-5)
    assert targets.double().numpy() == pytest.approx(expected + values, abs=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_without_final_values_it_is_rsl_rl(seed: int) -> None:
    """process_env_step adds gamma V(s_t) to the reward at a time-out; compute_returns cuts at every done."""
    gamma, lam = 0.99, 0.95
    data = rollout(seed)
    values, last_values, time_outs = data["values"], data["last_values"], data["truncated"]
    terminated = data["terminated"] & ~time_outs
    next_values = next_state_values(values, last_values, time_outs)
    A, targets = gae(data["rewards"], values, next_values, terminated, time_outs, gamma, lam)

    rewards = data["rewards"] + gamma * values * time_outs
    dones = terminated | time_outs
    advantage = torch.zeros(values.shape[1])
    for step in reversed(range(len(values))):
        next_value = last_values if step == len(values) - 1 else values[step + 1]
        next_is_not_terminal = 1.0 - dones[step].float()
        delta = rewards[step] + next_is_not_terminal * gamma * next_value - values[step]
        advantage = delta + next_is_not_terminal * gamma * lam * advantage
        assert A[step].tolist() == pytest.approx(advantage.tolist(), abs=1e-5)
        assert targets[step].tolist() == pytest.approx((advantage + values[step]).tolist(), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_successors_by_hand(dtype: torch.dtype) -> None:
    """V = 1, 2, 3 and 4 at the end, time-out at the middle step: its row's successor is another episode's."""
    values, last_values, truncated = column(1, 2, 3), column(4)[0], column(0, 1, 0).to(dtype)
    final_values = column(float("nan"), 7, float("nan"))
    assert next_state_values(values, last_values, truncated, final_values)[:, 0].tolist() == [2, 7, 4]
    assert next_state_values(values, last_values, truncated)[:, 0].tolist() == [2, 2, 4]


def test_a_time_out_at_the_last_step_does_not_use_the_next_episode() -> None:
    values, last_values, truncated = column(1, 2, 3), column(4)[0], column(0, 0, 1)
    assert next_state_values(values, last_values, truncated, column(5, 6, 7))[:, 0].tolist() == [2, 3, 7]
    assert next_state_values(values, last_values, truncated)[:, 0].tolist() == [2, 3, 3]


def test_standardize_by_hand() -> None:
    """(1 - 3) / 4, (3 - 3) / 4, (11 - 3) / 4."""
    standard = standardize(column(1, 3, 11), torch.tensor(3.0), torch.tensor(4.0))
    assert standard[:, 0].tolist() == pytest.approx([-0.5, 0, 2])


def test_standardize_survives_equal_advantages() -> None:
    constant = torch.full((4, 2), 3.0)
    assert torch.equal(standardize(constant, constant.mean(), constant.std()), torch.zeros(4, 2))


def test_value_loss_by_hand() -> None:
    """Old values 0, clip 1/2, returns 2, 2, -1 and values 1/4, 3/2, 2.

    Moved freely: (1/4 - 2)^2, (3/2 - 2)^2, (2 + 1)^2 = 49/16, 1/4, 9, mean 197/48.
    Moved by at most 1/2: to 1/4, 1/2, 1/2, so 49/16, 9/4, 9/4; the worse are 49/16, 9/4, 9, mean 229/48.
    """
    values, old_values, returns = column(0.25, 1.5, 2), column(0, 0, 0), column(2, 2, -1)
    assert value_loss(values, old_values, returns, None).item() == pytest.approx(197 / 48)
    assert value_loss(values, old_values, returns, 0.5).item() == pytest.approx(229 / 48)
    assert value_loss(1 - values, 1 - old_values, 1 - returns, 0.5).item() == pytest.approx(229 / 48)


def test_value_loss_lets_no_value_run_beyond_the_clip() -> None:
    """Past the clip and still short of the return, the clipped error is the worse one, and constant."""
    values = column(0.25, 1.5).requires_grad_()
    value_loss(values, column(0, 0), column(2, 2), 0.5).backward()
    assert values.grad is not None
    # d/dv of the mean: 2 (1/4 - 2) / 2.
    assert values.grad[:, 0].tolist() == pytest.approx([-1.75, 0])
