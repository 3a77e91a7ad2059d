"""The mean-field (McKean-Vlasov) limit on meshes: flow in time, stationary states, free energy and its dissipation."""

from __future__ import annotations

from theory.mean_field.disc import Disc
from theory.mean_field.flow import Flow
from theory.mean_field.meshes import Axis, Interval, Mesh, Rectangle
from theory.mean_field.radial import RadialBall
from theory.mean_field.solver import MeanField
from theory.mean_field.stationary import Stationary
from theory.mean_field.trapped_gas import RadialGas, radial_gas, tail_bound

__all__ = [
    "Axis",
    "Disc",
    "Flow",
    "Interval",
    "MeanField",
    "Mesh",
    "RadialBall",
    "RadialGas",
    "Rectangle",
    "Stationary",
    "radial_gas",
    "tail_bound",
]
