"""Dashed contours that keep clear of each other: laid out at random and painted, in compiled code.

A contour is a chain of steps, a dash and a gap each; it is checked at points that lie a sixth of a step apart.
"""

from __future__ import annotations

import math
import typing

import numpy as np
from numba import njit

STARTS, TURNS = 60, 12  # places where a contour may start, angles that its next dash tries
POINTS = 6  # of a step
NEAR = 2 * POINTS  # points of its own contour that a new one may be close to
FINE = 4  # a pixel's brightness is the share of so many squared points in it


@njit(cache=True)
@typing.no_type_check
def lay_out(rng, lengths, size, dash, gap, margin, apart, clearance, turn, balance, tries):
    """Starts of all dashes (n, 2), their angles (n,), the places of the two discs, and the label, -1 after so many failures.

    A drawing does not depend on its label, which only says at which contour's end the second disc lies.
    """
    n = lengths.sum()
    starts, angles, ends = np.empty((n, 2)), np.empty(n), np.empty((len(lengths), 2, 2))
    points = np.empty((n * POINTS + len(lengths), 2))
    for _ in range(tries):
        used, dashes, turned = 0, 0, 0
        for c in range(len(lengths)):
            last = dashes + lengths[c]
            n = _place(rng, starts[dashes:last], angles[dashes:last], points, used, size, dash, gap, margin, clearance, turn)
            ends[c, 0], ends[c, 1] = points[used], points[n - 1]
            used, dashes = n, last
            if c == 1:
                turned = _balanced(int(2 * rng.random()), ends, apart, balance)
            if used == 0 or turned < 0:
                break
        if used > 0 and turned >= 0:
            label, one = int(2 * rng.random()), int(2 * rng.random())  # one: the long contour with the first disc
            other = one if label == 1 else 1 - one
            return starts, angles, ends[one, turned * one], ends[other, 1 - turned * other], label
    return starts, angles, ends[0, 0], ends[0, 1], -1


@njit(cache=True)
@typing.no_type_check
def _balanced(turned, ends, apart, balance):
    """Whether the second contour is to be turned round (0, 1), so that the discs' distances are alike for both labels; -1: they aren't.

    The first ends of both contours and the last ends of both are where discs may be. Label 1 takes two of one contour, label 0 of both.
    """
    for _ in range(2):
        same = _distance(ends[0, 0], ends[0, 1]), _distance(ends[1, 0], ends[1, 1])
        other = _distance(ends[0, 0], ends[1, 1 - turned]), _distance(ends[1, turned], ends[0, 1])
        near, far = abs(min(same) - min(other)), abs(max(same) - max(other))
        if min(min(same), min(other)) >= apart and max(near, far) <= balance:
            return turned
        turned = 1 - turned
    return -1


@njit(cache=True)
@typing.no_type_check
def _place(rng, starts, angles, points, used, size, dash, gap, margin, clearance, turn):
    """A contour after ``used`` points of others, wherever there is room; how many points there are then, 0 if it found none."""
    for _ in range(STARTS):
        n = _grow(rng, starts, angles, points, used, size, dash, gap, margin, clearance, turn)
        if n > 0:
            return n
    return 0


@njit(cache=True)
@typing.no_type_check
def _grow(rng, starts, angles, points, used, size, dash, gap, margin, clearance, turn):
    """One contour after ``used`` points of others; how many points there are then, 0 if it got stuck."""
    points[used, 0], points[used, 1] = margin + (size - 2 * margin) * rng.random(), margin + (size - 2 * margin) * rng.random()
    if not _free(points, used, used, size, margin, clearance):
        return 0
    n, angle = used + 1, 2 * math.pi * rng.random()
    for k in range(len(angles)):
        length = dash + (gap if k < len(angles) - 1 else 0.0)
        found = False
        for _ in range(TURNS):
            angles[k] = angle + turn * (2 * rng.random() - 1)
            if _step(points, used, n, angles[k], length, size, margin, clearance):
                found = True
                break
        if not found:
            return 0
        starts[k], angle = points[n - 1], angles[k]
        n += POINTS
    return n


@njit(cache=True)
@typing.no_type_check
def _step(points, used, n, angle, length, size, margin, clearance):
    """Add the points of a step in this direction; whether all of them are free."""
    for i in range(POINTS):
        along = length * (i + 1) / POINTS
        points[n + i, 0] = points[n - 1, 0] + along * math.cos(angle)
        points[n + i, 1] = points[n - 1, 1] + along * math.sin(angle)
        if not _free(points, used, n + i, size, margin, clearance):
            return False
    return True


@njit(cache=True)
@typing.no_type_check
def _free(points, used, n, size, margin, clearance):
    """Whether point n lies inside and clear of other contours (points before ``used``) and of its own, but for the nearest ones."""
    x, y = points[n, 0], points[n, 1]
    if min(x, y) < margin or max(x, y) > size - margin:
        return False
    for i in range(max(used, n - NEAR)):  # noqa: SIM110 (compiled)
        if (points[i, 0] - x) ** 2 + (points[i, 1] - y) ** 2 < clearance**2:
            return False
    return True


@njit(cache=True)
@typing.no_type_check
def _distance(a, b):
    return math.hypot(a[0] - b[0], a[1] - b[1])


@njit(cache=True)
@typing.no_type_check
def paint(image, starts, angles, dash, thickness, contrast, scale):
    """Dashes, as bright as the share of a pixel that they cover times the contrast, 1 at most."""
    for k in range(len(angles)):
        across = dash * math.cos(angles[k]), dash * math.sin(angles[k])
        _stroke(image, starts[k, 0], starts[k, 1], across[0], across[1], thickness / 2, contrast, scale)


@njit(cache=True)
@typing.no_type_check
def disc(image, centre, radius, scale):
    """A disc of brightness 1."""
    _stroke(image, centre[0], centre[1], 0.0, 0.0, radius, 1.0, scale)


@njit(cache=True)
@typing.no_type_check
def _stroke(image, x, y, across, down, radius, contrast, scale):
    """All points within ``radius`` of the line from (x, y) by (across, down), over what is there."""
    left, right = scale * (min(x, x + across) - radius), scale * (max(x, x + across) + radius)
    top, bottom = scale * (min(y, y + down) - radius), scale * (max(y, y + down) + radius)
    for row in range(max(0, int(top)), min(len(image), int(bottom) + 1)):
        for column in range(max(0, int(left)), min(len(image), int(right) + 1)):
            covered = 0
            for i in range(FINE * FINE):
                px = (column + (i % FINE + 0.5) / FINE) / scale - x
                py = (row + (i // FINE + 0.5) / FINE) / scale - y
                along = min(1.0, max(0.0, (px * across + py * down) / max(across * across + down * down, 1e-12)))
                covered += math.hypot(px - along * across, py - along * down) <= radius
            image[row, column] = max(image[row, column], min(1.0, contrast * covered / FINE**2))
