"""What a training shows while it runs: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

PLAIN_INTERVAL_S = 10.0


class UnbrokenConsole(Console):
    """A training outlives whoever reads its output (`podpo train | head`); it goes on without a word."""

    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class ProgressDisplay:
    """A context manager; `show` once per iteration, `say` for a line that stays."""

    def __init__(self, console: Console, start: int, total: int, max_time: float | None) -> None:
        self.console = console
        self.start, self.total, self.max_time = start, total, max_time
        self.started = time.monotonic()
        self._last_line = -PLAIN_INTERVAL_S
        columns = (
            TextColumn("[bold]training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("return [bold green]{task.fields[reward]}[/]  length {task.fields[length]}"),
            TextColumn("{task.fields[fps]} steps/s"),
            TextColumn("left {task.fields[eta]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> ProgressDisplay:
        if self._bar is not None:
            self._task = self._bar.add_task("training", total=self.total, completed=self.start)
            self._show_fields(reward="-", length="-", fps="-", eta="-")
            self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, iteration: int, row: Mapping[str, float]) -> None:
        shown = {
            "reward": f"{row['Train/mean_reward']:.2f}" if "Train/mean_reward" in row else "-",
            "length": f"{row['Train/mean_episode_length']:.0f}" if "Train/mean_episode_length" in row else "-",
            "fps": f"{row['Perf/total_fps']:,.0f}",
            "eta": _clock(self._seconds_left(iteration)),
        }
        if self._bar is not None:
            self._bar.update(self._task, completed=iteration)
            self._show_fields(**shown)
            return
        elapsed = time.monotonic() - self.started
        if elapsed - self._last_line >= PLAIN_INTERVAL_S or iteration == self.total:
            self._last_line = elapsed
            self.console.print(
                f"iteration {iteration}/{self.total}  return {shown['reward']}  length {shown['length']}  "
                f"{shown['fps']} steps/s  {_clock(elapsed)} elapsed  {shown['eta']} left",
                soft_wrap=True,
                highlight=False,
            )

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False)

    def _show_fields(self, **fields: str) -> None:
        if self._bar is not None:
            self._bar.tasks[self._task].fields.update(fields)

    def _seconds_left(self, iteration: int) -> float:
        elapsed = time.monotonic() - self.started
        left = elapsed / max(iteration - self.start, 1) * (self.total - iteration)
        return left if self.max_time is None else max(min(left, self.max_time - elapsed), 0.0)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
