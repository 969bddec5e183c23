"""A problem with what a user wrote, as a value that checks return and conditions report."""

from dataclasses import dataclass

from shardwright.api.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong or not covered.

    A blocking problem makes `Accepted` false and keeps the last good plan running. One that does not block
    is told in a condition while the service runs: PlanNotCovered in `Planned`, any other in `Accepted`.
    """

    reason: Reason
    message: str
    """A sentence that says what to write instead. It does not begin with `field`: whoever shows it does."""
    field: str = ""
    """Path in the resource, such as spec.engine.args[2]."""
    blocking: bool = True
