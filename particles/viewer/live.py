"""The view of a run that goes on: a callback of `simulate` that shows its frames."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from particles.arrays import positive
from particles.domain import Domain
from particles.features import Feature
from particles.trajectory import Frame
from particles.viewer.recording import Choices, Recording
from particles.viewer.sources import Growing
from particles.viewer.widget import Viewer, traitlets


class LiveViewer(Viewer):
    """A view of a run that goes on, for `simulate(..., callback=viewer)`; made by `live_view`.

    Attributes
    ----------
    stopped : True ends the run at its next saved frame; set by the button Stop, or from another thread.

    The page is answered in another thread while the cell runs.
    """

    stopped = traitlets.Bool(False).tag(sync=True)

    def __init__(self, choices: Choices, *, rate: float, domain: Domain | None, height: int) -> None:
        self._choices, self._interval, self._domain = choices, 1 / rate, domain
        self._sent, self._last, self._display = -math.inf, -1, None
        self._waiting: tuple[int, Frame] | None = None
        self._lock = threading.RLock()
        super().__init__(None, height=height)

    def __call__(self, step: int, frame: Frame) -> bool:
        """Show a frame of `simulate`, unless the last one was shown too short a time ago; True where Stop was pressed."""
        recording = self._recording
        if recording is None or step <= self._last or frame["omega"].shape != self._source.shape:
            recording = self._begin(step, frame)
        else:
            self._waiting = step, frame
        self._source.n_all += 1
        self._last = step
        if time.monotonic() - self._sent >= self._interval:
            self._show(recording)
            self._sent = time.monotonic()
        return self.stopped

    def _begin(self, step: int, frame: Frame) -> Recording:
        """The first frame of a run: what can be shown is known now, and the viewer displays itself in a notebook."""
        source = Growing(step, frame, self._choices.n_frames, self._domain)
        recording = Recording(source, self._choices)
        with self._lock:
            if self._recording is not None:  # another run, shown in place of the one before
                self._version += 1
                self._waiting, self.stopped = None, False
            self._source, self._recording, self._sent = source, recording, -math.inf
            self._describe(recording, live=True)
        if self._display is None:
            self._open()
        self._listen()
        return recording

    def _show(self, recording: Recording) -> None:
        """Keep the waiting frame and send it, in the chain and colour chosen."""
        if self._waiting is None:
            return
        (step, frame), self._waiting = self._waiting, None
        with self._lock:
            if self._source.append(step, frame):
                self._version += 1
            recording.extend(frame["omega"])
            self._describe(recording, live=True)
            last = len(recording.source.steps) - 1
            parts = ["positions", f"density:{self.density}", f"density:{self.marginal}", f"colour:{self.colour}", "gram"]
            for part in dict.fromkeys(part for part in parts if part in recording.parts):
                self._answer(self, {"part": part, "chain": self.chain, "start": last, "version": self._version}, None)
        self._listen()

    def _listen(self) -> None:
        """ipykernel 7.4 hands the page's messages to whoever sent last, the busy cell; without this mark, to the thread that is free."""
        getattr(self.comm, "__dict__", {}).pop("_reply_subshell_id", None)

    def _answer(self, viewer: Any, question: dict[str, Any], buffers: Any) -> None:
        if question.get("stop") is True:
            self.stopped = True
            return
        with self._lock:
            super()._answer(viewer, question, buffers)

    def finish(self) -> None:
        """The run is over: show its last frame, and put its picture into the output. A notebook's cell calls this when it ends."""
        if self._recording is None:
            return
        self._show(self._recording)
        self._describe(self._recording)
        self.frame = len(self.run["steps"]) - 1
        if self._display is not None:
            self._display.update(self)
            self._display = None

    def _open(self) -> None:
        """Display in the running cell, if there is one, and finish when it ends."""
        try:
            from IPython import display, get_ipython
        except ImportError:
            return
        shell = get_ipython()
        if shell is None:
            return

        def end(_: Any = None) -> None:
            shell.events.unregister("post_run_cell", end)
            self.finish()

        self._display = display.display(self, display_id=True)
        shell.events.register("post_run_cell", end)


def live_view(
    *,
    rate: float = 10.0,
    domain: Domain | None = None,
    dims: tuple[int, ...] | None = None,
    colours: dict[str, Any] | None = None,
    theory: dict[str | int, tuple[Any, Any]] | None = None,
    gram: tuple[Any, str | Feature] | None = None,
    n_frames: int = 500,
    n_particles: int = 5000,
    height: int = 420,
) -> LiveViewer:
    """A view of a run that goes on: the callback of `simulate`, which displays itself with the first frame and has a button Stop.

    >>> run = simulate(omega, energy, domain, sampler, n_steps=10_000, save_every=10, rng=0, callback=live_view())

    Frames that come faster than `rate` a second are left out (not the last one); of more than `n_frames`, or than 512 MB hold, every
    second one is let go. The caption says how many; `view(run)` shows them all. Another run takes the place of the one before. Outside a
    notebook nothing is shown.

    The button Stop needs ipykernel 7 and JupyterLab 4.4 or newer: older ones hear it only after the run. The kernel's interrupt button
    ends a run everywhere.

    Parameters
    ----------
    rate
        The most frames a second that are shown.
    domain
        Needed for a `Torus` only: speeds then cross its seam. Other arguments and errors as in `view`; arrays of colours have no step.
    """
    choices = Choices(dims, colours, theory, gram, n_frames, n_particles)
    if domain is not None and not isinstance(domain, Domain):
        raise ValueError(f"domain must be a Domain, got {domain!r}")
    return LiveViewer(choices, rate=positive(rate, "rate"), domain=domain, height=height)
