"""What three papers and this project claim, each sentence with its figure, the rule that judges it, and the command that measures it.

`CLAIMS` holds them paper by paper; `judge` turns results into verdicts.
"""

from experiments.claims.claim import INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED, VERDICTS, Claim, Outcome, Results, judge

__all__ = ["INCONCLUSIVE", "NOT_REPRODUCED", "NOT_RUN", "REPRODUCED", "VERDICTS", "Claim", "Outcome", "Results", "judge"]
