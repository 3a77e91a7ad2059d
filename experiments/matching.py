"""In-context matching by a hidden relation (task T3): the kernel's shape is all that attention can learn.

A sequence holds `n_tokens` context tokens x ~ N(0, I) with a label and as many query tokens without. A hidden rule puts every token in one
of a few bins; every sequence draws its own bin -> label permutation. So the one way to label a query is to attend to context tokens of its
bin. Nothing is trained in front: q = x_query, k = x_context, v = one-hot label, logits = exp(a) * attention + b. Only a, b and, where
the method says so, the particles omega are learned, on a few training sequences of which a quarter is held out for early stopping.

The rows of the table, with every control, are in `matching_methods`; the rules in `matching_rules`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot, scaled_dot_product_attention

from attention.feature_map import FeatureMap
from attention.inspection import feature_rank
from attention.linear import kernel_attention
from experiments import plots, sweep
from experiments.matching_methods import CORE, METHODS, Method, Starts, align, log_repulsion, tokens
from experiments.matching_rules import RULES, Sequences, known_kernel, make_sequences
from experiments.report import Section
from experiments.settings import chosen
from particles.alignment import Alignment
from particles.arrays import count, positive
from particles.features import FourierPair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["METHODS", "RULES", "Config", "Matcher", "Method", "Sequences", "Starts", "align", "fit", "make_sequences", "run"]
EXTENT = ("tasks", "methods", "n_seeds")  # the first seed is the one whose particles and attention are kept
ARRAYS = {"attention": ("query", "key"), "omega": ("particle", "dim"), "query_label": ("query",), "key_label": ("key",)}
DEMO_METHODS = tuple(name for name in CORE if name not in ("favor", "end to end, quarter width"))


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    tasks: tuple[str, ...] = ("phase", "ring3")  # some of phase, multi, ring3, xor2, iso
    methods: tuple[str, ...] = DEMO_METHODS  # some of `matching_methods.METHODS`; "all" for all of them
    n_sequences: int = 128  # training sequences, a quarter of them held out
    n_test: int = 256  # fresh test sequences
    n_tokens: int = 32  # context tokens, and as many queries, of a sequence
    dim: int = 16  # of a token
    n_features: int = 32  # of a token, two for each frequency
    n_align: int = 150  # Langevin steps of Phase A
    n_steps: int = 500  # steps of AdamW
    batch_size: int = 32  # sequences of one step of AdamW
    lr: float = 0.01  # learning rate of AdamW
    n_seeds: int = 3  # seed, seed + 1, ...; each draws its own rule, data and start
    seed: int = 0  # the first seed

    def __post_init__(self) -> None:
        chosen(self.tasks, RULES, "tasks")
        if self.methods == ("all",):
            object.__setattr__(self, "methods", tuple(METHODS))
        chosen(self.methods, METHODS, "methods")
        for name in ("n_test", "n_tokens", "n_align", "n_steps", "batch_size", "n_seeds"):
            count(getattr(self, name), name)
        count(self.n_sequences, "n_sequences", least=4)
        count(self.dim, "dim", least=3)
        count(self.seed, "seed", least=0)
        positive(self.lr, "lr")
        if count(self.n_features, "n_features") % 2:
            raise ValueError(f"n_features must be even, a cos and a sin for each frequency, got {self.n_features}")


def run(config: Config, **how: Any) -> xr.Dataset:
    """Train every method on every task and seed.

    Returns
    -------
    Dataset, in which sel({"method": name}) selects a method (the keyword `method` of `sel` is xarray's own).
    Over (task, method, seed): accuracy [share of test queries], log_loss [nats], seconds (Phase A included), effective_rank of the
    features, alignment of the kernel with same-label pairs of the held-out sequences (both NaN for softmax).
    Of the first seed: attention (task, method, query, key) on the first test sequence with tokens in the order of their labels
    (query_label, key_label), each row divided by its largest magnitude; omega (task, method, particle, dim) in standardised units.
    `how`: see `experiments.sweep.over`.
    """
    return sweep.run("matching", config, **how)


def units(config: Config) -> Iterator[dict[str, Any]]:
    """A unit is a method on one draw of a task; methods that share a draw and its Phase A follow each other."""
    for task, seed in itertools.product(config.tasks, range(config.seed, config.seed + config.n_seeds)):
        yield from ({"task": task, "method": method, "seed": seed} for method in config.methods)


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """One method on one draw of one task, trained and measured."""
    draw = drawn(replace(config, tasks=("phase",), methods=("softmax",), n_seeds=1, seed=0), unit["task"], unit["seed"])
    method = METHODS[unit["method"]]
    model, seconds = fit(method, unit["task"], draw.starts, draw.train, draw.holdout, config)
    scores = _measured(model, method, draw.holdout, draw.test) | {"seconds": seconds}
    if unit["seed"] != config.seed:
        return {name: value for name, value in scores.items() if name not in ARRAYS}
    example = draw.test.take(slice(1))
    labels = {"query_label": example.query_label[0].sort().values.numpy(), "key_label": example.context_label[0].sort().values.numpy()}
    return scores | labels


class Draw(NamedTuple):
    """The sequences of one task and seed, and the particles to start from."""

    train: Sequences
    holdout: Sequences
    test: Sequences
    starts: Starts


@lru_cache(maxsize=1)
def drawn(config: Config, task: str, seed: int) -> Draw:
    """What all methods on one task and seed share."""
    n_holdout = config.n_sequences // 4
    data = make_sequences(task, config.n_sequences + config.n_test, config.n_tokens, config.dim, np.random.default_rng([seed, 1]))
    train = data.take(slice(config.n_sequences - n_holdout))
    holdout = data.take(slice(config.n_sequences - n_holdout, config.n_sequences))
    starts = Starts(config.dim, config.n_features, config.n_align, train, seed)
    return Draw(train, holdout, data.take(slice(config.n_sequences, None)), starts)


def arrange(ds: xr.Dataset, chosen: Mapping[str, Any]) -> xr.Dataset:
    """Particles and attention of the first seed only; labels are those of the task's sequence."""
    shown = {name: ds[name].isel(seed=0, drop=True) for name in ("omega", "attention") if name in ds}
    labels = {name: ds[name].isel(seed=0, drop=True).max("method") for name in ("query_label", "key_label") if name in ds}
    return ds.assign(shown | labels)


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    steps = config.n_steps * (METHODS[unit["method"]].learned or METHODS[unit["method"]].front is not None)
    return 1.0 + 7e-6 * steps * config.batch_size * config.n_tokens + 0.02 * config.n_align, 4e8


class Matcher(nn.Module):
    """logits = exp(a) * votes + b; the votes of a query are the labels of the context weighted by a kernel.

    With a feature map the weights are its kernel, divided as `normalise` says; with a `rule` (task, rotation) the kernel that knows the
    rule, divided by the number of keys; else softmax, behind `front` if one is given.
    """

    def __init__(
        self,
        n_labels: int,
        *,
        phi: FeatureMap | None = None,
        normalise: str | None = None,
        front: nn.Module | None = None,
        rule: tuple[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.phi, self.front, self.rule = phi, nn.Identity() if front is None else front, rule
        divisor = normalise if normalise or phi is None else ("count" if phi.signed else "sum")
        self.normalise = None if divisor == "none" else divisor
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(n_labels))

    def attend(self, data: Sequences) -> Tensor:
        """Votes for each label, (sequence, token, label)."""
        q, k = data.query[:, None], data.context[:, None]
        v = one_hot(data.context_label, data.n_labels).to(q.dtype)[:, None]
        if self.phi is not None:
            return kernel_attention(q, k, v, self.phi, normalise=self.normalise)[:, 0]
        if self.rule is not None:
            return (known_kernel(*self.rule, q, k) @ v)[:, 0] / k.shape[2]
        return scaled_dot_product_attention(self.front(q), self.front(k), v)[:, 0]

    @torch.no_grad()
    def kernel(self, q: Tensor, k: Tensor) -> Tensor:
        """Weights between tokens (query, dim) and (key, dim), before any division (after it for softmax), (query, key)."""
        if self.phi is not None:
            (log_q, phi_q), (log_k, phi_k) = (
                self.phi(x[None, None] * x.shape[-1] ** -0.25, role=role) for x, role in ((q, "query"), (k, "key"))
            )
            return (phi_q @ phi_k.mT * (log_q[..., :, None] + log_k[..., None, :]).exp())[0, 0]
        if self.rule is not None:
            return known_kernel(*self.rule, q, k)
        return (self.front(q) @ self.front(k).T / math.sqrt(q.shape[-1])).softmax(-1)

    def logits(self, votes: Tensor) -> Tensor:
        """Logits from the votes of `attend`."""
        return self.a.exp() * votes + self.b


def matcher(method: Method, task: str, starts: Starts, omega: np.ndarray, data: Sequences) -> Matcher:
    """The model of one row before training, what the row does not learn frozen."""
    generator = torch.Generator().manual_seed(starts.key)
    if method.name == "softmax":
        return Matcher(data.n_labels, front=_front(method.front, starts.dim, generator))
    if method.name == "known":
        return Matcher(data.n_labels, rule=(task, data.rotation))
    phi = starts.feature_map(method, omega)
    if not method.learned:
        phi.requires_grad_(False)
    return Matcher(data.n_labels, phi=phi, normalise=method.normalise)


def _front(kind: str | None, dim: int, generator: torch.Generator) -> nn.Module | None:
    """A trained projection of the tokens, queries and keys alike: linear, or two layers with 4 dim hidden units."""
    if kind is None:
        return None
    sizes = (dim, dim) if kind == "linear" else (dim, 4 * dim, dim)
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.utils.skip_init(nn.Linear, n_in, n_out), nn.GELU()]
        with torch.no_grad():
            layers[-2].weight.normal_(std=n_in**-0.5, generator=generator)  # type: ignore[operator,union-attr]
            layers[-2].bias.zero_()  # type: ignore[operator,union-attr]
    return nn.Sequential(*layers[:-1])


def fit(method: Method, task: str, starts: Starts, train: Sequences, holdout: Sequences, config: Config) -> tuple[Matcher, float]:
    """A trained model of one row of the table and its seconds, Phase A included."""
    omega, seconds = starts.take(method)
    started = time.perf_counter()
    model = matcher(method, task, starts, omega, train)
    train_model(model, method, train, holdout, config, torch.Generator().manual_seed(starts.order))
    return model, seconds + time.perf_counter() - started


def train_model(model: Matcher, method: Method, train: Sequences, holdout: Sequences, config: Config, generator: torch.Generator) -> None:
    """AdamW on what is learnable, keeping the parameters with the smallest hold-out loss (looked at every 25 steps).

    With a fixed kernel the votes never change, so they are computed once.
    """
    frozen = not method.learned and method.front is None
    with torch.no_grad():
        votes = model.attend(train) if frozen else None
        votes_holdout = model.attend(holdout) if frozen else None
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=method.lr * config.lr)
    n_steps, best, kept = round(method.steps * config.n_steps), math.inf, {}
    for step in range(n_steps + 1):
        if step % 25 == 0 or step == n_steps:
            loss = _evaluate(model, holdout, votes_holdout)[1]
            if loss < best:
                best, kept = loss, {name: value.clone() for name, value in model.state_dict().items()}
        rows = torch.randint(len(train.query), (config.batch_size,), generator=generator)
        batch = train.take(rows)
        logits = model.logits(model.attend(batch) if votes is None else votes[rows])
        objective = cross_entropy(logits.flatten(0, 1), batch.query_label.flatten())
        if method.spread and model.phi is not None:
            objective = objective + method.spread * log_repulsion(model.phi.omega)
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
    model.load_state_dict(kept)


@torch.no_grad()
def _evaluate(model: Matcher, data: Sequences, votes: Tensor | None = None) -> tuple[float, float]:
    """(accuracy, log loss) over all queries."""
    logits = model.logits(model.attend(data) if votes is None else votes).flatten(0, 1)
    labels = data.query_label.flatten()
    return float((logits.argmax(-1) == labels).double().mean()), float(cross_entropy(logits, labels))


def _measured(model: Matcher, method: Method, holdout: Sequences, test: Sequences) -> dict[str, Any]:
    """Scores of one model, its particles, and its attention on the first test sequence."""
    accuracy, loss = _evaluate(model, test)
    q, k = (
        part[0, order] for part, order in ((test.query, test.query_label[0].argsort()), (test.context, test.context_label[0].argsort()))
    )
    scores = model.kernel(q, k).double().numpy()
    learned: dict[str, Any] = {}
    if model.phi is not None and method.name == "fourier":
        omega = model.phi.omega.detach()[0].double().numpy() / q.shape[-1] ** 0.25
        learned = {"omega": omega, "alignment": _alignment(holdout, omega)}
    return {
        "accuracy": accuracy,
        "log_loss": loss,
        "effective_rank": math.nan if model.phi is None else effective_rank(model.phi, test.query.flatten(0, 1) * q.shape[-1] ** -0.25),
        "alignment": math.nan,
        "attention": np.round(scores / np.abs(scores).max(-1, keepdims=True), 2),  # enough for a picture
    } | learned


@torch.no_grad()
def effective_rank(phi: FeatureMap, x: Tensor) -> float:
    """Effective number of directions of the features of tokens (n, dim), each of unit length: attention does not see a query's scale."""
    return feature_rank(normalize(phi(x[None, None])[1][0, 0], dim=-1).double().numpy())


def _alignment(data: Sequences, omega: np.ndarray) -> float:
    x, y, groups = tokens(data)
    return -float(Alignment(x, y, FourierPair(), groups=groups).value(omega))


def section(ds: xr.Dataset) -> Section:
    """The table and what it says."""
    from experiments import sections

    return sections.matching(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Accuracy, and attention of one sequence."""
    drawn = {"matching_accuracy.png": plots.figure_accuracy(ds, chance=[_chance(ds, str(task)) for task in ds["task"].values])}
    return drawn | ({"matching_attention.png": plots.figure_attention(ds)} if plots.attention_shown(ds)[0] else {})


def _chance(ds: xr.Dataset, task: str) -> float | None:
    """One over the number of labels; None where no sequence of the task is kept."""
    last = float(ds["key_label"].sel(task=task).max()) if "key_label" in ds else math.nan
    return 1 / (last + 1) if math.isfinite(last) else None


PRESETS = {
    "smoke": Config(tasks=("phase",), methods=("softmax", "fixed", "align, unfreeze"), n_test=16, n_align=5, n_steps=10, n_seeds=2),
    "cpu": Config(tasks=tuple(RULES), methods=tuple(METHODS), n_seeds=5),
}
