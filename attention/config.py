"""Sizes and choices of a `Transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from particles.arrays import count, flag, positive, real

NORMALISE = ("default", "sum", "rms", "count", None)
PROJECTIONS = ("separate", "shared", "input")
POSITIONS = ("learned", "rotary", None)
POOLING = ("mean", "cls")
BAND_FACTOR = 4  # vectors of a band of an adaptive vocabulary have so many times fewer numbers than those of the band before
BOTTLENECKS = ("soft", "nystromformer", "linformer")  # attention through at most `n_features` tokens: no pairs, bidirectional
_OF_KERNELS: dict[str, Any] = {"window": None, "normalise": "default", "temperature": 1.0, "unit_norm": None, "feature_options": {}}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What a `Transformer` is made of; checked at construction.

    The literal Flexformer is attention="flexformer" (or "flexformer-nonstationary") with normalise="sum" and unit_norm=False; the default
    for signed maps is the recipe that trains (see `attention.model.SelfAttention`).

    Parameters
    ----------
    n_classes : of a classifier; None makes a causal language model over `vocab_size` tokens, which needs causal=True.
    max_length : longest sequence; may be None with positions that are not learned, for any length.
    vocab_size, input_dim : exactly one of them: integer tokens, or real vectors as tokens.
    dim, heads, layers, ff : width of a token, heads and number of the layers, width of the feed-forward part.
    kv_heads : heads of keys and values, a divisor of `heads` (grouped queries; 1: multi-query); None: as many as `heads`.
    dropout : share of each sublayer's output, and of the embedded tokens, dropped in training.
    causal : whether a token sees only itself and earlier ones.
    attention : name of one attention for all layers, or a tuple with one name a layer: "softmax", a name that `attention.feature_map`
        knows, or, of bidirectional models, "soft" (SOFT's Gaussian kernel through the means of at most `n_features` windows of tokens;
        queries = keys), "nystromformer" (softmax through such means) or "linformer" (softmax to `n_features` learned mixtures of tokens).
    window : of kernel layers: a key less than so many tokens away is weighed by softmax's kernel, the others by the map's.
    projections : "separate" W_q and W_k; "shared" W_q = W_k (as SOFT); "input": no W_q, W_k at all, q = k = the layer's normalised input
        cut into heads (the Coulomb paper's Q = K variant). Values always have their projection.
    n_features, normalise, temperature, feature_options : of `attention.feature_map` and `attention.kernel_attention`, for the layers that
        use them; normalise="default" is the map's own: "sum" for positive maps, "rms" for signed ones.
    unit_norm : whether queries and keys of kernel layers have unit length times a learned scale per head; None: where the map is signed.
    positions : "learned" vectors added to the tokens, "rotary" (Su et al. 2021) queries and keys with base `rotary_base`, or None.
    pooling : "mean" over real tokens or a learned "cls" vector put before the tokens; of bidirectional classifiers.
    tie_embeddings : whether a language model's head is its word embedding.
    cutoffs : first words of the bands of an adaptive vocabulary (`attention.adaptive`), of tied embeddings; None: one band.

    Raises
    ------
    ValueError
        Naming the field and the value received.
    """

    n_classes: int | None = None
    max_length: int | None = None
    vocab_size: int | None = None
    input_dim: int | None = None
    dim: int = 64
    heads: int = 4
    kv_heads: int | None = None
    layers: int = 1
    ff: int = 128
    dropout: float = 0.1
    causal: bool = False
    attention: str | tuple[str, ...] = "softmax"
    window: int | None = None
    projections: str = "separate"
    n_features: int = 32
    normalise: str | None = "default"
    temperature: float = 1.0
    unit_norm: bool | None = None
    feature_options: Mapping[str, Any] = field(default_factory=dict)
    positions: str | None = "learned"
    rotary_base: float = 10_000.0
    pooling: str = "mean"
    tie_embeddings: bool = False
    cutoffs: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_attention()
        self._check_choices()
        self._check_task()

    @property
    def head_dim(self) -> int:
        """Dimension of one head's queries and keys."""
        return self.dim // self.heads

    @property
    def key_heads(self) -> int:
        """Heads of keys and values: `kv_heads`, or as many as there are of queries."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def layer_attention(self) -> tuple[str, ...]:
        """The attention of each layer."""
        return (self.attention,) * self.layers if isinstance(self.attention, str) else self.attention

    def _check_numbers(self) -> None:
        for name in ("dim", "heads", "layers", "ff", "n_features"):
            count(getattr(self, name), name)
        for name in ("max_length", "kv_heads", "window"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name)
        if (self.vocab_size is None) == (self.input_dim is None):
            raise ValueError(f"give exactly one of vocab_size and input_dim, got {self.vocab_size!r} and {self.input_dim!r}")
        count(self.vocab_size if self.input_dim is None else self.input_dim, "vocab_size" if self.input_dim is None else "input_dim")
        if self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, got dim={self.dim} and heads={self.heads}")
        if self.heads % self.key_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got heads={self.heads} and kv_heads={self.kv_heads}")
        if not 0 <= real(self.dropout, "dropout") < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}")
        positive(self.temperature, "temperature")
        positive(self.rotary_base, "rotary_base")

    def _check_choices(self) -> None:
        choices = {"normalise": NORMALISE, "projections": PROJECTIONS, "positions": POSITIONS, "pooling": POOLING}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("causal", "tie_embeddings"):
            flag(getattr(self, name), name)
        if self.unit_norm is not None:
            flag(self.unit_norm, "unit_norm")
        if not isinstance(self.feature_options, Mapping):
            raise ValueError(f"feature_options must be a dict, got {self.feature_options!r}")
        if self.max_length is None and (self.positions == "learned" or set(BOTTLENECKS) & {*self.layer_attention}):
            raise ValueError(f"max_length must be given with learned positions and with attention of {BOTTLENECKS}, got None")
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head dimension, got {self.head_dim}")

    def _check_task(self) -> None:
        if self.n_classes is not None:
            count(self.n_classes, "n_classes", least=2)
        elif not self.causal or self.vocab_size is None:
            got = f"causal={self.causal} and vocab_size={self.vocab_size}"
            raise ValueError(f"n_classes=None is a language model and needs causal=True and vocab_size, got {got}")
        if self.pooling == "cls" and self.causal:
            raise ValueError("pooling 'cls' needs causal=False: a first token that sees only itself knows nothing, got causal=True")
        if self.tie_embeddings and self.n_classes is not None:
            raise ValueError(f"tie_embeddings is for language models (n_classes=None), got n_classes={self.n_classes}")
        if self.cutoffs is not None:
            if not self.tie_embeddings:
                raise ValueError(f"cutoffs need tie_embeddings=True, got {self.cutoffs!r} without")
            check_cutoffs(self.cutoffs, int(self.vocab_size or 0), self.dim)

    def _check_attention(self) -> None:
        names = self.attention
        if not isinstance(names, str | tuple) or (isinstance(names, tuple) and not all(isinstance(name, str) for name in names)):
            raise ValueError(f"attention must be a name or a tuple of names, got {names!r}")
        if len(self.layer_attention) != self.layers:
            raise ValueError(f"attention must have one name for each of the {self.layers} layers, got {names!r}")
        if self.projections != "separate" and self.key_heads != self.heads:
            raise ValueError(f"projections={self.projections!r} have q = k and so no grouped heads, got kv_heads={self.kv_heads}")
        found = [name for name in BOTTLENECKS if name in self.layer_attention]
        if found and (self.causal or self.key_heads != self.heads or self.window is not None):
            raise ValueError(
                f"attention {found[0]!r} has no causal, grouped or windowed form, "
                f"got causal={self.causal}, kv_heads={self.kv_heads} and window={self.window}"
            )
        if set(self.layer_attention) <= {"softmax", *BOTTLENECKS}:
            for name, default in _OF_KERNELS.items():
                if getattr(self, name) != default:
                    raise ValueError(f"{name} needs a layer with kernel attention, got {getattr(self, name)!r} and attention={names!r}")


def check_cutoffs(cutoffs: Any, vocab_size: int, dim: int) -> None:
    """ValueError unless the cutoffs rise from 1 to below `vocab_size`, and `dim` can be halved twice for each."""
    valid = isinstance(cutoffs, tuple) and len(cutoffs) > 0 and all(isinstance(cut, int) for cut in cutoffs)
    if not valid or list(cutoffs) != sorted(set(cutoffs)) or not 0 < cutoffs[0] <= cutoffs[-1] < vocab_size:
        raise ValueError(f"cutoffs must be whole numbers that rise from 1 to below vocab_size={vocab_size}, got {cutoffs!r}")
    if dim < BAND_FACTOR ** len(cutoffs):
        raise ValueError(f"dim must be at least {BAND_FACTOR ** len(cutoffs)} with {len(cutoffs)} cutoffs, got {dim}")
