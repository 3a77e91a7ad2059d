"""What softmax attention cannot see and random features can: exact changes of queries and keys that leave every row as it is.

For scaled queries and keys (softmax over j of q_i.k_j) a row does not change under
    k -> k - c                 c common to the row's keys,                     (1)
    q -> A q, k -> A^-T k      A invertible,                                   (2)
    q -> q - b                 if key j gets the weight exp(b.k_j),            (3)
because each adds a number that all keys of the row share. The variance of positive random features grows with |q + k|^2 (Choromanski et
al. 2021, Lemma 2), so that centring *both* sides and balancing them makes the features better at no cost. Centring one side only can
make them worse: the two means partly cancel in q + k. The best A minimises E|A q|^2 + E|A^-T k|^2: with covariances Sq, Sk,
    A^T A = Sq^-1 # Sk = Sq^-1/2 (Sq^1/2 Sk Sq^1/2)^1/2 Sq^-1/2,               (4)
the geometric mean, the one positive matrix G with G Sq G = Sk; after it both covariances are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attention.feature_map import described

MODES = ("iso", "sent")
_RIDGE = 1e-6  # of the mean variance, added to both covariances before (4), for data of low rank; any A is exact


class Moments(NamedTuple):
    """First and second moments of one layer's scaled queries and keys over visible tokens, for each head, float64."""

    query_mean: Float[Tensor, "head dim"]
    key_mean: Float[Tensor, "head dim"]
    query_covariance: Float[Tensor, "head dim dim"]
    key_covariance: Float[Tensor, "head dim dim"]  # about the corpus mean, or the sentence's


class Invariance(nn.Module):
    """(1)-(3) for every head of a layer: q -> A (q - b), k -> A^-T (k - c), and the log weights of the keys.

    Parameters
    ----------
    query_matrix, key_matrix : (head, dim, dim)
        A and A^-T, or None once they (and the shifts) are folded into the projections.
    query_shift, key_shift : (head, dim)
        b and c, or None.
    key_log : (head, dim)
        A b: its product with the new keys is (3)'s log weight, up to a number that is common to a row.
    centre_keys : bool
        Also subtract the mean of the row's visible keys (mode "sent"): such keys depend on all tokens, so this is not causal.

    Buffers, not parameters: exact at any value of the projections, and not trained.
    """

    query_matrix: Tensor | None
    key_matrix: Tensor | None
    query_shift: Tensor | None
    key_shift: Tensor | None
    key_log: Tensor

    def __init__(
        self,
        query_matrix: Tensor | None,
        key_matrix: Tensor | None,
        query_shift: Tensor | None,
        key_shift: Tensor | None,
        key_log: Float[Tensor, "head dim"],
        *,
        centre_keys: bool = False,
    ) -> None:
        super().__init__()
        self.centre_keys = centre_keys
        named = {"query_matrix": query_matrix, "key_matrix": key_matrix, "query_shift": query_shift, "key_shift": key_shift}
        for name, value in (named | {"key_log": key_log}).items():
            self.register_buffer(name, value)

    @classmethod
    def blank(cls, heads: int, dim: int, *, folded: bool, centre_keys: bool) -> Invariance:
        """The identity, to load a `state_dict` into; the arguments are what `describe` returns."""
        zeros = torch.zeros(heads, dim)
        if folded:
            return cls(None, None, None, None, zeros, centre_keys=centre_keys)
        matrices = [torch.eye(dim).repeat(heads, 1, 1) for _ in range(2)]
        return cls(matrices[0], matrices[1], zeros.clone(), zeros.clone(), zeros, centre_keys=centre_keys)

    def without(self, heads: Bool[Tensor, " head"] | None) -> Invariance:
        """The same, but the identity for the given heads; itself for None."""
        if heads is None:
            return self
        parts = [None if part is None else part.clone() for part in (self.query_matrix, self.key_matrix, self.query_shift, self.key_shift)]
        key_log = self.key_log.clone()
        for part in (*parts, key_log):
            if part is not None:
                part[heads] = torch.eye(part.shape[-1]).to(part) if part.ndim == 3 else 0.0
        return Invariance(parts[0], parts[1], parts[2], parts[3], key_log, centre_keys=self.centre_keys)

    def describe(self) -> dict[str, Any]:
        """Arguments of `blank`, as JSON values."""
        heads, dim = self.key_log.shape
        return {"heads": heads, "dim": dim, "folded": self.query_matrix is None, "centre_keys": self.centre_keys}

    def forward(
        self,
        q: Float[Tensor, "batch head query dim"],
        k: Float[Tensor, "batch key_head key dim"],
        key_mask: Bool[Tensor, "batch key"] | None = None,
    ) -> tuple[Float[Tensor, "batch head query dim"], Float[Tensor, "batch head key dim"], Float[Tensor, "batch head key"]]:
        """New queries, keys and the keys' log weights; q and k are scaled by scale^(1/2); float32 at least, autocast or not.

        Fewer key heads than query heads are repeated: each query head has its own A and b. What a masked key holds is forgotten.
        """
        if key_mask is not None:
            k = k.where(key_mask[:, None, :, None], 0)
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        q, k = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k))
        with torch.autocast(q.device.type, enabled=False):  # a log weight is an exponent
            q, k = _moved(q, self.query_shift, self.query_matrix), _moved(k, self.key_shift, self.key_matrix)
            if self.centre_keys:
                k = k - row_mean(k, key_mask)
            return q, k, (k @ self.key_log[..., None].to(k.dtype))[..., 0]

    def extra_repr(self) -> str:
        """What the printed module says of itself: its description."""
        return ", ".join(f"{name}={value}" for name, value in self.describe().items())


def row_mean(k: Float[Tensor, "batch head key dim"], key_mask: Bool[Tensor, "batch key"] | None) -> Float[Tensor, "batch head 1 dim"]:
    """Mean of each row's visible keys; 0 for a row without one."""
    if key_mask is None:
        return k.mean(2, keepdim=True)
    seen = key_mask[:, None, :, None]
    return k.where(seen, 0).sum(2, keepdim=True) / seen.sum(2, keepdim=True).clamp(min=1)


def moments(parts: Iterable[tuple[Tensor, Tensor, Tensor]], *, centre_keys: bool = False) -> Moments:
    """Moments over parts (q, k scaled (batch, head, time, dim), mask bool (batch, time)); keys about their row's mean if `centre_keys`.

    Raises
    ------
    ValueError
        Without at least two visible tokens, or if one is not finite.
    """
    total, sums = 0, None
    for q, k, mask in parts:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        k = k - row_mean(k, mask) if centre_keys else k
        rows = [x.transpose(1, 2)[mask].double().transpose(0, 1) for x in (q, k)]  # (head, token, dim)
        new = [term for x in rows for term in (x.sum(1), x.mT @ x)]
        sums = new if sums is None else [old + term for old, term in zip(sums, new)]
        total += int(mask.sum())
    if sums is None or total < 2 or not all(bool(term.isfinite().all()) for term in sums):
        raise ValueError(f"queries and keys must be finite and at least two visible tokens, got {total} tokens")
    means = [sums[0] / total, sums[2] / total]
    covariances = [second / total - mean[..., None] * mean[..., None, :] for second, mean in zip(sums[1::2], means)]
    return Moments(*means, *covariances)


def balance(
    query_covariance: Float[Tensor, "*head dim dim"], key_covariance: Float[Tensor, "*head dim dim"]
) -> Float[Tensor, "*head dim dim"]:
    """The symmetric A of (4), float64: A Sq A^T = A^-T Sk A^-1, and the sum of the two traces is least."""
    sides = query_covariance.double(), key_covariance.double()
    spread = torch.stack(sides).diagonal(dim1=-2, dim2=-1).mean((0, -1))[..., None, None]
    eye = torch.eye(sides[0].shape[-1], dtype=torch.float64, device=spread.device)
    ridged = [side + (_RIDGE * spread + torch.finfo(torch.float32).tiny) * eye for side in sides]
    root, inverse = _power(ridged[0], 0.5), _power(ridged[0], -0.5)
    return _power(inverse @ _power(root @ ridged[1] @ root, 0.5) @ inverse, 0.5)


def optimal_invariance(found: Moments, *, centre_keys: bool = False, dtype: torch.dtype = torch.float32) -> Invariance:
    """The best `Invariance` for given moments; in mode "sent" pass moments and the flag `centre_keys` alike."""
    matrix = balance(found.query_covariance, found.key_covariance)
    key_log = (matrix @ found.query_mean[..., None])[..., 0]
    parts = (matrix, torch.linalg.inv(matrix).mT, found.query_mean, found.key_mean, key_log)
    return Invariance(*(part.to(dtype).contiguous() for part in parts), centre_keys=centre_keys)


@torch.no_grad()
def fold(query: nn.Module, key: nn.Module, parts: Invariance, scale: float, *, columns: tuple[slice, slice] | None = None) -> Invariance:
    """Write A, b and c into the projections and return what cannot be folded: the key log weights (and the row mean).

    Parameters
    ----------
    query, key : Linear (weight (out, in)) or GPT-2's Conv1D (weight (in, out)), with biases; written in place
    scale : the factor of q.k; shifts are in scaled units
    columns : outputs that hold queries and keys, where one module holds both (GPT-2's c_attn); None: all

    Raises
    ------
    ValueError
        For projections without bias, whose shifts have nowhere to go, or that are already folded.
    """
    if parts.query_matrix is None or parts.key_matrix is None or parts.query_shift is None or parts.key_shift is None:
        raise ValueError("parts must hold matrices to fold, got a folded Invariance")
    sides = (query, parts.query_matrix, parts.query_shift), (key, parts.key_matrix, parts.key_shift)
    for (module, matrix, shift), where in zip(sides, columns or (slice(None), slice(None))):
        if not isinstance(getattr(module, "bias", None), Tensor):
            raise ValueError(f"projections must have a bias to be folded into, got {module!r}")
        whole, bias = module.get_parameter("weight"), module.get_parameter("bias")[where]
        weight = (whole if isinstance(module, nn.Linear) else whole.T)[where]  # views, (out, in) both
        rows, column = weight.unflatten(0, (len(matrix), -1)).double(), bias.unflatten(0, (len(matrix), -1)).double()
        weight.copy_((matrix.double() @ rows).flatten(0, 1))
        bias.copy_((matrix.double() @ (column - shift.double() / scale**0.5)[..., None]).flatten())
    return Invariance(None, None, None, None, parts.key_log, centre_keys=parts.centre_keys)


def _moved(x: Tensor, shift: Tensor | None, matrix: Tensor | None) -> Tensor:
    """matrix (x - shift) for every head of (batch, head, time, dim); x itself once both are folded."""
    return x if shift is None or matrix is None else (x - shift[:, None]) @ matrix.mT.to(x.dtype)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """Power of a symmetric positive matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    if bool((values <= 0).any()):
        raise ValueError(f"covariances must be positive, got {described(matrix)} with an eigenvalue {float(values.min()):.3g}")
    return (vectors * values[..., None, :] ** exponent) @ vectors.mT
