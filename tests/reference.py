"""Algorithm 2 of the paper (`compute_V`), one scalar at a time in float64, to be read beside it.

Written from the pseudocode alone and not from `podpo.drift`: slow on purpose, nothing shared with it. The
numbers in the margin are the lines of Algorithm 2.
"""

import math
from typing import Literal

import numpy as np
from torch import Tensor

T = (0.02, 0.15, 2.0)


def compute_V(
    x: Tensor,
    y_pos: Tensor,
    y_neg: Tensor,
    temperatures: tuple[float, ...] = T,
    mask_self: bool = True,
    scale: Literal["batch", "observation"] | float = "batch",
    affinity_floor: float = 0.0,
) -> np.ndarray:
    """V `[B, G, D]`. `scale` and `affinity_floor` are podpo's options; their defaults are the paper's."""
    B, G, D = x.shape
    N, M = y_pos.shape[1], y_neg.shape[1]
    points = x.double().tolist()
    y = [pos + neg for pos, neg in zip(y_pos.double().tolist(), y_neg.double().tolist(), strict=True)]

    d = np.zeros((B, G, N + M))  # 1, 5
    for b in range(B):
        for g in range(G):
            for j in range(N + M):
                d[b, g, j] = math.dist(points[b][g], y[b][j])
                if mask_self and G == M and j - N == g:  # 2
                    d[b, g, j] += 1e6  # 3

    if scale == "batch":
        s = [mean_distance(d)] * B
    elif scale == "observation":
        s = [mean_distance(d[b]) for b in range(B)]
    else:
        s = [float(scale)] * B

    V = np.zeros((B, G, D))  # 7
    for tau in temperatures:  # 8
        for b in range(B):
            logits = -d[b] / tau / s[b]  # 9
            row = [softmax(logits[g, :]) for g in range(G)]
            column = [softmax(logits[:, j]) for j in range(N + M)]
            for g in range(G):
                A = [math.sqrt(max(row[g][j] * column[j][g], affinity_floor)) for j in range(N + M)]  # 10
                A_pos, A_neg = A[:N], A[N:]  # 11
                for j in range(N):
                    W_pos = A_pos[j] * sum(A_neg)  # 12
                    V[b, g] += W_pos * np.array(y[b][j])  # 14, 15
                for j in range(M):
                    W_neg = A_neg[j] * sum(A_pos)  # 13
                    V[b, g] -= W_neg * np.array(y[b][N + j])  # 14, 15
    return V


def mean_distance(d: np.ndarray) -> float:
    """Line 6: the mean of the distances that are not masked, at least 1e-3."""
    kept = [value for value in d.flatten().tolist() if value < 1e5]
    return max(sum(kept) / len(kept), 1e-3)


def softmax(logits: np.ndarray) -> list[float]:
    largest = max(logits.tolist())
    powers = [math.exp(logit - largest) for logit in logits.tolist()]
    total = sum(powers)
    return [power / total for power in powers]
