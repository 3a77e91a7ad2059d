"""A film: a figure redrawn frame by frame, played by a notebook or written as GIF or MP4.

The one file here that imports matplotlib when it is loaded: load it inside functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, FuncAnimation
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from particles.arrays import count
from particles.trajectory import as_path

N_COLOURS = 128  # of a palette
HOLD = 1500  # milliseconds that the last frame of a GIF stays
DELAY = 3.0  # seconds after which a bar of progress appears
SIGNS = {  # of the player's buttons, where matplotlib asks a server for icons
    "minus": "−",
    "plus": "+",
    "fast-backward": "«",
    "fast-forward": "»",
    "step-backward": "‹",
    "step-forward": "›",
    "play": "▶",
    "play fa-flip-horizontal": "◀",
    "pause": "‖",
}


class Film(FuncAnimation):
    """`draw(i)` redraws the figure as frame i of n_frames. Shown by a notebook as a player, its last frame where none can run.

    The layout is fixed when the film is made, so that panels do not move; PNG frames have a palette, which makes a player three times
    smaller.
    """

    def __init__(self, figure: Figure, draw: Callable[[int], Any], n_frames: int, *, fps: int) -> None:
        _Canvas(figure)
        draw(n_frames - 1)
        _fix_layout(figure)
        self.figure, self.draw, self.n_frames, self.fps = figure, draw, n_frames, count(fps, "fps")
        super().__init__(figure, _returning_nothing(draw), frames=n_frames, interval=1000 / fps)  # type: ignore[arg-type]

    def write(self, path: str | Path, *, progress: bool = True) -> Path:
        """Write .gif (repeats, its last frame stays 1.5 s) or .mp4, and return the path; a bar appears after 3 seconds if wanted.

        Raises
        ------
        ValueError
            For another suffix, or a GIF of more than 50 frames a second, which browsers slow down.
        ImportError
            If path ends in .mp4 and imageio-ffmpeg is not installed (the extra `video`).
        """
        from tqdm.auto import tqdm

        path, writer = as_path(path, "path"), writer_for(path, self.fps)
        part = path.with_name(f".new.{path.name}")  # a film that is interrupted leaves what was there
        try:
            with tqdm(total=self.n_frames, desc=path.name, unit="frame", delay=DELAY, disable=not progress) as bar:
                self.save(part, writer=writer, progress_callback=lambda *_: bar.update())
            part.replace(path)
        except CalledProcessError as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # Ctrl-C ends ffmpeg too, and that fails
                raise error.__context__ from None
            raise
        finally:
            part.unlink(missing_ok=True)
        return path

    def __del__(self) -> None:
        """Nothing: a film that was not looked at is no mistake."""

    def _repr_html_(self) -> str:
        """The player, which loads nothing from elsewhere."""
        page = re.sub(r"<link\b[^>]*font-awesome[^>]*>\s*", "", self.to_jshtml())
        for name, sign in SIGNS.items():
            page = page.replace(f'<i class="fa fa-{name}"></i>', sign)
        return page

    def _repr_png_(self) -> bytes:
        self.draw(self.n_frames - 1)
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()


def _fix_layout(figure: Figure) -> None:
    """Panels and legends stay where they are now."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:
        legend = ax.get_legend()
        if legend is not None:
            corner = legend.get_window_extent().transformed(ax.transAxes.inverted()).p0
            legend.set_loc(tuple(corner))  # type: ignore[arg-type]


def writer_for(path: Any, fps: int) -> AbstractMovieWriter:
    """The writer that the path's suffix asks for; raises as `Film.write`."""
    suffix = as_path(path, "path").suffix.lower()
    if suffix == ".gif":
        if fps > 50:
            raise ValueError(f"fps must be at most 50 for a GIF, got {fps}")
        return _Gif(fps)
    if suffix == ".mp4":
        return _Mp4(fps, codec="h264")
    raise ValueError(f"path must end in .gif or .mp4, got {str(path)!r}")


class _Canvas(FigureCanvasAgg):
    """Draws when it is asked to, not once more when a frame has changed; writes PNGs with a palette."""

    def draw_idle(self, *_: Any, **__: Any) -> None:
        pass

    def print_png(self, filename_or_obj: Any, **_: Any) -> None:
        self.draw()
        image = Image.fromarray(np.asarray(self.buffer_rgba())).convert("RGB")
        image.quantize(palette=_palette([image]), dither=Image.Dither.NONE).save(filename_or_obj, "png", optimize=True)


class _Gif(AbstractMovieWriter):
    """Frames of one palette, so that only what changes between two of them is stored."""

    def setup(self, fig: Any, outfile: Any, dpi: float | None = None) -> None:
        super().setup(fig, outfile, dpi)
        self.frames: list[Image.Image] = []

    def grab_frame(self, **_: Any) -> None:
        canvas: Any = self.fig.canvas
        canvas.draw()
        self.frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))

    def finish(self) -> None:
        if not self.frames:
            return  # an error came before the first one
        palette = _palette([self.frames[k] for k in (0, len(self.frames) // 2, -1)])
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        durations = [round(100 / self.fps) * 10] * (len(frames) - 1) + [HOLD]  # of a GIF are hundredths of a second
        frames[0].save(self.outfile, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


class _Mp4(FFMpegWriter):
    """By the binary that imageio-ffmpeg brings."""

    @classmethod
    def bin_path(cls) -> str:
        try:
            from imageio_ffmpeg import get_ffmpeg_exe
        except ImportError:
            raise ImportError('MP4 needs imageio-ffmpeg: pip install "kernelgas[video]"') from None
        return get_ffmpeg_exe()


def _palette(frames: list[Image.Image]) -> Image.Image:
    """An image that carries the colours which serve all frames best; white is among them, as it is most of a figure."""
    whole = Image.fromarray(np.concatenate([np.asarray(frame) for frame in frames])).quantize(N_COLOURS)
    colours = np.array(whole.getpalette()).reshape(-1, 3)
    colours[(colours > 246).all(1)] = 255
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours.ravel().tolist())
    return palette


def _returning_nothing(draw: Callable[[int], Any]) -> Callable[[int], tuple]:
    """What FuncAnimation wants to call: it looks at what is returned."""

    def redraw(i: int) -> tuple:
        draw(i)
        return ()

    return redraw
