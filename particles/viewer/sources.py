"""Where a viewer's frames come from: a Dataset that is there, or the frames of a run that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.domain import Domain
from particles.trajectory import Frame, Memory, require_trajectory

if TYPE_CHECKING:
    import xarray as xr

BLOCK_BYTES = 2**26  # of positions read at a time
KEPT_BYTES = 2**29  # of the frames of a run that goes on


def spread(size: int, most: int) -> np.ndarray:
    """At most `most` of the places 0, ..., size - 1, evenly spaced, the first and the last among them (the last alone if one)."""
    if most == 1:
        return np.array([size - 1])
    return np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(int))


class Stored:
    """Evenly spaced frames of a Dataset of `simulate`, read in blocks of BLOCK_BYTES.

    Attributes
    ----------
    places, steps : the frames' places in the Dataset, and their step numbers.
    n_all : number of frames in the Dataset. period : of a torus, (dim,), else None.
    left_out : what the frames and particles shown are, of those there are.
    """

    left_out = "evenly spaced"

    def __init__(self, dataset: xr.Dataset, n_frames: int) -> None:
        require_trajectory(dataset)
        self.places, self.n_all = spread(dataset.sizes["step"], n_frames), dataset.sizes["step"]
        self._dataset = dataset
        self.steps = [int(step) for step in dataset.step[self.places]]
        self.chains = [int(chain) for chain in dataset.chain]
        self.shape = tuple(dataset.sizes[name] for name in ("chain", "particle", "dim"))
        self._block = max(1, BLOCK_BYTES // (8 * self.shape[1] * self.shape[2]))
        self._loaded: tuple[tuple[int, int], np.ndarray] = (-1, -1), np.zeros(0)
        self.period = _period(json.loads(dataset.attrs.get("domain", "{}")))

    def blocks(self, chain: int) -> Iterator[np.ndarray]:
        """All frames of a chain, (frame, particle, dim), a block at a time."""
        for first in range(0, len(self.steps), self._block):
            yield self._read(chain, first)

    def omega(self, chain: int, frame: int) -> np.ndarray:
        """The particles of one frame, (particle, dim)."""
        return self._read(chain, frame)[frame % self._block]

    def _read(self, chain: int, frame: int) -> np.ndarray:
        """The block of a frame; the last one read is kept."""
        first = frame - frame % self._block
        place, values = self._loaded  # one attribute: another thread may read too
        if place != (chain, first):
            part = self._dataset.omega.isel(chain=chain, step=self.places[first : first + self._block])
            values = part.transpose("step", "particle", "dim").to_numpy()
            self._loaded = (chain, first), values
        return values

    def energies(self) -> dict[str, np.ndarray]:
        """{"energy" and "energy_<term>": (chain, frame)}, those there are."""
        names = [str(n) for n in self._dataset.data_vars if str(n) == "energy" or str(n).startswith("energy_")]
        return {name: self._dataset[name][{"step": self.places}].transpose("chain", "step").to_numpy() for name in names}

    def dataset(self, chain: int) -> xr.Dataset:
        """The frames shown of a chain, as a Dataset of one chain."""
        return self._dataset.isel(chain=[chain], step=self.places)


class Growing:
    """Frames of a run that goes on; of more than `n_frames`, or than KEPT_BYTES hold, every second one is let go.

    Attributes as in `Stored`; n_all is to count the frames of the run, those that were not given too.
    """

    left_out = "the others came too fast or were let go"
    places = np.zeros(0, int)

    def __init__(self, step: int, frame: Frame, n_frames: int, domain: Domain | None) -> None:
        size = sum(values.nbytes for values in frame.values())
        self._memory, self._most, self.n_all = Memory({}), min(n_frames, max(1, KEPT_BYTES // size)), 0
        self.shape, self.chains = frame["omega"].shape, list(range(frame["omega"].shape[0]))
        self.period = _period(domain.describe()) if domain is not None else None
        self.append(step, frame)

    def append(self, step: int, frame: Frame) -> bool:
        """Keep a frame; True if others had to go for it."""
        self._memory.append(step, frame)
        crowded = len(self._memory.frames) > self._most
        if crowded:
            self._memory.frames = self._memory.frames[-1::-2][::-1]  # the newest stays
        return crowded

    @property
    def steps(self) -> list[int]:
        """Steps of the frames that are kept."""
        return [step for step, _ in self._memory.frames]

    def blocks(self, chain: int) -> Iterator[np.ndarray]:
        """All frames of a chain, (1, particle, dim) each."""
        return (frame["omega"][None, chain] for _, frame in self._memory.frames)

    def omega(self, chain: int, frame: int) -> np.ndarray:
        """The particles of one frame, (particle, dim)."""
        return self._memory.frames[frame][1]["omega"][chain]

    def energies(self) -> dict[str, np.ndarray]:
        """{"energy" and "energy_<term>": (chain, frame)}."""
        names = [name for name in self._memory.frames[0][1] if name == "energy" or name.startswith("energy_")]
        return {name: np.stack([frame[name] for _, frame in self._memory.frames], axis=1) for name in names}

    def dataset(self, chain: int) -> xr.Dataset:
        """The frames kept of a chain, as a Dataset of one chain."""
        return self._memory.dataset().isel(chain=[chain])


def _period(domain: dict[str, Any]) -> np.ndarray | None:
    """The periods of a torus from a domain's description."""
    return np.asarray(domain["period"], float) if domain.get("name") == "Torus" else None
