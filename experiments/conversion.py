"""A pretrained sentence encoder with kernels in the place of softmax: what is left of it, by how the kernels were found.

Every row converts all layers of the teacher and is scored as it stands on sentence similarity (Spearman's correlation, STS-B test).
Uniform attention is the floor to read the others against. Attention errors are measured on held-out inputs with the teacher's own
activations: on sentences, on windows of long texts with the kernels of the sentences, and on windows after fitting there.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from attention import draws
from attention.activations import Activations, collect
from attention.conversion import conversion_report, fold_into, keep_softmax, layer_kernel
from attention.distillation import distil, fit_kernel
from attention.huggingface import attach
from attention.layer_kernel import LayerKernel
from attention.seeds import derived_seed
from experiments import conversion_tables, sweep
from experiments.report import Section
from experiments.sentences import (
    Batch,
    Teacher,
    Texts,
    load_teacher,
    read,
    sentence_batches,
    similarity_score,
    tiny_teacher,
    tiny_texts,
    window_batches,
)
from particles.arrays import count, positive

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTENT = ("rows", "data", "n_seeds", "seed")
SETTINGS = ("sentences", "windows", "windows, fitted there")
ERRORS = ("kl", "total_variation", "output_error", "bad_rows", "floored_rows")
ARRAYS = dict.fromkeys(ERRORS, ("setting", "layer", "head"))


class Row(NamedTuple):
    """How one student is made: arguments of `layer_kernel`, then what is trained."""

    feature_map: str
    invariance: str | None = "sent"
    fit: str | None = None
    fitted: bool = False  # by the divergence of attention rows
    start: str = ""  # "frame": rows of .5 N(0, I), orthogonal; "pairs": Flexformer's pairs, halved; "zero": all particles at 0
    then: str = ""  # "mixed": heads with large errors stay softmax; "end to end"
    features: int = 1  # times Config.n_features
    options: tuple[tuple[str, Any], ...] = ()


_SHARED = (("shared", True),)
_PARTICLES = Row("exponential", fit="kmeans", fitted=True, options=_SHARED)
_HEDGEHOG = Row("hedgehog", fitted=True, start="frame")
ROWS: dict[str, Row | None] = {
    "teacher": None,
    "uniform": Row("exponential", None, start="zero", options=(*_SHARED, ("key_norm", 0.0))),
    "favor raw": Row("favor", None),
    "favor iso": Row("favor", "iso"),
    "favor sent": Row("favor"),
    "proposal": Row("exponential", fit="proposal", options=_SHARED),
    "proposal iso": Row("exponential", "iso", fit="proposal", options=_SHARED),
    "proposal best of 8": Row("exponential", fit="proposal", options=(*_SHARED, ("n_draws", 8))),
    "proposal doubled": Row("exponential", fit="proposal", features=2, options=_SHARED),
    "nystrom": Row("exponential", "iso", fit="nystrom"),
    "particles": _PARTICLES,
    "hedgehog": _HEDGEHOG,
    "hedgehog raw": _HEDGEHOG._replace(invariance=None),
    "hedgehog-softmax": _HEDGEHOG._replace(feature_map="hedgehog-softmax"),
    "softmaxfeat": Row("softmaxfeat", fitted=True),
    "softplus": Row("softplus", fitted=True),
    "flexformer": Row("flexformer-nonstationary", "iso", fitted=True, start="pairs"),
    "particles mixed": _PARTICLES._replace(then="mixed"),
    "hedgehog end to end": _HEDGEHOG._replace(then="end to end"),
    "particles end to end": _PARTICLES._replace(then="end to end"),
}


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    rows: tuple[str, ...] = tuple(ROWS)  # names of students; teacher is always measured
    teacher: str = ""  # folder or hub name of a BERT-like encoder; by default the installed package's MiniLM, else the hub's
    data: str = ""  # folder with stsb, sst2 and imdb; by default the one that KERNELGAS_DATA names
    n_features: int = 64  # of each head
    n_fit: int = 1024  # unlabelled sentences
    n_held_out: int = 256  # sentences on which attention errors are measured
    n_steps: int = 150  # of the fit of each layer
    n_windows: int = 48  # of long texts, to fit to
    n_held_out_windows: int = 16
    window: int = 256  # tokens
    n_window_steps: int = 60  # of the fit on windows, which goes on from that on sentences
    n_end_steps: int = 150  # end to end
    threshold: float = 0.4  # output error of a head above which it stays softmax in the mixed conversion
    n_seeds: int = 3  # each draws its own sentences, windows and particles
    seed: int = 0  # the first seed
    smoke: bool = False  # a tiny untrained teacher and random words instead: seconds, and no meaning

    def __post_init__(self) -> None:
        unknown = set(self.rows) - set(ROWS)
        if unknown:
            raise ValueError(f"rows must be some of {sorted(ROWS)}, got {self.rows!r}")
        for name, value in asdict(self).items():
            if name not in ("rows", "teacher", "data", "smoke", "threshold", "seed"):
                count(value, name)
        positive(self.threshold, "threshold")
        count(self.seed, "seed", least=0)


def run(config: Config, **how: Any) -> xr.Dataset:
    """Make and measure every student.

    Returns
    -------
    Dataset over (row, seed): spearman, share (of the teacher's), parameters (learned per head, end-to-end steps apart), softmax (share
    of heads), seconds (of processor time, to make the student and measure its errors); over (row, seed, setting, layer, head): kl [nat],
    total_variation, output_error, bad_rows, floored_rows as in `attention.rows.attention_errors`, NaN where not measured. setting:
    "sentences"; "windows", of long texts with the kernels of the sentences; "windows, fitted there". `how`: see `experiments.sweep.over`.
    """
    return sweep.run("conversion", config, **how)


def units(config: Config) -> Iterator[dict[str, Any]]:
    """A unit is a student of one seed; those of a seed, which share texts and activations, follow each other."""
    rows = ("teacher", *(name for name in config.rows if name != "teacher"))
    for seed in range(config.seed, config.seed + config.n_seeds):
        yield from ({"row": row, "seed": seed} for row in rows)


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """One student of one seed, made and measured."""
    given = material(replace(config, rows=("teacher",), n_seeds=1, seed=0), unit["seed"])
    return measured(config, unit["row"], given, unit["seed"])


def arrange(ds: xr.Dataset, chosen: Mapping[str, Any]) -> xr.Dataset:
    """Names of the settings, and shares of the teacher's score."""
    named = ds.assign_coords(setting=list(SETTINGS[: ds.sizes["setting"]])) if "setting" in ds.dims else ds
    teacher = ds.spearman.sel(row="teacher", drop=True) if "teacher" in ds.row else math.nan
    return named.assign(share=ds.spearman / teacher)


def prepare(config: Config) -> None:
    """FileNotFoundError or ValueError if teacher or texts are not there."""
    if not config.smoke:
        load_teacher(config.teacher)
        read(config.data, 1, 1, 0)


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    row = ROWS[unit["row"]]
    fitted = row is not None and row.fitted
    return 20.0 + (0.6 * config.n_steps + 0.6 * config.n_window_steps) * fitted * (config.n_fit / 1024), 3e9


class Material(NamedTuple):
    """What one seed works with; activations are [layer][batch]."""

    teacher: Teacher
    texts: Texts
    batches: list[Batch]
    held_out_batches: list[Batch]
    fit: list[list[Activations]]
    held_out: list[list[Activations]]
    windows: list[list[Activations]]
    held_out_windows: list[list[Activations]]


@lru_cache(maxsize=1)
def material(config: Config, seed: int) -> Material:
    """Teacher, texts and the teacher's activations for one seed."""
    if config.smoke:
        teacher, texts = tiny_teacher(), tiny_texts(config.n_fit, config.n_held_out, seed)
    else:
        teacher, texts = load_teacher(config.teacher), read(config.data, config.n_fit, config.n_held_out, seed)
    n, n_held_out = config.n_windows, config.n_held_out_windows
    windows = window_batches(teacher, texts.documents[: len(texts.documents) // 2], n, config.window, seed)
    other = window_batches(teacher, texts.documents[len(texts.documents) // 2 :], n_held_out, config.window, 0)
    batches = [batch for _, batch in sentence_batches(teacher, texts.fit)]
    held_out = [batch for _, batch in sentence_batches(teacher, texts.held_out)]
    return Material(teacher, texts, batches, held_out, *(collect(teacher.model, part) for part in (batches, held_out, windows, other)))


def measured(config: Config, name: str, given: Material, seed: int) -> dict[str, Any]:
    """One student of one seed, made and measured."""
    row, teacher, pairs = ROWS[name], given.teacher, given.texts.pairs
    if row is None:
        return {"spearman": similarity_score(teacher.model, teacher, pairs)}
    started = time.process_time()
    kernels = made(config, row, given.fit, seed)
    n_learned = sum(p.numel() for p in kernels[0].parameters() if p.requires_grad) if row.fitted else 0
    learned: dict[Any, Any] = {"parameters": n_learned / kernels[0].feature_map.heads}
    report = conversion_report(kernels, given.held_out)
    if row.then == "mixed":
        report = keep_softmax(kernels, report, config.threshold)
    reports = [report] if row.then else [report, *_on_windows(config, row, kernels, given, seed)]
    student = attach(copy.deepcopy(teacher.model), kernels)  # type: ignore[arg-type]
    fold_into(student)
    if row.then == "end to end":
        _end_to_end(config, student, given, seed)
        reports = [conversion_report(kernels, collect(student, given.held_out_batches))]
    learned["seconds"] = time.process_time() - started
    errors = {name: np.stack([part[name].values for part in reports]) for name in ERRORS}
    return errors | learned | {"spearman": similarity_score(student, teacher, pairs), "softmax": float(report.softmax.mean())}


def _end_to_end(config: Config, student: nn.Module, given: Material, seed: int) -> None:
    how: dict[str, Any] = {"objective": "end-to-end", "n_steps": config.n_end_steps, "rng": derived_seed(seed, 100)}
    distil(student, given.teacher.model, given.batches, **how)


def made(config: Config, row: Row, layers: list[list[Activations]], seed: int) -> dict[int, LayerKernel]:
    """The kernels of one row, {layer: kernel}, fitted to activations."""
    kernels = {}
    for number, layer in enumerate(layers):
        key = derived_seed(seed, number)
        options: dict[str, Any] = {**dict(row.options), **_start(config, row, layer[0], key), "fit": row.fit, "invariance": row.invariance}
        kernel = layer_kernel(layer, feature_map=row.feature_map, n_features=row.features * config.n_features, rng=key, **options)
        if row.fitted:
            fit_kernel(kernel, layer, n_steps=config.n_steps, rng=key)
        kernels[number] = kernel
    return kernels


def _start(config: Config, row: Row, seen: Activations, key: int) -> dict[str, Tensor]:
    """The first particles of a row that states them."""
    heads, dim, generator = seen.q.shape[1], seen.q.shape[-1], torch.Generator().manual_seed(key)
    if row.start == "zero":
        return {"omega": torch.zeros(heads, config.n_features, dim)}
    draw = {"frame": draws.orthogonal, "pairs": draws.pairs}.get(row.start)
    return {} if draw is None else {"omega": 0.5 * draw(heads, config.n_features // 2, dim, generator)}


def _on_windows(config: Config, row: Row, kernels: dict[int, LayerKernel], given: Material, seed: int) -> list[xr.Dataset]:
    """Errors on held-out windows, of the kernels of the sentences and of kernels fitted to windows."""
    as_they_are = conversion_report(kernels, given.held_out_windows)
    if row.fitted:
        there = copy.deepcopy(kernels)
        for number, kernel in there.items():
            fit_kernel(kernel, given.windows[number], n_steps=config.n_window_steps, rng=derived_seed(seed, 10, number))
    else:
        there = made(config, row, given.windows, seed)
    return [as_they_are, conversion_report(there, given.held_out_windows)]


def section(ds: xr.Dataset) -> Section:
    """The tables and what they say."""
    return conversion_tables.section(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """The figure by file name."""
    return {"conversion.png": conversion_tables.figure(ds)}


_TINY: dict[str, Any] = {
    "n_fit": 64,
    "n_held_out": 32,
    "n_steps": 4,
    "n_windows": 8,
    "n_held_out_windows": 4,
    "window": 48,
    "n_window_steps": 2,
}
PRESETS = {
    "smoke": Config(smoke=True, rows=("teacher", "uniform", "proposal", "particles"), n_seeds=2, **_TINY),
    "cpu": Config(),
}
