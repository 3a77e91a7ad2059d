"""`simulate` and `resume`: the loop over steps, and what is saved of it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from particles import random
from particles.arrays import Array, as_omega, count, is_torch
from particles.domain import Domain, safe_norms
from particles.energy import require_complete
from particles.sampler import QUIET, Sampler
from particles.sampler import Memory as SamplerMemory
from particles.trajectory import Frame, Memory, Store, as_json, as_path, attributes, open_trajectory

if TYPE_CHECKING:
    import xarray as xr

Callback = Callable[[int, Frame], Any]


_ROLES = {
    "energy": ("gradient", "value_and_grad", "diagnostics", "describe"),
    "domain": ("project", "reflect", "contains", "describe"),
    "sampler": ("check", "begin", "advance", "remarks", "describe"),
}


def _check_roles(**given: Any) -> None:
    """ValueError if energy, domain or sampler cannot do what one must do: swapped, a class instead of an object, a name."""
    for role, value in given.items():
        if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in _ROLES[role]):
            raise ValueError(f"{role} must be an object that has {', '.join(_ROLES[role])}, got {value!r}")
    require_complete(given["energy"])


class _Model(NamedTuple):
    """What moves the particles."""

    energy: Any
    domain: Domain
    sampler: Sampler
    seed: int
    first_chain: int
    save_every: int

    def key(self, step: int) -> random.Key:
        return self.seed, self.first_chain, step

    def descriptions(self) -> dict[str, Any]:
        return {name: getattr(self, name).describe() for name in ("energy", "domain", "sampler")}

    def attributes(self, omega: Array) -> dict[str, str]:
        """All that the Dataset's attributes say of a run from `omega`."""
        array = {"array": "torch" if is_torch(omega) else "numpy", "dtype": str(omega.dtype).removeprefix("torch.")}
        device = str(getattr(omega, "device", "cpu"))
        run = {"seed": self.seed, "first_chain": self.first_chain, "save_every": self.save_every, "device": device}
        return attributes(**self.descriptions(), **array, **run, choices=_choices(self.energy, omega))


def _choices(energy: Any, omega: Array) -> dict[str, str]:
    """Which algorithm each part of the energy takes for omega's shape; empty where there is no choice."""
    choices = getattr(energy, "choices", None)
    return choices(omega) if choices else {}


def simulate(
    omega: Array,
    energy: Any,
    domain: Domain,
    sampler: Sampler,
    *,
    n_steps: int,
    save_every: int = 1,
    rng: int | np.random.Generator,
    first_chain: int = 0,
    store: str | Path | None = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> xr.Dataset:
    """Move particles by the sampler's steps (`Langevin`: Algorithm 1 of the Coulomb paper) and return their trajectory.

    Parameters
    ----------
    omega
        Start, (particle, dim) or (chain, particle, dim), NumPy or torch (on any device), inside `domain`.
    energy, domain, sampler
        H_N, the convex set, and the rule of one step.
    n_steps, save_every
        Number of steps, a multiple of `save_every`: a frame is saved every so many, step 0 being the start.
    rng
        An int seed, or a Generator from which one is drawn. Noise and minibatches are functions of (seed, chain, step).
    first_chain
        The number of the first chain: a chain run alone under its number repeats what it did among others.
    store
        A new directory for a zarr store that frames are streamed to; it stays readable after an interrupt, an error, or a kill. A kill
        loses at most the frames of the last 5 seconds or of the unfinished chunk, whichever are fewer.
    progress
        Show a progress bar.
    callback
        Called as callback(step, frame) for every saved frame, a dict of NumPy arrays; returning True stops the run.

    Returns
    -------
    xarray.Dataset
        The schema of `particles.trajectory`. With a store it is read lazily. Energies of a minibatched energy are the minibatch's.

    Raises
    ------
    ValueError
        For a start outside the domain, n_steps that is no multiple of save_every, or arguments that do not fit each other.
    FileExistsError
        If `store` exists; it is left untouched.
    DivergenceError
        If a particle becomes NaN or infinite; frames before that are in the store.

    A UserWarning says once what the sampler found amiss: drifts capped in more than 1e-3 of the particle steps, chains that are stuck.
    Another one says if the last frame has coincident pairs (which exert no force and may never part) or an energy that is not finite.
    Ctrl-C ends the run with a UserWarning and returns the frames there are, with attrs["interrupted"] = "true" (of what is
    returned, not of the store); a second one raises, and so does one before the first frame.
    """
    _check_roles(energy=energy, domain=domain, sampler=sampler)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be callable, got {callback!r}")
    omega = _start(omega, domain)
    first_chain = count(first_chain, "first_chain", least=0)
    if first_chain + omega.shape[0] > 2**32:
        raise ValueError(f"first_chain must leave room for {omega.shape[0]} chains below 2^32, got {first_chain}")
    model = _Model(energy, domain, sampler, random.key_from(rng), first_chain, count(save_every, "save_every"))
    n_frames = _n_frames(n_steps, save_every)
    sampler.check(domain, energy)
    memory = sampler.begin(omega)
    nothing = {name: np.full(omega.shape[0], value) for name, value in sampler.fractions.items()}
    first = _frame(omega, model, 0, nothing, memory)
    record = _record(store, first, n_frames, model.attributes(omega))
    if _says_stop(callback, 0, first):
        return record.dataset()
    return _run(record, omega, memory, model, range(n_steps), progress, callback)


def resume(
    store: str | Path,
    energy: Any,
    domain: Domain,
    sampler: Sampler,
    *,
    n_steps: int,
    progress: bool = False,
    callback: Callback | None = None,
) -> xr.Dataset:
    """Continue a stored run after its last valid frame until `n_steps` in total; on a CPU, bit-identical to an uninterrupted run.

    Seed, save_every, first_chain, array type, dtype and device are those of the store; another seed cannot be given: it would make a
    run that is neither the old one nor a new one. For new numbers, `simulate` from the last frame. Ctrl-C and warnings as in `simulate`;
    a kill loses at most the frames of the last 5 seconds or of the unfinished chunk, whichever are fewer.

    Raises
    ------
    ValueError
        If energy, domain or sampler describe themselves otherwise than the stored ones, if n_steps is no multiple of save_every or
        lies before the last frame, or if the store is not a trajectory.
    FileNotFoundError
        If there is no store.
    """
    _check_roles(energy=energy, domain=domain, sampler=sampler)
    saved = open_trajectory(store)
    model = _Model(energy, domain, sampler, *(json.loads(saved.attrs.get(name, "0")) for name in ("seed", "first_chain", "save_every")))
    for name, description in model.descriptions().items():
        if as_json(description) != saved.attrs[name]:
            raise ValueError(f"{name} must be the stored one, {saved.attrs[name]}, got {as_json(description)}")
    sampler.check(domain, energy)
    n_frames = _n_frames(n_steps, model.save_every)
    done = int(saved.step[-1])
    if n_steps < done:
        raise ValueError(f"n_steps must be at least the {done} steps already stored, got {n_steps}")
    omega = saved.omega.isel(step=-1).to_numpy()
    if saved.attrs["array"] == "torch":
        import torch

        omega = torch.from_numpy(omega).to(saved.attrs["device"])
    memory = {name: saved[name].isel(step=-1).to_numpy() for name in sampler.begin(omega)}
    return _run(Store.reopen(Path(store), n_frames), omega, memory, model, range(done, n_steps), progress, callback)


def uninterrupted(dataset: xr.Dataset) -> xr.Dataset:
    """The run as it is; KeyboardInterrupt if Ctrl-C ended it, for programs that must not go on with the beginning of a run."""
    if "interrupted" in dataset.attrs:
        raise KeyboardInterrupt
    return dataset


def _start(omega: Array, domain: Domain) -> Array:
    """The start with its chain axis, checked."""
    omega = as_omega(omega, dim=domain.dim)
    omega = omega.detach() if is_torch(omega) else omega
    omega = omega if omega.ndim == 3 else omega[None]
    outside = ~domain.contains(omega)
    if bool(outside.any()):
        where = outside.reshape(-1).tolist().index(True)
        raise ValueError(
            f"omega must lie inside {domain}, but particle {where % omega.shape[1]} of chain {where // omega.shape[1]} does not"
        )
    return omega


def _record(store: str | Path | None, first: Frame, n_frames: int, attrs: dict[str, str]) -> Memory | Store:
    """Where the frames go, with the first one in it."""
    if store is not None:
        return Store.create(as_path(store, "store"), first, n_frames, attrs)
    record = Memory(attrs)
    record.append(0, first)
    return record


def _n_frames(n_steps: int, save_every: int) -> int:
    """The number of saved frames, the start included."""
    if count(n_steps, "n_steps", least=0) % save_every:
        raise ValueError(f"n_steps must be a multiple of save_every = {save_every}, got {n_steps}")
    return n_steps // save_every + 1


def _run(
    record: Memory | Store, omega: Array, memory: SamplerMemory, model: _Model, steps: range, progress: bool, callback: Callback | None
) -> xr.Dataset:
    """The loop; whatever ends it, the saved frames are written first."""
    energy, domain, sampler, seed, first_chain, save_every = model
    tally, frame, interrupted, loud = _Tally(sampler, omega.shape[0]), {}, False, np.geterr()
    try:
        with np.errstate(**QUIET):
            for step in _bar(steps, progress):
                omega, info, memory = sampler.advance(omega, energy, domain, (seed, first_chain, step), memory)
                tally.add(info, step)
                if (step + 1) % save_every == 0:
                    with np.errstate(**loud):
                        frame = _frame(omega, model, step + 1, tally.take(), memory)
                        record.append(step + 1, frame)
                        if _says_stop(callback, step + 1, frame):
                            break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        record.flush()
    for remark in tally.remarks() + _end_remarks(frame, energy):
        warnings.warn(remark, UserWarning, stacklevel=3)
    return _interrupted(record.dataset()) if interrupted else record.dataset()


def _end_remarks(frame: Frame, energy: Any) -> list[str]:
    """One if pairs coincide in the last frame (of particles that repel each other), or if its energy is not finite."""
    free = any(getattr(part, "strength", None) == 0 for part in getattr(energy, "energies", (energy,)))
    together = 0 if free else int(np.sum(frame.get("coincident", 0)))
    endless = int(np.sum(~np.isfinite(frame.get("energy", 0.0))))
    if not together and not endless:
        return []
    found = [f"{together} coincident pairs"] * (together > 0) + [f"an energy that is not finite in {endless} chains"] * (endless > 0)
    meaning = (
        "Particles on one point, where projection onto a wall can put them, exert no force on each other: without noise they never part"
        if together
        else "Some particles are where a potential is infinite or beyond the numbers"
    )
    return [
        f"the run ends with {' and '.join(found)}. {meaning}. What helps: Langevin(scheme='reflected'), a softening or truncation of "
        "the interaction, a little temperature (a finite beta), or another start"
    ]


def _interrupted(dataset: xr.Dataset) -> xr.Dataset:
    """The frames of an interrupted run, marked as such."""
    warnings.warn(f"interrupted: the run ends with step {int(dataset.step[-1])}, its last saved frame", UserWarning, stacklevel=4)
    return dataset.assign_attrs(interrupted="true")


def _bar(steps: range, progress: bool) -> Any:
    """The steps, behind a progress bar if wanted."""
    if not progress:
        return steps
    from tqdm.auto import tqdm

    return tqdm(steps, initial=steps.start, total=steps.stop, unit="step")


def _says_stop(callback: Callback | None, step: int, frame: Frame) -> bool:
    """Whether the callback, which gets copies, returns True; other values (artists, None) do not stop a run."""
    answer = callback is not None and callback(step, {name: values.copy() for name, values in frame.items()})
    return isinstance(answer, (bool, np.bool_)) and bool(answer)


def _to_numpy(values: Array, dtype: Any = None) -> np.ndarray:
    """A copy on the host."""
    return np.array(values.detach().cpu().numpy() if is_torch(values) else values, dtype=dtype)


class _Tally:
    """Sums of the fractions that `sampler.advance` reports: since the last frame, and over the run after tuning."""

    def __init__(self, sampler: Sampler, n_chains: int) -> None:
        self.sampler, self.n_chains = sampler, n_chains
        self.recent, self.n_recent = self._zeros(), 0
        self.total, self.n_total = self._zeros(), 0

    def _zeros(self) -> dict[str, Any]:
        return {name: np.zeros(self.n_chains) for name in self.sampler.fractions}

    def add(self, info: dict[str, Array], step: int) -> None:
        """Count the step number `step`; what is not in `info` is zero."""
        self.n_recent += 1
        self.n_total += step >= self.sampler.tune
        for name, value in info.items():
            if name not in self.recent:
                raise ValueError(f"sampler must report some of its fractions {sorted(self.recent)}, got {name!r}")
            value = _to_numpy(value, np.float64)
            self.recent[name] += value
            if step >= self.sampler.tune:
                self.total[name] += value

    def take(self) -> Frame:
        """Means since the last call, each (chain,)."""
        means = {name: value / self.n_recent for name, value in self.recent.items()}
        self.recent, self.n_recent = self._zeros(), 0
        return means

    def remarks(self) -> list[str]:
        """What the sampler says of the whole run."""
        n_steps = self.n_total
        return self.sampler.remarks({name: value / n_steps for name, value in self.total.items()}, n_steps) if n_steps else []


def _frame(omega: Array, model: _Model, step: int, fractions: Frame, memory: SamplerMemory) -> Frame:
    """All that is saved of one step; the gradient is that of the step's minibatch, before clip and cap."""
    terms, gradient = model.energy.value_and_grad(omega, key=model.key(step))
    values = {f"energy_{name}": _to_numpy(value, np.float64) for name, value in terms.items()}
    _check_shapes(omega, values, gradient)
    gradients = _to_numpy(gradient, np.float64).reshape(omega.shape[0], -1)
    return {
        "omega": _to_numpy(omega),
        "energy": np.add.reduce(list(values.values())),
        **values,
        "grad_norm": safe_norms(gradients) / omega.shape[-2] ** 0.5,
        **fractions,
        **{name: np.array(value) for name, value in memory.items() if not name.startswith("_")},
        **_minibatch_noise(omega, gradient, model, step),
        **{name: _to_numpy(value) for name, value in model.energy.diagnostics(omega).items()},
    }


def _check_shapes(omega: Array, values: Frame, gradient: Array) -> None:
    """ValueError if an energy gives something else than a number a chain and a gradient: broadcasting would hide it."""
    for name, value in values.items():
        if value.shape != omega.shape[:1]:
            raise ValueError(f"energy must give one number a chain, shape {tuple(omega.shape[:1])}, got {value.shape} as {name}")
    if gradient.shape != omega.shape:
        raise ValueError(f"energy must give a gradient of omega's shape {tuple(omega.shape)}, got {tuple(gradient.shape)}")


def _minibatch_noise(omega: Array, gradient: Array, model: _Model, step: int) -> Frame:
    """The extra temperature of a minibatched energy, from a second minibatch and the step size of the step just made."""
    if not getattr(model.energy, "minibatched", False) or not hasattr(model.sampler, "extra_temperature"):
        return {}
    other = model.energy.gradient(omega, key=random.companion(model.key(step)))
    return {"extra_temperature": _to_numpy(model.sampler.extra_temperature(gradient, other, max(step - 1, 0)), np.float64)}
