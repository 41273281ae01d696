"""Genesis, as podpo's robot tasks use it: started once per process, scenes of one robot on a plane."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import genesis as gs
import torch
from genesis.engine.solvers.rigid.rigid_solver import RigidSolver
from genesis.utils.array_class import ConfigItem, DataKind
from genesis.utils.misc import qd_to_torch
from torch import Tensor

from podpo.validation import ConfigError

FRAME_SIZE = (480, 360)


def start(device: str, seed: int) -> None:
    """Start the simulator, which a process can do once and for one device."""
    backend = gs.constants.backend.cuda if device.startswith("cuda") else gs.constants.backend.cpu
    if not gs._initialized:
        with contextlib.redirect_stdout(io.StringIO()):
            gs.init(backend=backend, seed=seed, logging_level="error")
    elif gs.backend != backend:
        raise ConfigError(
            f"device = {device!r} cannot work: Genesis runs on {gs.backend} in this process already; "
            "start another process."
        )


class Scene:
    """One robot on a plane, in many environments, with its state as tensors that share Genesis' own memory."""

    def __init__(
        self,
        num_envs: int,
        robot: str,
        start_pos_m: Sequence[float],
        dt_s: float,
        substeps: int,
        film: bool,
    ) -> None:
        self.num_envs = num_envs
        self.scene = gs.Scene(
            sim_options=gs.options.SimOptions(dt=dt_s, substeps=substeps),
            rigid_options=gs.options.RigidOptions(enable_self_collision=False, tolerance=1e-5, max_collision_pairs=20),
            vis_options=gs.options.VisOptions(rendered_envs_idx=list(range(num_envs if film else 1))),
            show_viewer=False,
        )
        self.scene.add_entity(gs.morphs.URDF(file="urdf/plane/plane.urdf", fixed=True))
        self.robot: Any = self.scene.add_entity(gs.morphs.URDF(file=robot, pos=tuple(start_pos_m)))
        self.camera: Any = None
        if film:
            self.camera = self.scene.add_camera(res=FRAME_SIZE, pos=(2.5, -2.5, 1.5), lookat=(0, 0, 0.3), GUI=False)
        self.scene.build(n_envs=num_envs, env_spacing=(1.0, 1.0))
        solver = self.scene.rigid_solver
        assert isinstance(solver, RigidSolver)
        self.solver = solver
        # Views, not copies: `[num_envs, ...]`, always up to date, good for recording into a CUDA graph.
        self.qpos: Tensor = qd_to_torch(solver.rigid_info.qpos, transpose=True, copy=False)
        """Position [m], orientation (w, x, y, z) and joint angles [rad] of the robot."""
        self.qvel: Tensor = qd_to_torch(solver.dyn_state.dofs.vel, transpose=True, copy=False)
        """Velocity in the world's frame [m/s], angular velocity in the robot's and joint velocities [rad/s]."""
        self.errors: Tensor = qd_to_torch(solver._errno, copy=False)
        """Not zero where the solver has failed."""

    def step(self) -> None:
        self.scene.step(update_visualizer=False)

    def place(self, qpos: Tensor, where: Tensor) -> None:
        """Put the robot at rest at `qpos` `[num_qs]`, in the environments of the mask `where`."""
        self.robot.set_qpos(qpos, envs_idx=where, zero_velocity=True)

    def state_dict(self) -> dict[str, Tensor]:
        """What the future of the simulation depends on to the last bit, warm starts of its solvers included."""
        arrays = self.solver.__getstate__().arrays
        return {name: torch.as_tensor(arrays[name]) for name in self._state_names() if name in arrays}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        record = self.solver.__getstate__()
        arrays = {name: value.to(self.qpos.device) for name, value in saved.items()}
        self.solver.__setstate__(replace(record, arrays=record.arrays | arrays))

    def _state_names(self) -> Iterator[str]:
        """Genesis' state, and what it derives of the robot's pose: worked out anew, its last bits would differ."""
        for item in self.solver.data:
            if not isinstance(item, ConfigItem) and (
                item.kind == DataKind.STATE
                or (item.name.startswith("dyn_state.") and not item.name.startswith("dyn_state.free_verts"))
            ):
                yield item.name

    def look(self, from_m: Sequence[float], at_m: Sequence[float]) -> Any:
        """A picture `[H, W, 3]` of bytes."""
        self.scene.visualizer.update()  # pyright: ignore[reportOptionalMemberAccess]
        self.camera.set_pose(pos=tuple(from_m), lookat=tuple(at_m))
        return self.camera.render()[0]
