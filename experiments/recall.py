"""Multi-query associative recall: how many key-value pairs a state of fixed size can hold, and what the feature map has to do with it.

A sequence shows `n_pairs` pairs (key, value), then the keys again in another order; the model names each key's value. One causal layer;
the key of a position is made from the token before it, so that a value can be found by the key that precedes it. Everything is trained
on fresh sequences. The state of a linear map is n_features x dim numbers, whatever the length.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, scaled_dot_product_attention

from attention.feature_map import FeatureMap, feature_map
from attention.linear import kernel_attention
from attention.relation import CentredAttendAlignment
from experiments import kernel_claims, plots, sweep
from experiments.matching import effective_rank
from experiments.matching_methods import log_repulsion
from experiments.report import Section
from experiments.settings import chosen
from particles.arrays import count, positive
from particles.domain import Ball
from particles.langevin import Langevin
from particles.riesz import Riesz
from particles.simulate import simulate, uninterrupted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTENT = ("methods", "n_seeds", "seed")
ARRAYS: dict[str, tuple[str, ...]] = {}


class Method(NamedTuple):
    """A row: the map's name ("softmax" for none), whether its particles learn, its normaliser (None: "sum" for positive, "rms" for signed
    maps), unit-length queries and keys, a factor of the first particles, the weight of a log repulsion in the loss, Phase A's target."""

    name: str
    learned: bool = False
    normalise: str | None = None
    unit: bool = False
    width: float = 1.0
    spread: float = 0.0
    aligned: str | None = None


METHODS = {
    "softmax": Method("softmax"),
    "linear": Method("linear"),
    "polaformer": Method("polaformer"),
    "favor": Method("favor"),
    "favor, learned": Method("favor", learned=True),
    "softmaxfeat": Method("softmaxfeat"),
    "softmaxfeat, wide start": Method("softmaxfeat", width=2.0),
    "softmaxfeat, learned": Method("softmaxfeat", learned=True),
    "softmaxfeat, learned, repulsion in the loss": Method("softmaxfeat", learned=True, spread=0.01),
    "softmaxfeat, align": Method("softmaxfeat", aligned="attend"),
    "softmaxfeat, shuffled": Method("softmaxfeat", aligned="shuffled"),
    "hedgehog": Method("hedgehog", learned=True),
    "identity, output norm": Method("identity", normalise="rms", unit=True),
    "linear, output norm": Method("linear", normalise="rms"),
    "softmaxfeat, output norm": Method("softmaxfeat", normalise="rms"),
    "hedgehog, output norm": Method("hedgehog", learned=True, normalise="rms"),
    "flexformer, literal": Method("flexformer", learned=True, normalise="sum"),
    "flexformer, unit norm": Method("flexformer", learned=True, normalise="sum", unit=True),
    "flexformer, output norm": Method("flexformer", normalise="rms", unit=True),
    "flexformer, output norm, learned": Method("flexformer", learned=True, normalise="rms", unit=True),
}
OWN_SIZE = {"linear", "identity"}  # as many features as the head has dimensions
DOUBLE_SIZE = {"polaformer"}  # twice as many: its state is twice as large, and the table says so


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    methods: tuple[str, ...] = tuple(METHODS)  # rows of the table
    n_pairs: int = 16  # pairs of a sequence
    n_keys: int = 64  # different keys
    n_values: int = 32  # different values
    dim: int = 32  # width of the model and of its one head
    n_features: int = 32  # features of a token
    n_steps: int = 400  # steps of AdamW
    n_warm: int = 100  # of them before Phase A, in the aligned rows
    n_align: int = 100  # Langevin steps of Phase A
    batch_size: int = 32  # fresh sequences of one step
    n_test: int = 512  # fresh test sequences
    lr: float = 0.003  # learning rate, with a cosine to zero
    omega_lr: float = 0.03  # of the particles of positive maps; signed ones use lr
    n_seeds: int = 3  # seed, seed + 1, ...
    seed: int = 0  # the first seed

    def __post_init__(self) -> None:
        chosen(self.methods, METHODS, "methods")
        for name in ("n_pairs", "n_values", "dim", "n_features", "n_steps", "n_align", "batch_size", "n_test", "n_seeds"):
            count(getattr(self, name), name)
        count(self.n_keys, "n_keys", least=self.n_pairs)
        if count(self.n_warm, "n_warm", least=0) >= self.n_steps:
            raise ValueError(f"n_warm must be below n_steps = {self.n_steps}, got {self.n_warm}")
        count(self.seed, "seed", least=0)
        positive(self.lr, "lr")
        positive(self.omega_lr, "omega_lr")


def run(config: Config, **how: Any) -> xr.Dataset:
    """Train every method on every seed.

    Returns
    -------
    Dataset over (method, seed): accuracy [share of queried keys whose value is named], log_loss [nats], non_positive [share of queries
    whose kernel sum over earlier positions is at most 0; NaN for softmax], effective_rank of the unit-length features of queries, dead
    [share of these whose standard deviation is below 1 % of the largest], state [numbers], seconds. `how`: see `experiments.sweep.over`.
    """
    return sweep.run("recall", config, **how)


def units(config: Config) -> Iterator[dict[str, Any]]:
    """A unit is a row of the table with one seed."""
    yield from ({"method": method, "seed": seed} for method in config.methods for seed in range(config.seed, config.seed + config.n_seeds))


def measure(config: Config, unit: dict[str, Any]) -> dict[str, float]:
    """One row on one seed, trained and measured."""
    method, seed = METHODS[unit["method"]], unit["seed"]
    started = time.perf_counter()
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = RecallModel(config, method, torch.Generator().manual_seed(seed))
    train(model, config, np.random.default_rng([seed, 0]))
    seconds = time.perf_counter() - started
    return scores(model, make_batch(config, config.n_test, np.random.default_rng([seed, 1]))) | {"seconds": seconds}


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    tokens = config.n_steps * config.batch_size * 3 * config.n_pairs
    return 4e-5 * tokens * (config.dim / 32) + 2, 4e8


class Batch(NamedTuple):
    """tokens (sequence, 3 n_pairs): key, value, key, value, ..., then keys; target (sequence, n_pairs): value of each queried key;
    place (sequence, n_pairs): position of that value."""

    tokens: Tensor
    target: Tensor
    place: Tensor


def make_batch(config: Config, n: int, rng: np.random.Generator) -> Batch:
    """Fresh sequences; values are tokens n_keys, n_keys + 1, ... and may repeat in a sequence, keys may not."""
    keys = rng.permuted(np.tile(np.arange(config.n_keys), (n, 1)), axis=1)[:, : config.n_pairs]
    values = rng.integers(config.n_values, size=keys.shape)
    order = rng.permuted(np.tile(np.arange(config.n_pairs), (n, 1)), axis=1)
    shown = np.stack((keys, config.n_keys + values), -1).reshape(n, -1)
    tokens = np.concatenate((shown, np.take_along_axis(keys, order, 1)), 1)
    return Batch(torch.from_numpy(tokens), torch.from_numpy(np.take_along_axis(values, order, 1)), torch.from_numpy(2 * order + 1))


class RecallModel(nn.Module):
    """One causal layer of attention and one feed-forward layer; keys are made from the token before."""

    def __init__(self, config: Config, method: Method, generator: torch.Generator) -> None:
        super().__init__()
        dim = config.dim
        self.embedding = nn.Embedding(config.n_keys + config.n_values, dim)
        self.norm, self.norm_ff, self.norm_head = (nn.LayerNorm(dim) for _ in range(3))
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, config.n_values)
        self.method, self.n_pairs = method, config.n_pairs
        self.feature_map = _feature_map(config, method, generator)
        if method.unit:
            self.log_length = nn.Parameter(torch.zeros(()))
        if self.normalise == "rms":
            self.gain = nn.Parameter(torch.ones(dim))

    @property
    def normalise(self) -> str | None:
        """The normaliser of the method, or what suits the map: "rms" where it is signed, "sum" where it is not; None for softmax."""
        if self.feature_map is None or self.method.normalise:
            return self.method.normalise
        return "rms" if self.feature_map.signed else "sum"

    def queries_keys(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k as they enter the feature map, and v, each (sequence, 1, time, dim)."""
        x = self.norm(self.embedding(tokens))
        before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
        q, k, v = self.query(x)[:, None], self.key(before)[:, None], self.value(x)[:, None]
        if self.method.unit:
            return self.log_length.exp() * normalize(q, dim=-1), self.log_length.exp() * normalize(k, dim=-1), v
        scale = q.shape[-1] ** -0.25
        return scale * q, scale * k, v

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at the queried keys, (sequence, n_pairs, n_values)."""
        q, k, v = self.queries_keys(tokens)
        if self.feature_map is None:
            y = scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
        else:
            y = kernel_attention(q, k, v, self.feature_map, is_causal=True, scale=1.0, normalise=self.normalise)
        y = y[:, 0, -self.n_pairs :]
        if self.normalise == "rms":
            y = y * self.gain
        x = self.embedding(tokens)[:, -self.n_pairs :] + self.out(y)
        x = x + self.ff(self.norm_ff(x))
        return self.head(self.norm_head(x))


def _feature_map(config: Config, method: Method, generator: torch.Generator) -> FeatureMap | None:
    if method.name == "softmax":
        return None
    n_features = config.n_features
    if method.name in OWN_SIZE:
        n_features = config.dim
    if method.name in DOUBLE_SIZE:
        n_features = 2 * config.dim
    phi = feature_map(method.name, dim=config.dim, n_features=n_features, generator=generator)
    if method.width != 1.0:
        phi.load_omega(phi.omega.detach() * method.width)
    if method.name not in (*OWN_SIZE, *DOUBLE_SIZE):  # the powers of polaformer are learned as in its paper
        phi.requires_grad_(method.learned)
    return phi


def train(model: RecallModel, config: Config, rng: np.random.Generator) -> None:
    """AdamW with a cosine on fresh batches, gradient norm at most 1; aligned rows stop after `n_warm` steps for Phase A."""
    phi, method = model.feature_map, model.method
    particles = [] if phi is None else [p for p in phi.parameters() if p.requires_grad]
    rest = [p for name, p in model.named_parameters() if not name.startswith("feature_map.")]
    omega_lr = config.lr if phi is None or phi.signed else config.omega_lr
    groups = [{"params": rest, "lr": config.lr}, {"params": particles, "lr": omega_lr, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW([group for group in groups if group["params"]])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.n_steps)
    for step in range(config.n_steps):
        if method.aligned and step == config.n_warm:
            align_recall(model, config, rng, shuffled=method.aligned == "shuffled")
        batch = make_batch(config, config.batch_size, rng)
        loss = cross_entropy(model(batch.tokens).flatten(0, 1), batch.target.flatten())
        if method.spread and phi is not None:
            loss = loss + method.spread * log_repulsion(phi.omega)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def scores(model: RecallModel, batch: Batch) -> dict[str, float]:
    """What `run` returns but the seconds, on fresh sequences."""
    logits = model(batch.tokens)
    known = {
        "accuracy": float((logits.argmax(-1) == batch.target).double().mean()),
        "log_loss": float(cross_entropy(logits.flatten(0, 1), batch.target.flatten())),
    }
    phi = model.feature_map
    if phi is None:
        return known | dict.fromkeys(("non_positive", "effective_rank", "dead", "state"), np.nan)
    q, k, v = model.queries_keys(batch.tokens)
    (_, phi_q), (log_k, phi_k) = phi(q, role="query"), phi(k, role="key")
    kernel = phi_q @ (phi_k * (log_k - log_k.amax(-1, keepdim=True)).exp()[..., None]).mT
    sums = kernel.tril().sum(-1)[..., -model.n_pairs :]
    deviation = normalize(phi_q, dim=-1).flatten(0, 2).std(0)
    return known | {
        "non_positive": float((sums <= 0).double().mean()),
        "effective_rank": effective_rank(phi, q.flatten(0, 2)),
        "dead": float((deviation < 0.01 * deviation.max()).double().mean()),
        "state": phi.feature_dim * v.shape[-1],
    }


def align_recall(model: RecallModel, config: Config, rng: np.random.Generator, *, shuffled: bool) -> None:
    """Phase A on fresh sequences with the model as it stands: each query should attend to the value after its key.

    Centred alignment of attention rows, log repulsion lam = 1e-3, steps of 2 with gradients of length .2 at most, beta 1e5, a ball of
    radius 8, in units of scaled inputs. `shuffled` permutes which query wants which value, the negative control.
    """
    phi = model.feature_map
    assert phi is not None  # METHODS aligns rows of particle maps only
    assert phi.feature is not None
    batch = make_batch(config, 4 * config.batch_size, rng)
    with torch.no_grad():
        q, k, _ = (part[:, 0].double().numpy() for part in model.queries_keys(batch.tokens))
    place = rng.permuted(batch.place.numpy(), axis=1) if shuffled else batch.place.numpy()
    attend = np.zeros((len(q), config.n_pairs, 2 * config.n_pairs))
    np.put_along_axis(attend, place[..., None], 1.0, -1)
    omega = phi.omega.detach()[0].double().numpy()
    n_particles, dim = omega.shape
    energy = CentredAttendAlignment(q[:, -config.n_pairs :], k[:, : 2 * config.n_pairs], attend, phi.feature)
    repulsion = Riesz(0.0, 2e-3 * (n_particles - 1) / n_particles, softening=0.05)
    domain, sampler = Ball(8.0, dim), Langevin(2.0, 1e5, clip=0.2)
    key = int(rng.integers(2**62))
    path = simulate(domain.project(omega), energy + repulsion, domain, sampler, n_steps=config.n_align, save_every=config.n_align, rng=key)
    phi.load_omega(uninterrupted(path)["omega"].values[0, -1])


def section(ds: xr.Dataset) -> Section:
    """The table and what it says."""
    return kernel_claims.recall_section(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """The figure by file name."""
    return {"recall.png": plots.figure_accuracy(ds.expand_dims(task=["recall"]), chance=[1 / 16])}


PRESETS = {
    "smoke": Config(
        methods=("softmax", "favor", "softmaxfeat, align"), n_pairs=3, n_keys=6, n_values=4, n_steps=6, n_warm=3, n_test=8, n_seeds=2
    ),
    "cpu": Config(n_seeds=5),
    "paper": Config(n_seeds=10, n_steps=4000),
}
REDUCED = {"cpu": "5 seeds of 10, 400 steps of 4,000"}
