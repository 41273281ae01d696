"""Films of a policy at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from podpo.evaluation import Policy
from podpo.installation import package_line
from podpo.run_folder import write_atomically
from podpo.tasks.task import Task
from podpo.validation import ConfigError, require

SHEET = (4, 3)
"""Columns and rows of a sheet of frames."""


def film(policy: Policy, task: Task, path: Path) -> None:
    """Write a film of `task` to a .gif or .mp4 file, or some of its frames side by side to a .png."""
    require(path.suffix in WRITERS, "video", str(path), "end the name in .gif, .mp4 or .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[path.suffix](_frames(policy, task), path, task.film_fps)


@torch.inference_mode()
def _frames(policy: Policy, task: Task) -> Iterator[np.ndarray]:
    obs = task.reset()
    yield task.render_frame()
    for step in range(1, task.film_steps + 1):
        obs, *_ = task.step(policy(obs))
        if step % task.film_stride == 0:
            yield task.render_frame()


def _write_sheet(frames: Iterator[np.ndarray], path: Path, fps: int) -> None:
    from PIL import Image

    every = list(frames)
    columns, rows = SHEET
    picked = [every[i] for i in np.linspace(0, len(every) - 1, columns * rows).astype(int)]
    lines = [np.concatenate(picked[i : i + columns], axis=1) for i in range(0, len(picked), columns)]
    sheet = Image.fromarray(np.concatenate(lines, axis=0)).reduce(2)
    write_atomically(path, lambda file: sheet.save(file, "PNG"))


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


WRITERS: dict[str, Callable[[Iterator[np.ndarray], Path, int], None]] = {
    ".gif": _write_gif,
    ".mp4": _write_mp4,
    ".png": _write_sheet,
}
