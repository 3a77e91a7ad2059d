"""What a viewer shows of a run: positions, colours, densities and eigenvalues, each a row of numbers a frame, computed when asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from particles.arrays import count
from particles.energy import Energy, Sum
from particles.features import Feature, as_feature
from particles.plots.density import density_samples, n_bins, theory_curve
from particles.plots.panels import check_index, numbers
from particles.resample import particle_energies
from particles.viewer.sources import Growing, Stored, spread

CHUNK_BYTES, CHUNK_SECONDS = 2**20, 0.2  # of one answer: small enough that others come between
EMBED_BYTES = 2**17  # of rows that the widget's state holds
MAX_PAIRS, MAX_ROWS = 2e8, 256
RESERVED = ("none", "speed")
Row = Callable[[int, int], np.ndarray]  # (chain, frame) -> (number,)


@dataclass(frozen=True)
class Choices:
    """What is to be shown, checked as far as that is possible without a run."""

    dims: tuple[int, ...] | None = None
    colours: dict[str, Any] | None = None
    theory: dict[str | int, tuple[Any, Any]] | None = None
    gram: tuple[Any, str | Feature] | None = None
    n_frames: int = 500
    n_particles: int = 5000

    def __post_init__(self) -> None:
        count(self.n_frames, "n_frames")
        count(self.n_particles, "n_particles")
        dims = () if self.dims is None else self.dims
        integers = isinstance(dims, (tuple, list)) and all(isinstance(i, (int, np.integer)) for i in dims)
        if self.dims is not None and not (integers and 1 <= len(set(dims)) == len(dims) <= 3):
            raise ValueError(f"dims must be one, two or three different coordinates, got {dims!r}")
        for argument in ("colours", "theory"):
            if not isinstance(getattr(self, argument), (dict, type(None))):
                raise ValueError(f"{argument} must be a dict, got {getattr(self, argument)!r}")
        for name in self.colours or {}:
            if not isinstance(name, str) or not name or name in RESERVED:
                raise ValueError(f"colours must have names other than {RESERVED}, got {name!r}")
        if len({str(name) for name in self.theory or {}}) < len(self.theory or {}):
            raise ValueError(f"theory must name each density once, got {list(self.theory or {})}")
        if self.gram is not None:
            kernel_data(self.gram)


class Recording:
    """A run as its viewer sees it.

    Attributes
    ----------
    shown : places of the particles that are drawn, evenly spaced.
    dims : the coordinates that are drawn.
    densities : what densities there are of: "radial" and coordinates ("0", "1", ...).
    limits : {density: (low, high)} over all chains and frames shown, finite values.
    parts : {name: function of (chain, frame) that gives a row}. positions (shown particle x dims), colour:<name> (shown particle),
        density:<name> (low, high, heights of the bins between; of all particles), gram (eigenvalues of K(x, x) / n, descending).
    """

    def __init__(self, source: Stored | Growing, choices: Choices) -> None:
        self.source, self.choices = source, choices
        n_chains, n_particles, dim = source.shape
        self.dims = tuple(range(min(3, dim))) if choices.dims is None else tuple(choices.dims)
        for index in self.dims:
            check_index(index, "dims", dim)
        self.shown = spread(n_particles, choices.n_particles)
        self.densities = ["radial", *map(str, self.dims)]
        known = [*self.densities, *(["gram"] if choices.gram is not None else [])]
        self.theory = {str(name): _curve(curve, name, known) for name, curve in (choices.theory or {}).items()}
        self.limits: dict[str, tuple[float, float]] = dict.fromkeys(self.densities, (np.inf, -np.inf))
        for chain in range(n_chains):
            for block in source.blocks(chain):
                self.extend(block)
        self.parts: dict[str, Row] = {"positions": self._positions}
        self.parts |= {f"density:{name}": self._density_of(name) for name in self.densities}
        self.parts |= {f"colour:{name}": row for name, row in self._colours().items()}
        if choices.gram is not None:
            self.parts["gram"] = _gram(*kernel_data(choices.gram), source)

    @property
    def colours(self) -> list[str]:
        """Names of the colours, "none" among them."""
        return ["none", *(name.removeprefix("colour:") for name in self.parts if name.startswith("colour:"))]

    def extend(self, omega: np.ndarray) -> bool:
        """Widen the limits to hold `omega` (..., particle, dim); True if they changed."""
        before = dict(self.limits)
        for name, (low, high) in before.items():
            values = density_samples(omega, _quantity(name))
            values = values[np.isfinite(values)]
            self.limits[name] = min(low, float(values.min(initial=np.inf))), max(high, float(values.max(initial=-np.inf)))
        return before != self.limits

    def rows(self, part: Any, chain: Any, start: Any) -> np.ndarray:
        """Rows of a part from frame `start` on, float32 (frame, number): as many as fit an answer, at least one.

        Raises ValueError for a part, chain or frame that is not there.
        """
        if part not in self.parts:
            raise ValueError(f"part must be one of {sorted(self.parts)}, got {part!r}")
        check_index(chain, "chain", self.source.shape[0])
        check_index(start, "start", len(self.source.steps))
        found, begun, size = [], time.monotonic(), 0
        for frame in range(start, len(self.source.steps)):
            found.append(np.asarray(self.parts[part](chain, frame), np.float32).ravel())
            size += found[-1].nbytes
            if size >= CHUNK_BYTES or time.monotonic() - begun > CHUNK_SECONDS:
                break
        return np.stack(found)

    def energies(self) -> dict[str, np.ndarray]:
        """The total, first, and its terms, {name: (chain, frame)}; the total alone where there is one term."""
        given = self.source.energies()
        found = {name.removeprefix("energy_"): given[name] for name in sorted(given, key=lambda name: name != "energy")}
        return found if len(found) != 2 else {"energy": found["energy"]}

    def describe(self, embedded: list[int]) -> dict[str, Any]:
        """What the page must know before it asks for rows, as JSON values; `embedded`: the frames of the first chain that it holds."""
        return {
            "steps": self.source.steps,
            "chains": self.source.chains,
            "dims": list(self.dims),
            "n_particles": int(self.shown.size),
            "limits": {name: widened(limits) for name, limits in self.limits.items()},
            "densities": self.densities,
            "colours": self.colours,
            "energies": list(self.energies()),
            "theory": self.theory,
            "gram": "gram" in self.parts,
            "caption": self.caption(),
            "embedded": embedded,
        }

    def held(self, frames: list[int]) -> dict[str, bytes]:
        """Positions and the first two densities of the first chain in some frames, float32."""
        return {part: np.array([self.parts[part](0, frame) for frame in frames], np.float32).tobytes() for part in self._kept()}

    def embedded(self) -> list[int]:
        """The frames whose rows go into the widget's state, evenly spaced: as many as EMBED_BYTES hold, at least the last."""
        most = max(1, EMBED_BYTES // sum(4 * self.parts[part](0, 0).size for part in self._kept()))
        return spread(len(self.source.steps), most).tolist()

    def _kept(self) -> list[str]:
        return ["positions", *(f"density:{name}" for name in self.densities[:2])]

    def caption(self) -> str:
        """How much of the run is shown."""
        n_chains, n_particles, _ = self.source.shape
        shown, frames = self.shown.size, len(self.source.steps)
        parts = [f"{shown:,} of {n_particles:,} particles" if shown < n_particles else _plural(n_particles, "particle")]
        parts += [f"{frames:,} of {self.source.n_all:,} frames" if frames < self.source.n_all else _plural(frames, "frame")]
        parts += [_plural(n_chains, "chain")] * (n_chains > 1)
        left_out = f" ({self.source.left_out})" if shown < n_particles or frames < self.source.n_all else ""
        exact = " Densities are of all particles." if shown < n_particles else ""
        return f"{', '.join(parts)}{left_out}.{exact}"

    def _positions(self, chain: int, frame: int) -> np.ndarray:
        return self.source.omega(chain, frame)[self.shown][:, list(self.dims)]

    def _density_of(self, name: str) -> Row:
        def row(chain: int, frame: int) -> np.ndarray:
            values = density_samples(self.source.omega(chain, frame), _quantity(name))
            values = values[np.isfinite(values)]
            low, high = widened(self.limits[name])
            heights, _ = np.histogram(values, n_bins(self.source.shape[1]), (low, high))
            width = (high - low) / heights.size
            return np.concatenate([[low, high], heights / (max(values.size, 1) * width)])

        return row

    def _speed(self, chain: int, frame: int) -> np.ndarray:
        """Distance moved since the frame shown before, per step; the first frame has that of the second, a frame alone NaN."""
        after = max(frame, 1)
        if after >= len(self.source.steps):
            return np.full(self.shown.size, np.nan)
        moved = (self.source.omega(chain, after) - self.source.omega(chain, after - 1))[self.shown]
        if self.source.period is not None:
            moved = moved - self.source.period * np.round(moved / self.source.period)
        return np.linalg.norm(moved, axis=-1) / (self.source.steps[after] - self.source.steps[after - 1])

    def _colours(self) -> dict[str, Row]:
        given = {name: self._colour(name, value) for name, value in (self.choices.colours or {}).items()}
        return {**given, "speed": self._speed}

    def _colour(self, name: str, value: Any) -> Row:
        """A row function of an energy, or of an array."""
        if isinstance(value, Energy):
            return self._energy(name, value)
        values = _aligned(value, f"colours[{name!r}]", self.source)
        if values.ndim == 2:
            return lambda chain, frame: values[chain][self.shown]
        values = values[:, self.source.places]
        return lambda chain, frame: values[chain, frame][self.shown]

    def _energy(self, name: str, energy: Energy) -> Row:
        """A row function of `particle_energies`; NaN for particles that are not finite, and for all that interact with one."""
        parts = energy.energies if isinstance(energy, Sum) else (energy,)
        alone = all(part.bodies == 1 for part in parts)
        n_frames = len(self.source.steps) if isinstance(self.source, Stored) else self.choices.n_frames
        cost = 0 if alone else self.source.shape[1] ** 2 * n_frames
        if cost > MAX_PAIRS:
            raise ValueError(
                f"colours[{name!r}] must need at most {MAX_PAIRS:.0e} pairs, got {cost:.1e}: "
                "give the values as an array, or a lower n_frames"
            )

        def row(chain: int, frame: int) -> np.ndarray:
            omega = self.source.omega(chain, frame)
            omega = omega[self.shown] if alone else omega
            finite, values = np.isfinite(omega).all(-1), np.full(len(omega), np.nan)
            if finite.all() or (alone and finite.any()):
                values[finite] = particle_energies(omega[finite], energy)
            return values if alone else values[self.shown]

        row(0, 0)  # an energy that does not fit is refused now, not in the page
        return row


def widened(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits that are no single point; (0, 1) where no value is finite."""
    low, high = limits
    if low > high:
        return 0.0, 1.0
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _quantity(name: str) -> str | int:
    """`density_samples`'s name of a density."""
    return name if name == "radial" else int(name)


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _curve(curve: Any, name: Any, known: list[str]) -> list[list[float | None]]:
    """A theory curve as two lists, None where it is not finite."""
    if str(name) not in known:
        raise ValueError(f"theory must be of {known}, got {name!r}")
    return [[float(v) if np.isfinite(v) else None for v in values] for values in theory_curve(curve)]


def _aligned(value: Any, name: str, source: Stored | Growing) -> np.ndarray:
    """Values as (chain, particle), or (chain, step, particle) of all the Dataset's steps."""
    if hasattr(value, "dims"):
        if not {"chain", "step", "particle"}.issuperset(value.dims):
            raise ValueError(f"{name} must have no axes but chain, step and particle, got {value.dims}")
        value = value.transpose("chain", "step", "particle", missing_dims="ignore")
    values = numbers(value, name)
    n_chains, n_particles, _ = source.shape
    allowed = [(n_particles,), (n_chains, n_particles)]
    allowed += [(n_chains, source.n_all, n_particles)] if isinstance(source, Stored) else []
    if values.shape not in allowed:
        raise ValueError(f"{name} must have a shape of {allowed}, or be an Energy, got shape {values.shape}")
    return np.broadcast_to(values, (n_chains, n_particles)) if values.ndim == 1 else values


def kernel_data(gram: Any) -> tuple[np.ndarray, Feature]:
    """The data rows (n, dim) and the feature of `gram`, checked."""
    if not isinstance(gram, (tuple, list)) or len(gram) != 2:
        raise ValueError(f"gram must be a pair of data rows and a feature, got {gram!r}")
    x, feature = numbers(gram[0], "gram", finite=True), as_feature(gram[1])
    if x.ndim != 2 or not 2 <= len(x) <= MAX_ROWS:
        raise ValueError(f"gram must have 2 to {MAX_ROWS} data rows, (n, dim), got shape {x.shape}")
    return x, feature


def _gram(x: np.ndarray, feature: Feature, source: Stored | Growing) -> Row:
    """A row function of the eigenvalues of K_N(x, x) / n, descending; NaN where the kernel is not finite."""

    def row(chain: int, frame: int) -> np.ndarray:
        omega = source.omega(chain, frame)
        if not np.isfinite(omega).all():
            return np.full(len(x), np.nan)
        phi = np.asarray(feature(x, omega)).reshape(len(x), -1)
        kernel = phi @ phi.T / (len(omega) * len(x))
        return np.linalg.eigvalsh(kernel)[::-1] if np.isfinite(kernel).all() else np.full(len(x), np.nan)

    row(0, 0)
    return row
