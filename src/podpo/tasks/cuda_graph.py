"""Many small GPU operations, launched as one."""

from __future__ import annotations

from collections.abc import Callable

import torch


def as_one_launch(function: Callable[[], None], device: str) -> Callable[[], None]:
    """`function`, recorded into a CUDA graph; on a CPU, `function` itself.

    It must read and write the same tensors at every call and never wait for the GPU. Recording calls it a few times.
    """
    if not device.startswith("cuda"):
        return function
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay
