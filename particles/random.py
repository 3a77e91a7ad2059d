"""Counter-based random numbers: every number is a function of (seed, chain, step, position), so that neither thread count nor
chunking, restart, added chains nor added particles change a run.

Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The 64-bit seed is its key;
the counter is (block within the chain, step, chain, stream), 32 bits each. A `key` here is the tuple (seed, chain, step).
"""

from __future__ import annotations

import math
import typing
from typing import Any

import numpy as np
from numba import njit

from particles.arrays import Array, count, is_torch, namespace

Key = tuple[int, int, int]

# Streams: numbers of one key that serve different purposes are independent.
NOISE, MINIBATCH, VELOCITY, ACCEPTANCE, RESAMPLE, RANDOM_BATCH = range(6)

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_WORD, _32, _5, _6, _26 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(5), np.uint64(6), np.uint64(26)
_ULP = 2.0**-53


@njit(inline="always")
@typing.no_type_check
def _philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox4x32; words are whole numbers below 2^32."""
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(10):
        p0, p1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _WORD, (p0 >> _32) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _WEYL_0) & _WORD, (k1 + _WEYL_1) & _WORD
    return c0, c1, c2, c3


@njit(inline="always")
@typing.no_type_check
def _bits53(high, low):
    """53 random bits from two words, as a whole number in [0, 2^53)."""
    return float(((high >> _5) << _26) | (low >> _6))


@njit(inline="always")
@typing.no_type_check
def _normal_pair(block, step, chain, stream, k0, k1):
    """Two normals of one block by Box and Muller; u in (0, 1], so log(0) cannot occur."""
    a, b, e, f = _philox(block, step, chain, stream, k0, k1)
    radius = math.sqrt(-2.0 * math.log((_bits53(a, b) + 1.0) * _ULP))
    angle = 2.0 * math.pi * _ULP * _bits53(e, f)
    return radius * math.cos(angle), radius * math.sin(angle)


@njit(cache=True, nogil=True)
@typing.no_type_check
def _fill_normal(out, seed, chain, step, stream):
    """Normals over out (chain, number)."""
    n, k0, k1 = out.shape[1], seed & _WORD, seed >> _32
    for c in range(out.shape[0]):
        for block in range((n + 1) // 2):
            first, second = _normal_pair(block, step, chain + c, stream, k0, k1)
            out[c, 2 * block] = first
            if 2 * block + 1 < n:
                out[c, 2 * block + 1] = second


@njit(cache=True, nogil=True)
@typing.no_type_check
def _fill_walk(out, start, slope, eta, sigma, seed, chain, step, stream):
    """out = (start - eta slope) + sigma normal over arrays (chain, number)."""
    n, k0, k1 = out.shape[1], seed & _WORD, seed >> _32
    for c in range(out.shape[0]):
        for block in range((n + 1) // 2):
            i = 2 * block
            first, second = _normal_pair(block, step, chain + c, stream, k0, k1)
            out[c, i] = (start[c, i] - eta * slope[c, i]) + sigma * first
            if i + 1 < n:
                out[c, i + 1] = (start[c, i + 1] - eta * slope[c, i + 1]) + sigma * second


@njit(cache=True, nogil=True)
@typing.no_type_check
def _fill_uniform(out, seed, chain, step, stream):
    """Uniforms in [0, 1) over out (chain, number)."""
    n, k0, k1 = out.shape[1], seed & _WORD, seed >> _32
    for c in range(out.shape[0]):
        for block in range((n + 1) // 2):
            a, b, e, f = _philox(block, step, chain + c, stream, k0, k1)
            out[c, 2 * block] = _ULP * _bits53(a, b)
            if 2 * block + 1 < n:
                out[c, 2 * block + 1] = _ULP * _bits53(e, f)


@njit(cache=True, nogil=True)
@typing.no_type_check
def _shuffle_front(items, u):
    """Fisher-Yates from the front: afterwards items[:u.size] is a uniform ordered choice without replacement."""
    for i in range(u.size):
        j = i + int(u[i] * (items.size - i))
        items[i], items[j] = items[j], items[i]


@njit(cache=True)
@typing.no_type_check
def _block(counter, key):
    """One Philox block: counter (4,) and key (2,) uint64 words below 2^32 -> (4,) words. For the known-answer test."""
    return np.array(_philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1]))


def philox(counter: Any, key: Any) -> np.ndarray:
    """One block of Philox4x32-10: `counter` four 32-bit words, `key` two, gives four words as uint64 array (4,)."""
    return _block(np.asarray(counter, np.uint64), np.asarray(key, np.uint64))


def as_key(key: Any) -> Key:
    """`key` as (seed, chain, step); ValueError unless it is three integers."""
    if not isinstance(key, tuple) or len(key) != 3 or not all(isinstance(part, (int, np.integer)) for part in key):
        raise ValueError(f"key must be the integers (seed, chain, step), got {key!r}")
    return int(key[0]), int(key[1]), int(key[2])


def _words(key: Key, stream: int) -> tuple[np.uint64, int, int, int]:
    """(seed, chain, step, stream) as the kernels take them; ValueError when a part does not fit its counter word."""
    seed, chain, step = key if _plain(key) else as_key(key)
    if not 0 <= seed < 2**64:
        raise ValueError(f"key's seed must lie in [0, 2^64), got {seed!r}")
    if not (0 <= chain < 2**32 and 0 <= step < 2**32 and 0 <= stream < 2**32):
        raise ValueError(f"key's chain and step, and stream, must lie in [0, 2^32), got {chain!r}, {step!r}, {stream!r}")
    return np.uint64(seed), chain, step, stream


def _plain(key: Any) -> bool:
    """Whether the key is what `simulate` makes, three Python ints: seen much faster than `as_key` can check."""
    return type(key) is tuple and len(key) == 3 and type(key[0]) is type(key[1]) is type(key[2]) is int


def normal(key: Key, shape: tuple[int, ...], *, stream: int = NOISE) -> np.ndarray:
    """Independent standard normals, float64, of `shape` (particle, dim) or (chain, particle, dim).

    Chain c of the result is the chain numbered `key[1] + c`; a particle's numbers depend neither on how many chains nor on how many
    particles are drawn. Streams are independent of each other.

    Raises
    ------
    ValueError
        If a part of the key does not fit its word of the counter.
    """
    out = np.empty(shape)
    _fill_normal(out.reshape(shape[0] if len(shape) == 3 else 1, -1), *_words(key, stream))
    return out


def walk(key: Key, omega: np.ndarray, gradient: np.ndarray, eta: float, sigma: float) -> np.ndarray:
    """omega - eta gradient + sigma normal(key, omega.shape) of float64 arrays (chain, particle, dim), the same bits in one pass.

    ValueError if the shapes differ.
    """
    if gradient.shape != omega.shape:
        raise ValueError(f"gradient must have omega's shape {omega.shape}, got {gradient.shape}")
    out = np.empty(omega.shape)
    flat = (len(omega), -1)
    _fill_walk(out.reshape(flat), omega.reshape(flat), gradient.reshape(flat), eta, sigma, *_words(key, NOISE))
    return out


def normal_like(key: Key, omega: Array, *, stream: int = NOISE) -> Array:
    """`normal` of omega's shape in its library, dtype and device: the same numbers everywhere, float32 ones rounded from float64."""
    numbers = normal(key, tuple(omega.shape), stream=stream)
    if is_torch(omega):
        return namespace(omega).as_tensor(numbers, dtype=omega.dtype, device=omega.device)
    return numbers.astype(omega.dtype, copy=False)


def uniform(key: Key, n: int, *, stream: int = MINIBATCH) -> np.ndarray:
    """`n` independent uniforms in [0, 1), float64 (n,), of the chain `key[1]`."""
    return chain_uniform(key, 1, n, stream=stream)[0]


def chain_uniform(key: Key, n_chains: int, n: int, *, stream: int) -> np.ndarray:
    """`uniform` of the chains key[1], key[1] + 1, ..., float64 (chain, n)."""
    out = np.empty((n_chains, count(n, "n", least=0)))
    _fill_uniform(out, *_words(key, stream))
    return out


def choice(key: Key, n: int, size: int, *, stream: int = MINIBATCH) -> np.ndarray:
    """`size` different indices out of 0..n-1 in random order, int64 (size,): a minibatch.

    Raises
    ------
    ValueError
        If `size` exceeds `n`.
    """
    if not 0 <= size <= n:
        raise ValueError(f"size must lie in [0, {n}], got {size!r}")
    items = np.arange(n)
    _shuffle_front(items, uniform(key, size, stream=stream))
    return items[:size]


def companion(key: Key) -> Key:
    """Another key of the same run, independent of those of steps below 2^31: for a second minibatch beside a step's own."""
    seed, chain, step = as_key(key)
    return seed, chain, (step + 2**31) % 2**32


def key_from(rng: Any) -> int:
    """The 64-bit seed of a run: an int passes through, a `numpy.random.Generator` gives one draw.

    Raises
    ------
    ValueError
        For anything else, and for an int outside [0, 2^64).
    """
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    seed = count(rng, "rng", least=0)
    if seed >= 2**64:
        raise ValueError(f"rng must be below 2^64, got {seed}")
    return seed
