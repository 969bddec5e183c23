"""A second opinion of the TPOT that an explanation tells.

Decides that the chosen replica at its planned load is what is asked about. Never changes the decision.
"""

from shardwright.api.defaults import resolve
from shardwright.cli.second_opinion import SOURCE, SecondOpinion, compared
from shardwright.planner.explanation import figures as rounded
from shardwright.planner.explanation.build import Case
from shardwright.planner.explanation.curves import replica_of
from shardwright.planner.explanation.document import Explanation
from shardwright.planner.explanation.document import SecondOpinion as Said
from shardwright.planner.performance.predict import predict
from shardwright.planner.types import NoPlan


def with_second_opinion(found: Explanation, case: Case, python: str) -> Explanation:
    """Return the explanation with what the library in that Python says; as it is without a prediction."""
    if isinstance(case.decision, NoPlan) or found.prediction is None:
        return found
    asked = replica_of(case.decision, resolve(case.spec), case.engine)
    if asked is None:
        return found
    with SecondOpinion(python) as other:
        second = compared(other, asked, predict(asked))
    if isinstance(second, str):
        said = Said(
            source=SOURCE, verdict=None, tpot_ratio=None, tpot_band_low=None, tpot_band_high=None, said=second
        )
    else:
        said = Said(
            source=SOURCE,
            verdict="Agrees" if second.verdict == "Agrees" else "Disagrees",
            tpot_ratio=rounded.two(second.ratio),
            tpot_band_low=rounded.two(second.band.low),
            tpot_band_high=rounded.two(second.band.high),
            said=second.sentence,
        )
    return found.model_copy(
        update={"prediction": found.prediction.model_copy(update={"second_opinion": said})}
    )
