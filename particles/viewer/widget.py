"""The viewers as widgets: Python answers questions for rows of numbers, the page draws them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.features import Feature
from particles.plots.panels import check_index
from particles.viewer.recording import Choices, Recording
from particles.viewer.sources import Stored
from particles.viewer.still import blank, still

try:
    import anywidget
    import traitlets
except ImportError:
    raise ImportError('particles.viewer needs anywidget: pip install "kernelgas[notebook]"') from None

if TYPE_CHECKING:
    import xarray as xr

_FOLDER = Path(__file__).parent
_SCRIPTS = ("store.js", "canvas.js", "discs.js", "scene.js", "panels.js", "page.js")  # one module, in this order: a widget has one source


def _read(*names: str) -> str:
    """Files of this package, one after another."""
    return "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in names)


class Viewer(anywidget.AnyWidget):
    """A run to play, turn and look into; made by `view`.

    Every view of it shows the same frame. Rows travel as float32, in pieces of 1 MB when they are needed; the widget's own state holds at
    most 128 KiB of positions and densities, so that notebooks stay small: all frames of a small run, some of a large one.

    Attributes
    ----------
    frame : place of the frame shown, among those shown. Can be set.
    chain : place of the chain shown. Can be set.
    colour : "none", "speed" or a name of `colours`. Can be set.
    density, marginal : what the two densities are of, "radial" or a coordinate's number as text. Can be set.

    Setting one of them to what is not there raises ValueError.
    """

    _esm = _read(*_SCRIPTS)
    _css = _read("viewer.css")
    run = traitlets.Dict().tag(sync=True)
    energies = traitlets.Bytes().tag(sync=True)
    embedded = traitlets.Dict().tag(sync=True)
    palette = traitlets.Bytes().tag(sync=True)
    frame = traitlets.Int(0).tag(sync=True, echo_update=False)  # an echo would throw a page back that has moved on
    chain = traitlets.Int(0).tag(sync=True)
    colour = traitlets.Unicode("none").tag(sync=True)
    density = traitlets.Unicode("radial").tag(sync=True)
    marginal = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(420).tag(sync=True)

    def __init__(self, recording: Recording | None, *, height: int = 420) -> None:
        self._recording, self._version = recording, 0
        super().__init__(palette=_palette(), height=count(height, "height", least=120))
        if recording is not None:
            self._describe(recording)
            self.frame = len(self.run["steps"]) - 1
        self.on_msg(self._answer)

    def _describe(self, recording: Recording, *, live: bool = False) -> None:
        """Tell the page what there is."""
        frames = [] if live else recording.embedded()
        with self.hold_sync():
            self.energies = np.array(list(recording.energies().values()), np.float32).tobytes()
            self.embedded = recording.held(frames)
            self.run = recording.describe(frames) | {"live": live, "version": self._version}
            self.frame = min(self.frame, len(self.run["steps"]) - 1)
            self.chain = min(self.chain, len(self.run["chains"]) - 1)
            self.density, self.marginal = (
                name if name in recording.densities else other for name, other in zip((self.density, self.marginal), recording.densities)
            )

    def _answer(self, _: Any, question: dict[str, Any], __: Any) -> None:
        """Send the rows that the page asks for, or say why not."""
        part, chain, start = (question.get(name) for name in ("part", "chain", "start"))
        answer = {"part": part, "chain": chain, "start": start, "version": question.get("version")}  # the page drops those of the past
        try:
            if self._recording is None:
                raise ValueError("there is no frame yet")
            rows = self._recording.rows(part, chain, start)
        except Exception as error:  # said in the page: there is no cell that could show it
            self.send(answer | {"error": f"{type(error).__name__}: {error}"})
        else:
            self.send(answer | {"rows": len(rows)}, [rows.tobytes()])

    @traitlets.validate("frame", "chain")
    def _within(self, proposal: Any) -> int:
        places = {"frame": "steps", "chain": "chains"}
        if proposal.value or self.run:
            check_index(proposal.value, proposal.trait.name, len(self.run.get(places[proposal.trait.name], ())))
        return proposal.value

    @traitlets.validate("colour", "density", "marginal")
    def _known(self, proposal: Any) -> str:
        name = proposal.trait.name
        known = self.run.get("colours" if name == "colour" else "densities")
        if known is not None and proposal.value not in known:
            raise ValueError(f"{name} must be one of {known}, got {proposal.value!r}")
        return proposal.value

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {'no frame yet' if self._recording is None else self._recording.caption()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and a picture of the frame shown for pages without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            picture = blank("no frame yet") if self._recording is None else still(self._recording, self.frame, self.chain, self.colour)
            bundle[0]["image/png"] = base64.b64encode(picture).decode()
        return bundle


def view(
    dataset: xr.Dataset,
    *,
    dims: tuple[int, ...] | None = None,
    colours: dict[str, Any] | None = None,
    theory: dict[str | int, tuple[Any, Any]] | None = None,
    gram: tuple[Any, str | Feature] | None = None,
    n_frames: int = 500,
    n_particles: int = 5000,
    height: int = 420,
) -> Viewer:
    """An interactive view of a run: particles, densities, spectrum and energies, linked by one time.

    Play, scrub or click the energies to choose a frame; drag to turn (three coordinates) or move (two), wheel or buttons to zoom.
    Keys: space plays, arrows step, shift and arrows turn, Home and End jump, + - 0 zoom. One coordinate is drawn against particle number.

    Exported pages show a picture of the frame that the kernel last heard of. A notebook reopened in JupyterLab shows some frames, and can
    play them, if it was saved with the state of its widgets (Settings, Save Widget State Automatically); else run the cell again.

    >>> view(run, colours={"alignment": Alignment(x, y, "fourier")}, gram=(x[:64], "fourier"), theory={"radial": (radius, density)})

    Parameters
    ----------
    dataset
        A Dataset of `simulate`, in memory or read lazily from a store.
    dims
        One to three coordinates to draw. None: the first three.
    colours
        {name: values of the particles}: an array (particle,), (chain, particle) or (chain, step, particle), or an Energy, whose
        `particle_energies` are computed while they are looked at. "speed" is always there: distance since the frame before, a step.
    theory
        {"radial", a coordinate's number, or "gram": (x, y)}: curves drawn beside the particles' densities or eigenvalues.
    gram
        (x, feature), x (n, dim) with 2 to 256 rows: the spectrum shown is then the eigenvalues of K_N(x, x) / n. Without it, it is the
        marginal density of a coordinate: particles are the kernel's frequencies.
    n_frames, n_particles
        The most that are drawn, evenly spaced; the caption says what is left out. Densities and spectrum are of all particles.
    height
        Of the particles' picture, in pixels, at least 120.

    Raises
    ------
    ImportError
        Without anywidget, of the extra `notebook`.
    ValueError
        If dataset is no trajectory, or an argument does not fit it; for energies of pairs that would need more than 2e8 of them.

    Particles that are not finite are left out of the picture, and counted below it; colours that are not finite are grey.
    """
    choices = Choices(dims, colours, theory, gram, n_frames, n_particles)
    return Viewer(Recording(Stored(dataset, n_frames), choices), height=height)


def _palette() -> bytes:
    """Viridis as 256 colours of three bytes."""
    import matplotlib

    return (matplotlib.colormaps["viridis"](np.linspace(0, 1, 256))[:, :3] * 255).round().astype(np.uint8).tobytes()
