"""Learning rates of the reference tables: what part `rates` of each experiment found, on seeds that are in no table.

Of 0.001, 0.003 and 0.01 on a part of the training data (3,000 sequences, 80,000 tokens); 0.0003 or 0.03 too where the best was the first
or last of them. Language models of whole texts want smaller steps, so 0.002, 0.005 and 0.01 were compared at the tables' own length, but
for the literal rows and the nonstationary one. Rows that are not named have the preset's `lr`.
"""

from __future__ import annotations

from collections.abc import Mapping


def by_family(found: Mapping[str, Mapping[float, tuple[str, ...]]]) -> dict[str, float]:
    """{TASK/FAMILY: rate} of {task: {rate: families}}."""
    return {f"{task}/{family}": rate for task, rates in found.items() for rate, families in rates.items() for family in families}


LONG_RANGE = by_family(
    {
        "listops": {0.001: ("rfa", "flexformer, literal", "flexformer-nonstationary, literal")},
        "text": {
            0.01: ("softmax", "polaformer", "softmaxfeat"),
            0.001: ("rfa", "cosformer", "soft", "flexformer-nonstationary"),
            0.0003: ("flexformer", "flexformer, literal"),
        },
        "retrieval": {0.01: ("rfa",), 0.001: ("flexformer, literal",)},
        "image": {
            0.01: ("favor", "rfa", "cosformer", "hedgehog", "polaformer", "soft", "flexformer-nonstationary", "exponential"),
            0.001: ("flexformer-nonstationary, literal",),
        },
    }
)
LANGUAGE_MODELLING = by_family(
    {
        "shakespeare": {
            0.005: ("rfa", "cosformer", "hedgehog", "softmaxfeat", "exponential"),
            0.003: ("flexformer, literal",),
            0.002: ("softmax",),
            0.001: ("flexformer-nonstationary, literal",),
        },
        "wikitext2": {0.001: ("flexformer, literal", "flexformer-nonstationary, literal")},
    }
)
