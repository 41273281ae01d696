from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from conftest import small_run

from podpo import export
from podpo.config import RunConfig
from podpo.construction import build_algorithm
from podpo.tasks import make_task
from podpo.tasks.task import Task
from podpo.validation import ConfigError


def fresh_policy(tmp_path: Path, algorithm: str = "podpo") -> tuple[Any, RunConfig, Task]:
    """A policy whose net and normaliser are those of a trained one in kind: nothing is zero or one."""
    config = small_run(tmp_path, algorithm=algorithm)
    task = make_task(config.task, 32, 0)
    torch.manual_seed(0)
    model = build_algorithm(config, task, "cpu").get_policy()
    with torch.no_grad():
        model.mlp[-1].weight.normal_()  # pyright: ignore[reportCallIssue, reportArgumentType]
    model.update_normalization(task.get_observations())
    return model.eval(), config, task


@pytest.mark.parametrize("noise", ["zero", "mean", "input"])
def test_onnx_acts_like_the_policy(tmp_path: Path, noise: Any) -> None:
    model, config, task = fresh_policy(tmp_path)
    obs = task.get_observations()
    out = tmp_path / "policy.onnx"
    assert export.export_policy(model, out, noise, config, task) < 1e-4
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["policy.onnx"], "one file, weights inside"

    inputs = {"obs": obs["policy"].numpy()}
    if noise == "input":
        z = torch.randn(32, model.noise_dim)
        inputs["noise"] = z.numpy()
        expected = model.generate(model.get_latent(obs), z)
    else:
        expected = model.deploy(obs, noise)
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    (actions,) = session.run(["actions"], inputs)
    assert np.allclose(np.asarray(actions), expected.detach().numpy(), atol=1e-4)

    metadata = {p.key: json.loads(p.value) for p in onnx.load(out).metadata_props}
    assert metadata["noise"] == noise
    assert metadata["producer"].startswith("podpo ")
    assert metadata["task"] == "point-track"
    assert metadata["obs_dim"] == 48
    assert metadata["action_dim"] == len(metadata["action_names"]) == 12


def test_torchscript_acts_like_the_policy(tmp_path: Path) -> None:
    model, config, task = fresh_policy(tmp_path)
    obs = task.get_observations()
    export.export_policy(model, tmp_path / "policy.pt", "zero", config, task)
    extra = {"metadata.json": ""}
    loaded = torch.jit.load(str(tmp_path / "policy.pt"), _extra_files=extra)
    assert torch.allclose(loaded(obs["policy"]), model.deploy(obs, "zero"), atol=1e-5)
    assert json.loads(extra["metadata.json"])["control_dt_s"] == 0.02


def test_safetensors_hold_the_weights_and_what_they_are_for(tmp_path: Path) -> None:
    from safetensors import safe_open

    model, config, task = fresh_policy(tmp_path)
    assert export.export_policy(model, tmp_path / "policy.safetensors", "zero", config, task) == 0
    with safe_open(tmp_path / "policy.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("mlp.0.weight"), model.mlp[0].weight)
        assert json.loads(file.metadata()["obs_dim"]) == 48


def test_a_gaussian_policy_exports_its_mean(tmp_path: Path) -> None:
    model, config, task = fresh_policy(tmp_path, "ppo")
    obs = task.get_observations()
    export.export_policy(model, tmp_path / "policy.onnx", "zero", config, task)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    (actions,) = session.run(None, {"obs": obs["policy"].numpy()})
    assert np.allclose(np.asarray(actions), model(obs).detach().numpy(), atol=1e-4)
    with pytest.raises(ConfigError, match="no noise input"):
        export.export_policy(model, tmp_path / "policy.onnx", "input", config, task)


def test_a_wrong_export_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, config, task = fresh_policy(tmp_path)
    real = export.write_torchscript

    def slightly_off(*arguments: Any) -> Any:
        run = real(*arguments)
        return lambda *inputs: run(*inputs) * 1.001

    monkeypatch.setitem(export.WRITERS, ".pt", slightly_off)
    with pytest.raises(ConfigError, match=r"was not written: its actions differ from the policy's by 1\.0e-03"):
        export.export_policy(model, tmp_path / "policy.pt", "zero", config, task)
    assert not (tmp_path / "policy.pt").exists()


def test_an_export_is_compared_with_the_policy_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exported module is a second implementation; were it wrong, its file would agree with it all the same."""
    model, config, task = fresh_policy(tmp_path)
    real = export.exportable

    def forgets_the_skip(*arguments: Any) -> Any:
        module: Any = real(*arguments)
        module.skip = False
        return module

    monkeypatch.setattr(export, "exportable", forgets_the_skip)
    with pytest.raises(ConfigError, match="was not written"):
        export.export_policy(model, tmp_path / "policy.pt", "input", config, task)


def test_exporting_leaves_the_policy_as_it_was(tmp_path: Path) -> None:
    model, config, task = fresh_policy(tmp_path)
    export.export_policy(model, tmp_path / "policy.pt", "mean", config, task)
    assert model.deployment == "zero"
