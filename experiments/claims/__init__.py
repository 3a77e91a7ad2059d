"""What three papers and this project claim, each sentence with its figure, the rule that judges it, and the command that measures it.

`CLAIMS` holds them by paper; `judge` turns results into verdicts.
"""

from experiments.claims import coulomb, flexformer, kernelgas, soft, synthetic, theory
from experiments.claims.claim import INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED, VERDICTS, Claim, Outcome, Results, judge

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "Coulomb particle model": (*coulomb.CLAIMS, *synthetic.CLAIMS, *theory.CLAIMS),
    "Flexformer": flexformer.CLAIMS,
    "SOFT": soft.CLAIMS,
    "kernelgas": kernelgas.CLAIMS,
}

__all__ = ["CLAIMS", "INCONCLUSIVE", "NOT_REPRODUCED", "NOT_RUN", "REPRODUCED", "VERDICTS", "Claim", "Outcome", "Results", "judge"]
