"""Densities in a disc, radial or not: a mesh of `MeanField` whose cells are sectors of rings."""

from __future__ import annotations

import numpy as np
import scipy.fft

from theory.arrays import FloatArray, count, positive
from theory.mean_field.meshes import Axis, Function, evaluate
from theory.mean_field.ring_averages import ring_averages
from theory.mean_field.shell_averages import gauss_in_shells

__all__ = ["Disc", "DiscConvolution"]


class Disc:
    """n_r rings of equal width around the origin, each of n_angle equal cells, within a wall at `radius`; V takes positions (..., 2).

    Conductances are those with which the discrete Laplacian is exact for the cell averages of 1, x, y and |x|^2: diffusion alone
    moves no mean and lets the second moment grow by its exact rate.

    Parameters
    ----------
    radius, n_r, n_angle
        At least 3 rings and 3 angles.

    Attributes
    ----------
    edges
        Radii of the circles between the rings, (n_r + 1,).
    angle
        Angles of the middles of the cells, (n_angle,), from half a cell on.
    centres
        Centroids of the cells, (n_r, n_angle, 2): sums of volume rho centres are the means of a piecewise constant density.
    """

    def __init__(self, radius: float, n_r: int, n_angle: int):
        self.radius = positive(radius, "radius")
        self.shape = count(n_r, "n_r", least=3), count(n_angle, "n_angle", least=3)
        self.width, self.step = self.radius / n_r, 2 * np.pi / n_angle
        self.edges = self.width * np.arange(n_r + 1.0)
        self.angle = self.step * (np.arange(n_angle) + 0.5)
        middle = np.arange(n_r + 1) + 0.5  # of the rings, and of one beyond the wall
        mean = middle + 1 / (12 * middle)  # of the radius over the ring; both in units of the width
        self.volume = (self.width**2 * self.step * middle[:-1])[:, None]
        centroid = self.width * mean[:-1] * np.sinc(self.step / (2 * np.pi))
        self.centres = centroid[:, None, None] * np.stack([np.cos(self.angle), np.sin(self.angle)], axis=-1)
        radial = self.step * np.arange(1.0, n_r + 1)
        across = np.diff(radial * np.diff(mean), prepend=0.0)  # what the angular faces must take of a linear function
        self.axes = (Axis(radial[:-1, None]), Axis((across / (4 * mean[:-1] * np.sin(self.step / 2) ** 2))[:, None], periodic=True))

    def cell_average(self, function: Function, name: str = "function") -> FloatArray:
        """Averages (n_r, n_angle) over the cells, by five Gauss points in radius and angle; the function gets (n_r n_angle, 2)."""
        node, weight = gauss_in_shells(self.edges, 2, 5)
        turn, weight_turn = np.polynomial.legendre.leggauss(5)
        total = np.zeros(self.shape)
        for r, weight_r in zip(node.T, weight.T):
            for u, weight_u in zip(turn, weight_turn / 2):
                angle = self.angle + self.step / 2 * u
                at = (r[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)).reshape(-1, 2)
                total += weight_u * weight_r[:, None] * evaluate(function, at, name, (len(at),)).reshape(self.shape)
        return total

    def convolution(self, interaction: Function) -> DiscConvolution:
        """By FFT in the angle; the averages over pairs of cells are exact to about 1e-11."""
        return DiscConvolution(self, interaction)

    def integral(self, values: FloatArray) -> float:
        """Sum of values (n_r, n_angle) times volumes."""
        return float(np.sum(self.volume * values))


class DiscConvolution:
    """Convolution on a disc: `kernel` (n_r, n_r, n_angle // 2 + 1) holds the averages of g over pairs of cells at each offset in angle.

    Two arrays of that size are kept: 4 MiB at 64 x 128, 32 MiB at 128 x 256. One potential costs n_r^2 n_angle operations.
    """

    def __init__(self, mesh: Disc, interaction: Function):
        n_r, self.n_angle = mesh.shape
        self.kernel = ring_averages(interaction, n_r, self.n_angle, mesh.width)
        offset = np.arange(self.n_angle)
        around = self.kernel[..., np.minimum(offset, self.n_angle - offset)] * mesh.volume[None]
        self._spectrum = np.ascontiguousarray(np.moveaxis(scipy.fft.rfft(around).real, -1, 0))  # (wave, n_r, n_r)

    def __call__(self, rho: FloatArray) -> FloatArray:
        """The potential (n_r, n_angle) of rho."""
        wave = scipy.fft.rfft(rho, axis=1).T
        parts = self._spectrum @ np.stack([wave.real, wave.imag], axis=-1)
        return scipy.fft.irfft((parts[..., 0] + 1j * parts[..., 1]).T, self.n_angle, axis=1)

    @property
    def matrix(self) -> FloatArray:
        """Not formed in two dimensions."""
        raise NotImplementedError("the interaction matrix is formed on one-dimensional meshes only")
