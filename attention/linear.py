"""Kernel attention in time linear in the sequence: the public function, its checks and the choice of a form. `naive` defines it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.feature_map import FeatureMap, described
from attention.layout import Inputs, ended, filled, grouped, packed
from attention.quadratic import absorbed, quadratic
from attention.running_sums import Call, State, attend, normalised
from attention.window import WindowState, windowed
from particles.arrays import count as as_count
from particles.arrays import flag, positive, real

_NORMALISE = ("sum", "rms", "count", None)
_FORMS = ("auto", "linear", "quadratic")
_SLOWER = {False: 1.4, True: 2.0}  # time per operation of running sums, causal or not, in units of the matrix form's, as measured


def kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature_map: FeatureMap,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    scale: float | None = None,
    normalise: str | None = "default",
    window: int | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    state: State | WindowState | None = None,
    return_state: bool = False,
    form: str = "auto",
    chunk_size: int = 64,
    report: dict[str, Tensor] | None = None,
) -> Any:
    """Attention with the kernel K(q, k) = phi(q).phi(k) of a feature map, in O(time) (Coulomb paper, App. D).

    Parameters
    ----------
    q : (batch, head, query, dim). Any float types and strides. Features and sums are computed in float32 at least, autocast or not; the
        output has v's type. An axis of queries, keys or batch entries may be empty.
    k, v : (batch, kv_head, key, dim or value); q's heads are a multiple of theirs, and query head h reads key head h // (heads / kv_heads)
        (grouped and multi-query attention).
    feature_map : maps scale^(1/2) q and scale^(1/2) k to features. It has particles for every query head, for every key head, or one set.
    is_causal : query i sees key j when j <= i + (number of keys) - (number of queries): aligned bottom-right, as a cache needs. A later
        key or value of any finite size changes no bit of an earlier row; one that is not finite may spoil earlier rows (mask it),
        or whose square is not where features grow with it ("rfa" and the Flexformers: beyond 1e19 in float32).
    key_mask : (batch, key), True = attend. What a masked key or value holds, NaN included, changes neither outputs nor gradients, and
        its own gradient is 0. A query that is not finite gets NaN in its own row; with a mask it disturbs no gradient of other rows.
    cu_seqlens : offsets (0, ..., time) of sequences packed end to end in one batch entry: each attends to itself only. States have a batch
        entry for every sequence; that of an empty one is passed on.
    scale : factor of q.k as in torch's SDPA; dim**-0.5 if None.
    normalise : "sum" divides by the sum of the kernel over visible keys, "rms" divides each head's output by its root mean square over
        the value axis, "count" by the number of visible keys, None by nothing. By default "sum" for positive maps and "rms" for signed
        ones, whose sums can vanish.
    window : keys with |i - j| < window are weighed by exp(scale q.k) itself, the others by the kernel, under one sum (`attention.window`).
        Positive maps with "sum" only; bidirectionally without a state and with as many queries as keys.
    dropout : probability with which a key of a head and batch entry is dropped, for all queries at once, the remaining values growing by
        1/(1 - dropout). As in torch's SDPA the divisor keeps all keys. Dropping single query-key pairs is not possible in linear time.
    generator : source of the dropout; torch's default generator if None.
    state : sums over earlier keys, which every query sees; a `WindowState` with a window.
    return_state : also return the state after these keys.
    form : "linear", "quadratic" (the same function by a matrix of scores), or "auto": quadratic where that takes less time.
    chunk_size : causal only: time is processed in chunks of so many tokens. Speed and rounding depend on it, nothing else.
    report : a dict that is given "denominator" (batch, head, query), the sums of the kernel that rows are divided by, up to positive
        factors, and "nonpositive" (), the fraction of rows with a sum below 0 or lost to cancellation or underflow. Only with "sum".

    Maps of positions (`feature_map.positional`) are given those of the tokens, masked ones counted: keys go on from `state.position`,
    queries stand at the last keys if causal and count from 0 otherwise.

    Returns
    -------
    out (batch, head, query, value), or (out, State).

    A row with no visible key, or whose divisor is 0, is 0 with zero gradient. So is a row whose divisor is so far below the largest keys
    and features (exp(-93) in float32, exp(-850) in float64 for exponential maps) that underflow may have taken its digits. In float32
    with q, k ~ c N(0, I), dim 64, 128 features, 400 tokens, against float64: "favor" has no such row up to c = 10 (worst row 3e-5 off),
    34 % at c = 30, 91 % at c = 100 (62 and 96 % causal); "softmaxfeat" 1 % at 30 and 8 % at 100, causal only; "softplus" and "elu" none
    (worst row 6e-7 off). None and "count" return the kernel's own size and overflow where it does.

    Raises
    ------
    ValueError
        On shapes that do not fit, a mask that is not boolean (batch, key), more queries than keys in a causal call, offsets with more than
        one batch entry, a window or report that the map or the normaliser cannot have, a scale that is not positive, a state of another
        shape or type, or an unknown normaliser or form.
    """
    _check(q, k, v, flag(is_causal, "is_causal"), key_mask)
    _check_map(feature_map, q.shape[1], k.shape[1])
    if normalise not in (*_NORMALISE, "default"):
        raise ValueError(f"normalise must be one of {_NORMALISE}, got {normalise!r}")
    how = ("rms" if feature_map.signed else "sum") if normalise == "default" else normalise
    _check_report(report, how)
    choice = _Choice(is_causal, None if window is None else as_count(window, "window"), form, flag(return_state, "return_state"))
    _check_choice(choice, feature_map, how, q, k, state)
    ends = None if cu_seqlens is None else _ends(cu_seqlens, q, k)
    _check_state(state, q, v, feature_map, choice.window, q.shape[0] if ends is None else len(ends) - 1)
    root = math.sqrt(q.shape[-1] ** -0.5 if scale is None else positive(scale, "scale"))
    apart = window is not None or report is not None
    call = Call(feature_map, root, _dtype(q, k, v, feature_map, state), "part" if apart else how, as_count(chunk_size, "chunk_size"))
    with torch.autocast(q.device.type, enabled=False):
        x = Inputs(q, k, _dropped(v, dropout, generator, call.dtype), key_mask, state)
        each = partial(filled, partial(_rows, call, choice))
        rows, after = each(x) if ends is None else packed(each, x, ends)
        out = _divided(call._replace(normalise=how), rows, report) if apart else rows
    return (out.to(v.dtype), after) if return_state else out.to(v.dtype)


class _Choice(NamedTuple):
    """What is computed, and how."""

    is_causal: bool
    window: int | None
    form: str
    return_state: bool


def _rows(call: Call, choice: _Choice, x: Inputs) -> tuple[Tensor, Any]:
    """Rows and state of inputs that have at least a query and a key."""
    x = x._replace(positions=_positions(x, choice.is_causal)) if getattr(call.feature_map, "positional", False) else x
    if choice.window is None and x.q.shape[2] == 1:
        choice = choice._replace(is_causal=False)  # one row sees every key
    finite = None if x.key_mask is None else x.q.isfinite().all(-1, keepdim=True)
    x = x if finite is None else x._replace(q=x.q.where(finite, 0))
    alike = not choice.is_causal and choice.window is None
    rows, after = grouped(partial(_by_form, call, choice), x, call.feature_map.omega.shape[0], alike=alike)
    return rows if finite is None else rows.where(finite, math.nan), after


def _positions(x: Inputs, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Of queries and keys, (batch, time); filling stands where the last token does."""
    batch, queries, keys = x.q.shape[0], x.q.shape[2], x.k.shape[2]
    key = torch.arange(keys, device=x.k.device).expand(batch, keys)
    start = 0 if x.state is None else x.state.position[:, None]
    key = start + (key if x.length is None else torch.minimum(key, (x.length[:, None] - 1).clamp(min=0)))
    return key[:, keys - queries :] if is_causal else torch.arange(queries, device=x.q.device).expand(batch, queries), key


def _by_form(call: Call, choice: _Choice, x: Inputs) -> tuple[Tensor, Any]:
    matrix = choice.form == "quadratic" or (choice.form == "auto" and _is_short(call, choice, x))
    if choice.window is not None:
        return windowed(call, x, choice.window, is_causal=choice.is_causal, by_matrix=matrix)
    if matrix:
        allowed = None
        if choice.is_causal:
            allowed = torch.ones(x.q.shape[2], x.k.shape[2], dtype=torch.bool, device=x.q.device).tril(x.k.shape[2] - x.q.shape[2])
        return quadratic(call, x, allowed), absorbed(call, x) if choice.return_state else None
    rows, after = attend(call, x.q, x.k, x.v, x.key_mask, x.state, is_causal=choice.is_causal, positions=x.positions)
    return rows, ended(after, x)


def _is_short(call: Call, choice: _Choice, x: Inputs) -> bool:
    """Whether form "auto" is by the matrix of scores. A state needs the sums anyway."""
    if choice.return_state or x.state is not None:
        return False
    return by_matrix(x.q.shape[2], x.k.shape[2], call.feature_map.feature_dim, x.v.shape[-1] + 1, is_causal=choice.is_causal)


def by_matrix(queries: int, keys: int, features: int, values: int, *, is_causal: bool) -> bool:
    """Whether the matrix of scores takes less time than the sums; `values` counts the sum of the kernel as one more."""
    return queries * keys * (features + values) < _SLOWER[is_causal] * (queries + keys) * features * values


def _divided(call: Call, part: Tensor, report: dict[str, Tensor] | None) -> Tensor:
    """Rows from their part, and the report of their divisors."""
    total, log_scale = part[..., :-1], part[..., -1]
    if report is not None:
        report["denominator"] = by = total[..., -1].detach()
        report["nonpositive"] = (by <= call.least)[log_scale > -math.inf].to(by.dtype).mean()
    return normalised(call, total, log_scale, log_scale)


def _dropped(v: Tensor, dropout: float, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
    """Values of which whole keys are dropped."""
    if not isinstance(generator, torch.Generator | None):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
    if dropout == 0:
        return v
    if not 0 <= real(dropout, "dropout") < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
    kept = torch.rand(v.shape[:3], generator=generator, device=v.device) >= dropout
    return v.to(dtype).where(kept[..., None], 0) / (1 - dropout)


def _dtype(q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap, state: State | WindowState | None) -> torch.dtype:
    far = state.far if isinstance(state, WindowState) else state
    dtype = torch.float32
    for tensor in (q, k, v, feature_map.omega, *(() if far is None else far[:3])):
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _check(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, key_mask: Tensor | None) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 4 or not tensor.is_floating_point() or 0 in (tensor.shape[1], tensor.shape[3]):
            raise ValueError(f"{name} must be float (batch, head, time, dim) with heads and dimensions, got {described(tensor)}")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(f"k must have q's batch and dim, and heads that divide q's, got k {tuple(k.shape)} and q {tuple(q.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have k's batch, head and time, got v {tuple(v.shape)} and k {tuple(k.shape)}")
    if is_causal and q.shape[2] > k.shape[2]:
        raise ValueError(f"a causal q must not be longer than k, got {q.shape[2]} queries and {k.shape[2]} keys")
    if key_mask is None:
        return
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool or key_mask.shape != (k.shape[0], k.shape[2]):
        raise ValueError(
            f"key_mask must be bool (batch, key) = {(k.shape[0], k.shape[2])}, got {described(key_mask)}; "
            "linear attention cannot take a mask of single query-key pairs"
        )


def _check_map(feature_map: FeatureMap, heads: int, kv_heads: int) -> None:
    if not isinstance(feature_map, torch.nn.Module) or not hasattr(feature_map, "omega"):
        raise ValueError(f"feature_map must be a FeatureMap, got {feature_map!r}")
    sets = feature_map.omega.shape[0]
    if sets != 1 and sets != kv_heads and sets != heads:  # `in` is beyond torch.compile here
        raise ValueError(f"feature_map must have particles for 1, {kv_heads} (key) or {heads} (query) heads, got {sets}")


def _check_report(report: Any, how: str | None) -> None:
    if report is None:
        return
    if not isinstance(report, dict):  # `dict | None` is beyond torch.compile
        raise ValueError(f"report must be a dict or None, got {report!r}")
    if how != "sum":
        raise ValueError(f"report is of the divisors of normalise='sum', got normalise={how!r}")


def _check_choice(choice: _Choice, feature_map: FeatureMap, how: str | None, q: Tensor, k: Tensor, state: Any) -> None:
    if choice.form not in _FORMS:
        raise ValueError(f"form must be one of {_FORMS}, got {choice.form!r}")
    if choice.window is None:
        return
    if feature_map.signed or how != "sum":
        what = f"signed={feature_map.signed} and normalise={how!r}"
        raise ValueError(f"window needs a positive feature_map and normalise='sum', under which its weights add up to 1, got {what}")
    if not choice.is_causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"window of a bidirectional call needs as many queries as keys, got {q.shape[2]} and {k.shape[2]}")
    if not choice.is_causal and (state is not None or choice.return_state):
        raise ValueError("window of a bidirectional call has no state, got state or return_state")


def _ends(cu_seqlens: Tensor, q: Tensor, k: Tensor) -> list[int]:
    """The offsets as a list."""
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.ndim != 1 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"cu_seqlens must be offsets, int32 or int64 (sequences + 1,), got {described(cu_seqlens)}")
    if q.shape[0] != 1 or q.shape[2] != k.shape[2]:
        raise ValueError(f"cu_seqlens needs one batch entry and as many queries as keys, got q {tuple(q.shape)} and k {tuple(k.shape)}")
    ends = cu_seqlens.tolist()
    if len(ends) < 2 or ends[0] != 0 or ends[-1] != q.shape[2] or ends != sorted(ends):
        raise ValueError(f"cu_seqlens must rise from 0 to {q.shape[2]}, got {ends}")
    return ends


def _check_state(state: Any, q: Tensor, v: Tensor, feature_map: FeatureMap, window: int | None, batch: int) -> None:
    kind = State if window is None else WindowState
    if not isinstance(state, kind | None):
        raise ValueError(f"state must be a {kind.__name__} or None, got a {type(state).__name__}")
    if state is None:
        return
    heads = q.shape[1] if feature_map.omega.shape[0] == q.shape[1] else v.shape[1]
    lead = (batch, heads, feature_map.feature_dim)
    shapes = ((*lead, v.shape[-1]), lead, lead[:2], lead[:1], lead[:1])
    fields = list(zip(State._fields, state.far if isinstance(state, WindowState) else state, shapes))
    if window is not None:
        recent = ((batch, heads, window, q.shape[3]), (batch, heads, window, v.shape[3]), (batch, window))
        fields += list(zip(WindowState._fields[1:], state[1:], recent))
    for name, field, shape in fields:
        if not isinstance(field, Tensor) or field.shape != shape:
            raise ValueError(f"state must have {name} of shape {shape}, got {described(field)}")
        dtype = torch.bool if name == "mask" else torch.int64 if name in ("count", "position") else None
        if field.dtype != dtype and (dtype is not None or not field.is_floating_point()):
            raise ValueError(f"state must have {name} of type {dtype or 'float'}, got {described(field)}")
