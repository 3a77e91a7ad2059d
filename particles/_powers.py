"""Logarithms and real powers that LLVM can vectorise: no call of libm, no branch, no table.

log2 by the series of artanh about 1, 2^t by its Taylor series about 0, both after the exponent's bits are taken off. The functions are
for normal positive numbers of float32 or float64 and err by a few units in the last place; they are inlined where they are called.
Reassociation stays off here: (p e - k) + r must be added in that order.
"""

from __future__ import annotations

import math
import typing

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_EXACT = {"error_model": "numpy", "fastmath": {"contract", "arcp"}, "forceinline": True, "nogil": True}
_LN2 = math.log(2.0)
_EXPONENT = {types.float64: (64, 52, 1023), types.float32: (32, 23, 127)}  # bits, bits of the mantissa, bias


def _series(double: tuple[float, ...], single: tuple[float, ...]):
    """An intrinsic x -> sum_k c_k x^k in the precision of x."""

    @intrinsic
    def evaluate(typing_context, x):
        coefficients = double if x == types.float64 else single

        def codegen(context, builder, signature, arguments):
            kind = arguments[0].type
            total = ir.Constant(kind, coefficients[-1])
            for c in reversed(coefficients[:-1]):
                total = builder.fadd(builder.fmul(total, arguments[0]), ir.Constant(kind, c))
            return total

        return x(x), codegen

    return evaluate


_artanh = _series(*(tuple(2 / (_LN2 * (2 * k + 1)) for k in range(terms)) for terms in (10, 5)))  # artanh(z) / z in z^2, in units of log2
_exp2 = _series(*(tuple(_LN2**k / math.factorial(k) for k in range(terms)) for terms in (14, 8)))


@intrinsic
def _split(typing_context, x):
    """(e, m) with x = m 2^e, m in [1/sqrt(2), sqrt(2)), both floating point."""
    bits, mantissa, bias = _EXPONENT[x]

    def codegen(context, builder, signature, arguments):
        number, integer, word = arguments[0].type, ir.IntType(bits), ir.IntType(32)
        raw = builder.bitcast(arguments[0], integer)
        root = int(math.sqrt(0.5) * 2 ** (mantissa + 1)) + ((bias - 2) << mantissa)  # the bits of sqrt(1/2)
        shifted = builder.sub(raw, ir.Constant(integer, root - (bias << mantissa)))
        shifted = builder.lshr(shifted, ir.Constant(integer, mantissa))
        low = builder.trunc(shifted, word) if bits > 32 else shifted
        exponent = builder.sitofp(builder.sub(low, ir.Constant(word, bias)), number)
        excess = builder.shl(builder.sub(shifted, ir.Constant(integer, bias)), ir.Constant(integer, mantissa))
        return context.make_tuple(builder, signature.return_type, [exponent, builder.bitcast(builder.sub(raw, excess), number)])

    return types.UniTuple(x, 2)(x), codegen


@intrinsic
def _scale(typing_context, k):
    """2^k for a whole number k, 0 where it is below the normal numbers and infinity above."""
    bits, mantissa, bias = _EXPONENT[k]

    def codegen(context, builder, signature, arguments):
        number, integer, word = arguments[0].type, ir.IntType(bits), ir.IntType(32)
        low, high = ir.Constant(number, -bias), ir.Constant(number, bias + 1)
        k = arguments[0]
        k = builder.select(builder.fcmp_ordered("<", k, low), low, k)
        k = builder.select(builder.fcmp_ordered(">", k, high), high, k)
        whole = builder.add(builder.fptosi(k, word), ir.Constant(word, bias))
        wide = builder.zext(whole, integer) if bits > 32 else whole
        return builder.bitcast(builder.shl(wide, ir.Constant(integer, mantissa)), number)

    return k(k), codegen


@njit(**_EXACT)
@typing.no_type_check
def log2(x, one):
    """The binary logarithm; one is 1 in the type of x."""
    exponent, m = _split(x)
    z = (m - one) / (m + one)
    return exponent + z * _artanh(z * z)


@njit(**_EXACT)
@typing.no_type_check
def power(x, high, low, one, half):
    """x^(high + low), low the part of the exponent that is lost when it is rounded to `high` (see `halves`); one and half are 1 and 1/2."""
    exponent, m = _split(x)
    z = (m - one) / (m + one)
    rest = (high + low) * (z * _artanh(z * z)) + low * exponent
    whole = np.floor(high * exponent + rest + half)
    return _scale(whole) * _exp2((high * exponent - whole) + rest)


def halves(exponent: float, dtype: typing.Any) -> tuple[typing.Any, typing.Any]:
    """(high, low) of `power`: high has few enough digits that its product with the exponent of any number is exact."""
    digits = 36 if dtype == "float64" else 9
    high = round(exponent * 2**digits) / 2**digits
    return dtype.type(high), dtype.type(exponent - high)
