"""Films of a policy at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from podpo.evaluation import Policy
from podpo.installation import package_line
from podpo.run_folder import write_atomically
from podpo.tasks.task import Task
from podpo.validation import ConfigError, require


def film(policy: Policy, task: Task, path: Path) -> None:
    """Write one episode's length of `task` to a .gif or .mp4 file."""
    require(path.suffix in (".gif", ".mp4"), "video", str(path), "end the name in .gif or .mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = _frames(policy, task)
    if path.suffix == ".gif":
        _write_gif(frames, path, task.film_fps)
    else:
        _write_mp4(frames, path, task.film_fps)


@torch.inference_mode()
def _frames(policy: Policy, task: Task) -> Iterator[np.ndarray]:
    obs = task.reset()
    yield task.render_frame()
    for step in range(1, task.film_steps + 1):
        obs, *_ = task.step(policy(obs))
        if step % task.film_stride == 0:
            yield task.render_frame()


def _write_gif(frames: Iterator[np.ndarray], path: Path, fps: int) -> None:
    from PIL import Image

    first, *rest = [Image.fromarray(frame) for frame in frames]
    write_atomically(
        path,
        lambda file: first.save(file, "GIF", save_all=True, append_images=rest, duration=1000 // fps, loop=0),
    )


def _write_mp4(frames: Iterator[np.ndarray], path: Path, fps: int) -> None:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ConfigError(
            f"video = {str(path)!r} cannot work: MP4 needs {package_line('imageio-ffmpeg')}; GIF needs nothing more."
        ) from None
    first = next(frames)
    height, width = first.shape[:2]
    temporary = path.with_suffix(".part.mp4")
    writer = imageio_ffmpeg.write_frames(str(temporary), (width, height), fps=fps, macro_block_size=2)
    writer.send(None)
    try:
        for frame in (first, *frames):
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()
    temporary.replace(path)
