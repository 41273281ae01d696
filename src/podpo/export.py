"""A trained policy as one file, for a robot or a program without podpo: ONNX, TorchScript, or its weights alone.

The file is checked against the policy, as it trained, on random observations before it is put in its place.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch import Tensor, nn

from podpo import __version__
from podpo.actor import OneStepActor, StochasticActor
from podpo.config import RunConfig
from podpo.run_folder import write_atomically
from podpo.tasks.task import Task
from podpo.validation import ConfigError, require

OPSET = 18
NUM_CHECKED = 64
TOLERANCE = 1e-4
"""Largest difference that counts as rounding, in units of the largest action (or 1, if all are smaller)."""

ExportedNoise = Literal["zero", "mean", "input"]


def export_policy(
    model: MLPModel, out: Path, noise: ExportedNoise, config: RunConfig, task: Task, run: str = ""
) -> float:
    """Write `model` to `out` (.onnx, .pt or .safetensors) and return how far the file's actions are from the model's.

    Inputs are `obs` `[batch, O]`, raw, and with noise = "input" also `noise` `[batch, Z]`; the output is
    `actions` `[batch, D]`. `run` says in the file's metadata where the policy comes from.
    """
    require(out.suffix in WRITERS, "out", str(out), f"end the name in one of {', '.join(WRITERS)}")
    model = model.cpu().eval()
    module = exportable(model, noise).eval()
    metadata = {"run": run} | describe(module, noise, config, task)
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / out.name
        exported = WRITERS[out.suffix](module, temporary, metadata)
        difference = largest_difference(model, noise, task.get_observations(), exported)
        if not difference <= TOLERANCE:
            raise ConfigError(f"{out} was not written: its actions differ from the policy's by {difference:.1e}.")
        write_atomically(out, lambda file: file.write(temporary.read_bytes()))
    return difference


def exportable(model: MLPModel, noise: ExportedNoise) -> nn.Module:
    """A module of plain tensors; a Gaussian policy exports its mean."""
    if not isinstance(model, OneStepActor):
        require(noise != "input", "noise", noise, "a Gaussian policy has no noise input; use zero")
        return model.as_onnx(verbose=False)
    if noise == "input":
        return StochasticActor(model)
    before, model.deployment = model.deployment, noise
    try:
        return model.as_onnx()
    finally:
        model.deployment = before


def describe(module: nn.Module, noise: ExportedNoise, config: RunConfig, task: Task) -> dict[str, Any]:
    """What a user of the file needs to know: inputs, task, and the robot's joints and gains where it has any."""
    return {
        "producer": f"podpo {__version__}",
        "task": config.task,
        "algorithm": config.algorithm.name,
        "noise": noise,
        "obs_dim": module.get_dummy_inputs()[0].shape[1],  # pyright: ignore[reportCallIssue, reportIndexIssue]
        "action_dim": task.num_actions,
        "control_dt_s": task.step_dt,
        "obs_normalization": "inside",
        **task.export_metadata(),
    }


@torch.inference_mode()
def largest_difference(
    model: MLPModel, noise: ExportedNoise, obs: TensorDict, exported: Callable[..., np.ndarray]
) -> float:
    """Largest difference from what the model itself does at random observations shaped like `obs`, relative where
    actions are large."""
    dice = torch.Generator().manual_seed(0)
    for group in obs.keys():  # noqa: SIM118  a TensorDict iterates over its batch
        obs[group] = torch.randn(obs[group].shape, generator=dice)
    inputs = [torch.cat([obs[group] for group in model.obs_groups], dim=-1)]
    if not isinstance(model, OneStepActor):
        expected = model(obs)
    elif noise == "input":
        inputs.append(torch.randn(len(obs), model.noise_dim, generator=dice))
        expected = model.generate(model.get_latent(obs), inputs[1])
    else:
        expected = model.deploy(obs, noise)
    return float(np.abs(expected.numpy() - exported(*inputs)).max() / expected.abs().max().clamp_min(1.0))


def write_onnx(module: nn.Module, path: Path, metadata: dict[str, Any]) -> Callable[..., np.ndarray]:
    import onnx
    import onnxruntime

    inputs: tuple[Tensor, ...] = module.get_dummy_inputs()  # pyright: ignore[reportCallIssue, reportAssignmentType]
    names: list[str] = list(module.input_names)  # pyright: ignore[reportArgumentType]
    batch = torch.export.Dim("batch", min=1)
    with _quiet():
        program = torch.onnx.export(
            module,
            tuple(torch.cat([dummy, dummy]) for dummy in inputs),  # a batch of one would be taken for a constant
            input_names=names,
            output_names=["actions"],
            opset_version=OPSET,
            dynamic_shapes=tuple({0: batch} for _ in inputs),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path), external_data=False)
    file = onnx.load(path)
    onnx.helper.set_model_props(file, {key: json.dumps(value) for key, value in metadata.items()})
    onnx.save(file, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda *xs: np.asarray(session.run(["actions"], {n: x.numpy() for n, x in zip(names, xs, strict=True)})[0])


def write_torchscript(module: nn.Module, path: Path, metadata: dict[str, Any]) -> Callable[..., np.ndarray]:
    with _quiet():  # deprecated, and still what C++ controllers load
        scripted = torch.jit.script(module)
        torch.jit.save(scripted, str(path), _extra_files={"metadata.json": json.dumps(metadata)})
        loaded = torch.jit.load(str(path))
    return lambda *xs: loaded(*xs).detach().numpy()


def write_safetensors(module: nn.Module, path: Path, metadata: dict[str, Any]) -> Callable[..., np.ndarray]:
    from safetensors.torch import load_file, save_file

    weights = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    save_file(weights, path, {key: json.dumps(value) for key, value in metadata.items()})
    loaded = copy.deepcopy(module)
    loaded.load_state_dict(load_file(path))
    return lambda *xs: loaded(*xs).detach().numpy()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' warnings and notes, none of which a user can act upon."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


WRITERS: dict[str, Callable[[nn.Module, Path, dict[str, Any]], Callable[..., np.ndarray]]] = {
    ".onnx": write_onnx,
    ".pt": write_torchscript,
    ".safetensors": write_safetensors,
}
