"""One ListOps tree, drawn and evaluated token by token in compiled code."""

from __future__ import annotations

import typing

import numpy as np
from numba import njit

LIST = 0.25  # probability that a node is a list
DIGIT, OPERATOR, CLOSE = 2, 12, 16  # token numbers: of digit 0, of the first operator, of the closing bracket


@njit(cache=True)
@typing.no_type_check
def draw_tree(rng, tokens, min_length, max_length, max_depth, max_args, tries):
    """Write a tree whose length lies strictly between the bounds into ``tokens`` and return its value; -1 after so many failures."""
    operators, members = np.empty(max_depth, np.int64), np.empty(max_depth, np.int64)
    found = np.empty((max_depth, 10), np.int64)
    for _ in range(tries):
        length, value = _attempt(rng, tokens, max_length, max_depth, max_args, operators, members, found)
        if min_length < length < max_length:
            tokens[length:] = 0
            return value
    return -1


@njit(cache=True)
@typing.no_type_check
def _attempt(rng, tokens, max_length, max_depth, max_args, operators, members, found):
    """(length, value) of a new tree in ``tokens``; (0, 0) as soon as it is too long. The root is a list: a lone digit is never kept."""
    length, level = 0, 0  # level: lists that are open
    while length < max_length:
        if level == 0 or (level + 1 < max_depth and rng.random() < LIST):
            operators[level], members[level], found[level] = int(4 * rng.random()), 2 + int((max_args - 1) * rng.random()), 0
            tokens[length] = OPERATOR + operators[level]
            length, level = length + 1, level + 1
            continue
        value = int(10 * rng.random())
        tokens[length] = DIGIT + value
        length += 1
        while level > 0:
            found[level - 1, value] += 1
            members[level - 1] -= 1
            if members[level - 1] > 0:
                break
            if length == max_length:
                return 0, 0
            level -= 1
            value = _value(operators[level], found[level])
            tokens[length] = CLOSE
            length += 1
        if level == 0:
            return length, value
    return 0, 0


@njit(cache=True)
@typing.no_type_check
def _value(operator, found):
    """The value of a list from how often each digit is in it."""
    if operator == 3:
        return (found * np.arange(10)).sum() % 10
    n = found.sum()
    if operator == 0:
        return _ranked(found, 0)
    if operator == 1:
        return _ranked(found, n - 1)
    return (_ranked(found, (n - 1) // 2) + _ranked(found, n // 2)) // 2


@njit(cache=True)
@typing.no_type_check
def _ranked(found, rank):
    """The digit with so many digits before it in sorted order."""
    for digit in range(10):
        rank -= found[digit]
        if rank < 0:
            return digit
    return 9
