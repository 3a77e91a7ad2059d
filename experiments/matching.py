"""In-context matching by a hidden relation (task T3): the kernel's shape is all that attention can learn.

A sequence holds `n_tokens` context tokens x ~ N(0, I) with a label and as many query tokens without. A hidden rule puts every token in one
of a few bins; every sequence draws its own bin -> label permutation. So the one way to label a query is to attend to context tokens of its
bin. Nothing is trained in front: q = x_query, k = x_context, v = one-hot label, logits = exp(a) * attention + b. Only a, b and, where
the method says so, the particles omega are learned, on a few training sequences of which a quarter is held out for early stopping.

Phase A sees what end-to-end training sees: the target of a pair of tokens of one sequence is whether they have the same label; pairs
of different sequences are left out, because their labels are not comparable. It runs in standardised units: attention scales tokens
by dim^(-1/4) before the map, so omega in a feature map is dim^(1/4) times omega for the tokens themselves.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, scaled_dot_product_attention

from attention.feature_map import FeatureMap, feature_map
from attention.linear import kernel_attention
from particles.alignment import Alignment
from particles.arrays import count, positive
from particles.domain import Ball
from particles.energy import Quadratic
from particles.features import FourierPair
from particles.langevin import Langevin
from particles.riesz import Riesz
from particles.simulate import simulate, uninterrupted

N_CALIBRATION = 20_000  # points that fix the median of ring3


class Method(NamedTuple):
    """How the kernel of a row comes about; `width` multiplies the start N(0, I) of the frequencies, `aligned` is the target of Phase A."""

    name: str = "fourier"
    width: float = 1.0
    aligned: str | None = None
    learned: bool = False


METHODS = {
    "softmax": Method("softmax"),
    "favor": Method("favor"),
    "fixed": Method(),
    "end to end": Method(learned=True),
    "end to end, half width": Method(width=0.5, learned=True),
    "end to end, quarter width": Method(width=0.25, learned=True),
    "align": Method(aligned="labels"),
    "align, unfreeze": Method(aligned="labels", learned=True),
    "shuffled": Method(aligned="shuffled"),
    "shuffled, unfreeze": Method(aligned="shuffled", learned=True),
}
DEMO_METHODS = tuple(name for name in METHODS if name not in ("favor", "end to end, quarter width"))


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    tasks: tuple[str, ...] = ("phase", "ring3")  # some of phase, multi, ring3, xor2, iso
    methods: tuple[str, ...] = DEMO_METHODS  # some of these, "favor" and "end to end, quarter width"
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
        chosen(self.methods, METHODS, "methods")
        for name in ("n_test", "n_tokens", "n_align", "n_steps", "batch_size", "n_seeds"):
            count(getattr(self, name), name)
        count(self.n_sequences, "n_sequences", least=4)
        count(self.dim, "dim", least=3)
        count(self.seed, "seed", least=0)
        positive(self.lr, "lr")
        if count(self.n_features, "n_features") % 2:
            raise ValueError(f"n_features must be even, a cos and a sin for each frequency, got {self.n_features}")


def chosen(names: Sequence[str], known: Iterable[str], argument: str) -> None:
    """ValueError unless `names` are some of the known ones, each at most once."""
    valid = isinstance(names, Sequence) and not isinstance(names, str) and len(names) > 0
    if not valid or len(set(names)) < len(names) or set(names) - set(known):
        raise ValueError(f"{argument} must be some of {list(known)}, each once, got {names!r}")


class Sequences(NamedTuple):
    """context, query (sequence, token, dim); their labels (sequence, token) int64; the number of labels."""

    context: Tensor
    context_label: Tensor
    query: Tensor
    query_label: Tensor
    n_labels: int

    def take(self, rows: Tensor | slice) -> Sequences:
        """Some of the sequences."""
        return Sequences(self.context[rows], self.context_label[rows], self.query[rows], self.query_label[rows], self.n_labels)


def run(config: Config) -> xr.Dataset:
    """Train every method on every task and seed.

    Returns
    -------
    Dataset, in which sel({"method": name}) selects a method (the keyword `method` of `sel` is xarray's own).
    Over (task, method, seed): accuracy [share of test queries], log_loss [nats], seconds (Phase A included), effective_rank of the
    features, alignment of the kernel with same-label pairs of the held-out sequences (both NaN for softmax).
    Of the first seed: attention (task, method, query, key) on the first test sequence with tokens in the order of their labels
    (query_label, key_label), each row divided by its largest magnitude; omega (task, method, particle, dim) in standardised units.
    """
    seeds = range(config.seed, config.seed + config.n_seeds)
    tasks = [xr.concat([_one(config, task, seed) for seed in seeds], "seed") for task in config.tasks]
    dataset = xr.concat(tasks, "task").assign_coords(task=list(config.tasks), seed=list(seeds))
    for name in ("omega", "attention", "query_label", "key_label"):
        dataset[name] = dataset[name].isel(seed=0, drop=True)
    dataset = dataset.transpose("task", "method", "seed", ...)
    dataset.attrs = {"experiment": "matching", "config": json.dumps(asdict(config)), "schema": 1}
    return dataset


def _one(config: Config, task: str, seed: int) -> xr.Dataset:
    """All methods on one draw of one task."""
    rng = np.random.default_rng([seed, 1])
    n_holdout = config.n_sequences // 4
    data = make_sequences(task, config.n_sequences + config.n_test, config.n_tokens, config.dim, rng)
    train = data.take(slice(config.n_sequences - n_holdout))
    holdout = data.take(slice(config.n_sequences - n_holdout, config.n_sequences))
    test = data.take(slice(config.n_sequences, None))
    starts, rows = Starts(config, train, seed), []
    for name in config.methods:
        model, seconds = fit(METHODS[name], starts, train, holdout, config)
        rows.append(_measured(model, holdout, test).assign(seconds=seconds))
    example = test.take(slice(1))
    labels = {
        "query_label": ("query", example.query_label[0].sort().values.numpy()),
        "key_label": ("key", example.context_label[0].sort().values.numpy()),
    }
    return xr.concat(rows, "method").assign_coords(method=list(config.methods)).assign(labels)


# ---------------------------------------------------------------------------------------------------------------------- the task

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rotated tokens (..., dim), calibration points (n, dim) -> bins (...)


def _phase(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Four quarter turns of the phase 2 z_1."""
    return np.floor(2 * z[..., 0] / (np.pi / 2)).astype(np.int64) % 4


def _multi(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The signs of sin 2 z_1 and sin 2 z_2: two modes, four bins."""
    return 2 * (np.sin(2 * z[..., 0]) > 0).astype(np.int64) + (np.sin(2 * z[..., 1]) > 0)


def _ring3(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Whether |z_1..3|^2 is above its median."""
    return ((z[..., :3] ** 2).sum(-1) > np.median((points[:, :3] ** 2).sum(-1))).astype(np.int64)


def _xor2(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The sign of z_1 z_2."""
    return (z[..., 0] * z[..., 1] > 0).astype(np.int64)


RULES: dict[str, tuple[int, Rule | None]] = {
    "phase": (4, _phase),
    "multi": (4, _multi),
    "ring3": (2, _ring3),
    "xor2": (2, _xor2),
    "iso": (4, None),
}
ISO_SPREAD = 0.65  # standard deviation within a cluster of iso; a token's total variance is 1


def make_sequences(task: str, n_sequences: int, n_tokens: int, dim: int, rng: np.random.Generator) -> Sequences:
    """Sequences of one draw of a task; in "iso" the bins are four Gaussian clusters drawn anew in each sequence."""
    n_bins, rule = RULES[task]
    shape = (n_sequences, 2 * n_tokens)
    tokens = rng.standard_normal((*shape, dim))
    if rule is None:
        bins = rng.integers(n_bins, size=shape)
        centres = rng.standard_normal((n_sequences, n_bins, dim)) * math.sqrt(1 - ISO_SPREAD**2)
        tokens = np.take_along_axis(centres, bins[..., None], 1) + ISO_SPREAD * tokens
    else:
        rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        bins = rule(tokens @ rotation.T, rng.standard_normal((N_CALIBRATION, dim)))
    permutations = rng.permuted(np.tile(np.arange(n_bins), (n_sequences, 1)), axis=1)
    x = torch.from_numpy(tokens.astype(np.float32))
    labels = torch.from_numpy(np.take_along_axis(permutations, bins, 1))
    return Sequences(x[:, :n_tokens], labels[:, :n_tokens], x[:, n_tokens:], labels[:, n_tokens:], n_bins)


# --------------------------------------------------------------------------------------------------------------------- the model


class Matcher(nn.Module):
    """logits = exp(a) * attention + b, with softmax attention or, for a feature map, mean_j K(q, k_j) v_j without a denominator."""

    def __init__(self, phi: FeatureMap | None, n_labels: int) -> None:
        super().__init__()
        self.phi = phi
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(n_labels))

    def attend(self, data: Sequences) -> Tensor:
        """Votes for each label, (sequence, token, label)."""
        q, k = data.query[:, None], data.context[:, None]
        v = one_hot(data.context_label, data.n_labels).to(q.dtype)[:, None]
        out = scaled_dot_product_attention(q, k, v) if self.phi is None else kernel_attention(q, k, v, self.phi, normalise="count")
        return out[:, 0]

    def logits(self, votes: Tensor) -> Tensor:
        """Logits from the votes of `attend`."""
        return self.a.exp() * votes + self.b


class Starts:
    """Frequencies to start from, in standardised units; they depend on the seed only, and each Phase A is run once."""

    def __init__(self, config: Config, train: Sequences, seed: int) -> None:
        rng = np.random.default_rng([seed, 2])
        self.config, self.train = config, train
        self.omega = rng.standard_normal((config.n_features // 2, config.dim)) * config.dim**-0.25
        self.key, self.order = (int(value) for value in rng.integers(2**31, size=2))
        self.aligned: dict[str, tuple[np.ndarray, float]] = {}

    def take(self, method: Method) -> tuple[np.ndarray, float]:
        """The start (particle, dim) of a method and the seconds that Phase A took."""
        if method.aligned is None:
            return self.omega * method.width, 0.0
        if method.aligned not in self.aligned:
            started = time.perf_counter()
            shuffled = method.aligned == "shuffled"
            omega = align(self.omega * method.width, self.train, self.config.n_align, self.key, shuffled=shuffled)
            self.aligned[method.aligned] = omega, time.perf_counter() - started
        return self.aligned[method.aligned]


def fit(method: Method, starts: Starts, train: Sequences, holdout: Sequences, config: Config) -> tuple[Matcher, float]:
    """A trained model of one row of the table and its seconds, Phase A included."""
    omega, seconds = starts.take(method)
    started = time.perf_counter()
    model = Matcher(_map(method.name, omega, config, starts.key), train.n_labels)
    if model.phi is not None and not method.learned:
        model.phi.freeze()
    train_model(model, train, holdout, config, torch.Generator().manual_seed(starts.order))
    return model, seconds + time.perf_counter() - started


def _map(name: str, omega: np.ndarray, config: Config, key: int) -> FeatureMap | None:
    """The feature map whose frequencies for the tokens themselves are `omega` (particle, dim); "favor", which has more, draws by `key`."""
    if name == "softmax":
        return None
    if name == "favor":
        return feature_map(name, dim=config.dim, n_features=config.n_features, generator=torch.Generator().manual_seed(key))
    return feature_map(name, dim=config.dim, n_features=config.n_features, omega=(omega * config.dim**0.25)[None])


def align(omega: np.ndarray, data: Sequences, n_steps: int, key: int, *, shuffled: bool = False) -> np.ndarray:
    """Phase A: particles (particle, dim) in standardised units moved to align the kernel with "same label", pairs of one sequence only.

    `shuffled` permutes the labels within each sequence, the negative control. Energies and constants are those of the estimator:
    confinement .02, log repulsion lam = .01, step 2, beta 1000, ball of radius 4.
    """
    x, y, groups = _tokens(data)
    if shuffled:
        rng = np.random.default_rng(key)
        y = rng.permuted(y.reshape(len(data.context), -1), axis=1).ravel()
    n_particles, dim = omega.shape
    strength = 0.02 * (n_particles - 1) / n_particles
    energy = Alignment(x, y, FourierPair(), groups=groups) + Quadratic(0.02) + Riesz(0.0, strength, softening=0.05, mirror=True)
    domain = Ball(4.0, dim)
    path = simulate(domain.project(omega), energy, domain, Langevin(2.0, 1000.0), n_steps=n_steps, save_every=n_steps, rng=key)
    return uninterrupted(path)["omega"].values[0, -1]


def _tokens(data: Sequences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens (n, dim) float64 with their labels and the number of their sequence (n,)."""
    x, labels = torch.cat((data.context, data.query), 1), torch.cat((data.context_label, data.query_label), 1)
    groups = np.repeat(np.arange(len(x)), x.shape[1])
    return x.flatten(0, 1).double().numpy(), labels.flatten().numpy(), groups


def train_model(model: Matcher, train: Sequences, holdout: Sequences, config: Config, generator: torch.Generator) -> None:
    """AdamW on what is learnable, keeping the parameters with the smallest hold-out loss (looked at every 25 steps).

    With a fixed kernel the votes never change, so they are computed once.
    """
    frozen = model.phi is None or not model.phi.omega.requires_grad
    with torch.no_grad():
        votes = model.attend(train) if frozen else None
        votes_holdout = model.attend(holdout) if frozen else None
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=config.lr)
    best, kept = math.inf, {}
    for step in range(config.n_steps + 1):
        if step % 25 == 0 or step == config.n_steps:
            loss = _evaluate(model, holdout, votes_holdout)[1]
            if loss < best:
                best, kept = loss, {name: value.clone() for name, value in model.state_dict().items()}
        rows = torch.randint(len(train.query), (config.batch_size,), generator=generator)
        batch = train.take(rows)
        logits = model.logits(model.attend(batch) if votes is None else votes[rows])
        optimiser.zero_grad()
        cross_entropy(logits.flatten(0, 1), batch.query_label.flatten()).backward()
        optimiser.step()
    model.load_state_dict(kept)


@torch.no_grad()
def _evaluate(model: Matcher, data: Sequences, votes: Tensor | None = None) -> tuple[float, float]:
    """(accuracy, log loss) over all queries."""
    logits = model.logits(model.attend(data) if votes is None else votes).flatten(0, 1)
    labels = data.query_label.flatten()
    return float((logits.argmax(-1) == labels).double().mean()), float(cross_entropy(logits, labels))


def _measured(model: Matcher, holdout: Sequences, test: Sequences) -> xr.Dataset:
    """Scores of one model, its particles, and its attention on the first test sequence."""
    accuracy, loss = _evaluate(model, test)
    q, k = (
        part[0, order] for part, order in ((test.query, test.query_label[0].argsort()), (test.context, test.context_label[0].argsort()))
    )
    scores = _kernel(model.phi, q, k)
    learned = {}
    if model.phi is not None and isinstance(model.phi.feature, FourierPair):
        omega = model.phi.omega.detach()[0].double().numpy() / q.shape[-1] ** 0.25
        learned = {"omega": (("particle", "dim"), omega), "alignment": _alignment(holdout, omega)}
    return xr.Dataset(
        {
            "accuracy": accuracy,
            "log_loss": loss,
            "effective_rank": _effective_rank(model.phi, test.query.flatten(0, 1)),
            "alignment": math.nan,
            "attention": (("query", "key"), scores / np.abs(scores).max(-1, keepdims=True)),
        }
    ).assign(learned)


@torch.no_grad()
def _kernel(phi: FeatureMap | None, q: Tensor, k: Tensor) -> np.ndarray:
    """Attention scores between tokens (query, dim) and (key, dim), before any normalisation over keys (after it for softmax)."""
    if phi is None:
        return (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1).numpy()
    (log_q, features_q), (log_k, features_k) = (phi(x[None, None] * q.shape[-1] ** -0.25) for x in (q, k))
    return (features_q @ features_k.mT * (log_q[..., :, None] + log_k[..., None, :]).exp())[0, 0].numpy()


@torch.no_grad()
def _effective_rank(phi: FeatureMap | None, x: Tensor) -> float:
    """exp of the entropy of the normalised eigenvalues of the features' second moment (NaN for softmax)."""
    if phi is None:
        return math.nan
    log_scale, features = phi(x[None, None] * x.shape[-1] ** -0.25)
    features = (features * log_scale.exp()[..., None])[0, 0].double()
    share = torch.linalg.eigvalsh(features.T @ features).clamp(min=0)
    share = share / share.sum()
    return float(torch.special.entr(share).sum().exp())


def _alignment(data: Sequences, omega: np.ndarray) -> float:
    x, y, groups = _tokens(data)
    return -float(Alignment(x, y, FourierPair(), groups=groups).value(omega))
