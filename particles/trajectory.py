"""Trajectories: one schema for what a run leaves, in memory or streamed to a zarr store that survives a kill at any moment.

A kill loses at most the frames of the last 5 seconds or of the unfinished chunk, whichever are fewer.

Variables: omega (chain, step, particle, dim); energy and energy_<term> (chain, step), of H_N; grad_norm; projected and capped of Langevin
runs, acceptance and step_size of MALA and HMC; extra_temperature of minibatched energies; coincident and min_gap of pair energies.
Coordinates: the saved step numbers, and indices (chains counted from the run's first). Attributes are JSON text (plain text where the
value is a string): schema, energy, domain, sampler, choices, seed, first_chain, save_every, array, dtype, device, versions, created,
and interrupted = "true" on what a run returns that was ended by Ctrl-C.

The store holds arrays of their final length, so that frames only ever add chunk files, never change metadata. Of each chunk the
`step` coordinate is written last: a frame is valid when its step is not -1. zarr replaces chunk files atomically (since
3.1.3). `open_trajectory` shows the valid frames only; opened by xarray alone, a run that ended early has steps of -1 after them.
"""

from __future__ import annotations

import datetime
import json
import shutil
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

SCHEMA = 1
UNSAVED = -1
CHUNK_BYTES, CHUNK_FRAMES, FLUSH_SECONDS = 2**22, 1000, 5.0  # a kill loses one chunk, or the last seconds if the chunk took longer
LONG_NAMES = {
    "omega": "particles",
    "energy": "Hamiltonian H_N",
    "grad_norm": "root mean square over particles of the gradient of N H_N",
    "projected": "fraction of particle steps moved back by the wall since the last frame",
    "capped": "fraction of particle steps with a capped drift since the last frame",
    "acceptance": "fraction of accepted proposals since the last frame",
    "step_size": "step size of the sampler",
    "extra_temperature": "temperature that the noise of minibatches adds to 1/beta",
    "coincident": "number of coincident pairs",
    "min_gap": "smallest distance between two particles",
}
UNITS = {"acceptance": "1", "step_size": "time (mobility 1)", "extra_temperature": "as 1/beta"}
Frame = dict[str, np.ndarray]


def as_json(value: Any) -> str:
    """JSON text with sorted keys; NumPy scalars and arrays as numbers and lists."""
    return json.dumps(value, sort_keys=True, default=lambda item: item.tolist())


def as_path(path: Any, name: str) -> Path:
    """`path` as a Path; ValueError for what is no path, and for an empty one."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise ValueError(f"{name} must be a path, got {path!r}")
    return Path(path)


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the named distributions, those that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def attributes(**values: Any) -> dict[str, str]:
    """A Dataset's attributes: strings as they are, all else as JSON text, with schema, versions and the time of creation added."""
    values["schema"] = SCHEMA
    values["versions"] = versions("kernelgas", "numpy", "numba", "torch", "xarray", "zarr")
    values["created"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {name: value if isinstance(value, str) else as_json(value) for name, value in values.items()}


def _dims(values: np.ndarray) -> tuple[str, ...]:
    """Dimension names of a frame's variable once the step axis is there."""
    return ("chain", "step", "particle", "dim")[: values.ndim + 1]


def _coordinates(frame: Frame, attrs: dict[str, str]) -> dict[str, np.ndarray]:
    """Indices; chains are counted from the run's first."""
    indices = {name: np.arange(size) for name, size in zip(("chain", "particle", "dim"), frame["omega"].shape)}
    return indices | {"chain": indices["chain"] + int(attrs.get("first_chain", 0))}


class Memory:
    """Frames kept in a list."""

    def __init__(self, attrs: dict[str, str]):
        self.attrs = attrs
        self.frames: list[tuple[int, Frame]] = []  # one list, so that an interrupt cannot come between

    def append(self, step: int, frame: Frame) -> None:
        """Keep a frame."""
        self.frames.append((step, frame))

    def flush(self) -> None:
        """Nothing is pending in memory."""

    def dataset(self) -> xr.Dataset:
        """All frames as one Dataset."""
        import xarray as xr

        steps, frames = zip(*self.frames)
        first = frames[0]
        variables = {name: (_dims(first[name]), np.stack([f[name] for f in frames], axis=1)) for name in first}
        coordinates = {"step": np.array(steps), **_coordinates(first, self.attrs)}
        return _labelled(xr.Dataset(variables, coordinates, attrs=dict(self.attrs)))


class Store:
    """Frames streamed to a zarr group at `path`, whole chunks at a time; `create` or `reopen` one.

    A pending (unfinished) chunk is held in memory and written by `flush`, at the latest with the first frame that comes FLUSH_SECONDS
    after the last write; later frames of the same chunk then replace its files.
    """

    def __init__(self, path: Path, group: Any):
        self.path, self.group, self.written = path, group, time.monotonic()
        self.chunk = group["omega"].chunks[1]
        n_valid = _n_valid(group)
        start = n_valid - n_valid % self.chunk
        saved = {name: array[:, start:n_valid] for name, array in _variables(group)}
        frames = [{name: values[:, i] for name, values in saved.items()} for i in range(n_valid - start)]
        # (first frame's place, [(step, frame), ...]) of the open chunk: one attribute, so that an interrupt cannot come between
        self.pending: tuple[int, list[tuple[int, Frame]]] = (start, list(zip(group["step"][start:n_valid].tolist(), frames)))

    @classmethod
    def create(cls, path: Path, frame: Frame, n_frames: int, attrs: dict[str, str]) -> Store:
        """A new store that holds the first frame (step 0) and has room for `n_frames`; it appears at `path` complete or not at all.

        Raises
        ------
        FileExistsError
            If `path` exists; it is left as it is.
        """
        import zarr

        if path.exists():
            raise FileExistsError(f"store {str(path)!r} exists already: resume it, or name another")
        path.parent.mkdir(parents=True, exist_ok=True)
        building = path.with_name(f".{path.name}.new")
        shutil.rmtree(building, ignore_errors=True)
        try:
            group = zarr.create_group(building, attributes=attrs)
            _create_arrays(group, frame, n_frames, attrs)
            store = cls(building, group)
            store.append(0, frame)
            store.flush()
            building.rename(path)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        store.path, store.group = path, zarr.open_group(path, mode="r+")
        return store

    @classmethod
    def reopen(cls, path: Path, n_frames: int) -> Store:
        """An existing store, with room for `n_frames`, to be continued after its last valid frame."""
        import zarr

        group = zarr.open_group(path, mode="r+")
        _grow(group, n_frames)
        return cls(path, group)

    def append(self, step: int, frame: Frame) -> None:
        """Take a frame; written when its chunk is complete, or when the last write is long ago."""
        start, frames = self.pending
        frames.append((step, frame))
        full = len(frames) == self.chunk
        if full or time.monotonic() - self.written > FLUSH_SECONDS:
            self.flush()
        if full:
            self.pending = (start + self.chunk, [])

    def flush(self) -> None:
        """Write the pending frames: data first, then the step numbers that make them valid."""
        start, frames = self.pending
        if not frames:
            return
        place = slice(start, start + len(frames))
        for name, array in _variables(self.group):
            array[:, place] = np.stack([frame[name] for _, frame in frames], axis=1)
        self.group["step"][place] = np.array([step for step, _ in frames])
        self.written = time.monotonic()

    def dataset(self) -> xr.Dataset:
        """The stored frames, read lazily."""
        return open_trajectory(self.path)


def _create_arrays(group: Any, frame: Frame, n_frames: int, attrs: dict[str, str]) -> None:
    """Empty arrays for `n_frames` frames like `frame`, and the index coordinates."""
    bytes_per_frame = sum(v.nbytes for v in frame.values())
    chunk = max(1, min(CHUNK_FRAMES, CHUNK_BYTES // bytes_per_frame))
    for name, values in frame.items():
        shape, chunks = list(values.shape), list(values.shape)
        shape.insert(1, n_frames)
        chunks.insert(1, chunk)
        fill = np.nan if values.dtype.kind == "f" else UNSAVED
        group.create_array(
            name, shape=shape, chunks=chunks, dtype=values.dtype, fill_value=fill, dimension_names=_dims(values), attributes=_label(name)
        )
    for name, index in _coordinates(frame, attrs).items():
        group.create_array(name, data=index, dimension_names=(name,))
    # one chunk: read at every opening, when a chunk that is missing would cost as much as one that is there
    group.create_array("step", shape=(n_frames,), chunks=(n_frames,), dtype="int64", fill_value=UNSAVED, dimension_names=("step",))


def _label(name: str) -> dict[str, str]:
    """A variable's attributes."""
    if name.startswith("energy_"):
        return {"long_name": f"{name.removeprefix('energy_')} term of H_N"}
    return {key: texts[name] for key, texts in (("long_name", LONG_NAMES), ("units", UNITS)) if name in texts}


def _labelled(dataset: xr.Dataset) -> xr.Dataset:
    for name, variable in dataset.data_vars.items():
        variable.attrs.update(_label(str(name)))
    return dataset


def _variables(group: Any) -> list[tuple[str, Any]]:
    """The group's arrays with a step axis, but the step coordinate itself."""
    return [(name, a) for name, a in sorted(group.arrays()) if a.ndim > 1]


def _n_valid(group: Any) -> int:
    """The number of frames before the first unsaved one."""
    unsaved = group["step"][:] == UNSAVED
    return int(unsaved.argmax()) if unsaved.any() else unsaved.size


def _grow(group: Any, n_frames: int) -> None:
    """Give every array room for `n_frames` (and for what any of them has: a kill may have come between two)."""
    arrays, steps = _variables(group), group["step"]
    n_frames = max(n_frames, steps.shape[0], *(a.shape[1] for _, a in arrays))
    for _, array in arrays:
        if array.shape[1] < n_frames:
            array.resize((array.shape[0], n_frames, *array.shape[2:]))
    if steps.shape[0] < n_frames:
        steps.resize((n_frames,))


def require_trajectory(dataset: Any) -> None:
    """ValueError for what is no Dataset of `simulate` with a frame in it; parts of one may keep any frames, particles and chains."""
    axes = getattr(getattr(dataset, "data_vars", {}).get("omega"), "sizes", {})
    if {"chain", "step", "particle", "dim"} - {name for name, size in axes.items() if size}:
        got = f"axes {dict(axes)}" if axes else type(dataset).__name__
        raise ValueError(f"dataset must be a Dataset of simulate, with omega (chain, step, particle, dim), none of them 0, got {got}")


def open_trajectory(store: str | Path) -> xr.Dataset:
    """The valid frames of a store, read lazily; also of one that is still being written, or whose writer was killed.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ValueError
        If the store is not a trajectory, or of a newer schema.
    """
    import xarray as xr
    import zarr

    path = as_path(store, "store")
    if not path.exists():
        raise FileNotFoundError(f"store {str(path)!r} does not exist")
    try:
        group: Any = zarr.open_group(path, mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"store {str(path)!r} is not a zarr group") from error
    if "schema" not in group.attrs or "step" not in group or "omega" not in group:
        raise ValueError(f"store {str(path)!r} is not a trajectory: it lacks a schema, or step and omega")
    if int(str(group.attrs["schema"])) > SCHEMA:
        raise ValueError(f"store {str(path)!r} has schema {group.attrs['schema']}, this version reads up to {SCHEMA}")
    if len({a.shape[1] for _, a in _variables(group)} | set(group["step"].shape)) > 1:
        _grow(zarr.open_group(path, mode="r+"), 0)
    dataset = xr.open_dataset(path, engine="zarr", consolidated=False, chunks=None)
    return dataset.isel(step=slice(0, _n_valid(group)))
