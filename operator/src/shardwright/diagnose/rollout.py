"""What is said of a rollout: how far it is, what it waits for, and of a revision that did not start.

Decides reason and sentence. Never decides what a rollout does.
"""

from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import FailedFacts, RolloutFacts, ServiceFacts
from shardwright.diagnose.trouble import Trouble
from shardwright.diagnose.waiting import approve_command

_REASONS = {
    "Paused": Reason.ROLLOUT_PAUSED,
    "WaitsForRoom": Reason.ROLLOUT_WAITS_FOR_ROOM,
    "WaitsForClaim": Reason.ROLLOUT_WAITS_FOR_ROOM,
}


def under_way(rollout: RolloutFacts | None) -> tuple[Reason, str] | None:
    """Return what a rollout is at, or why it stands still; None when there is none.

    None also when it waits for room whatever the strategy: who holds the GPUs is said of the placement.
    """
    if rollout is None or (rollout.step == "WaitsForRoom" and rollout.strategy == "Auto"):
        return None
    if rollout.step in _REASONS:
        return _REASONS[rollout.step], _why(rollout)
    return Reason.ROLLING_OUT, _progress(rollout)


def _why(rollout: RolloutFacts) -> str:
    which = f"{rollout.from_revision} to {rollout.to_revision}"
    if rollout.step == "Paused":
        return (
            f"spec.rollout.paused holds the rollout from revision {which} where it is, and the replicas of "
            "both serve: write paused: false to go on"
        )
    if rollout.step == "WaitsForClaim":
        return (
            f"The claim {rollout.claim} can be mounted on one node only, and strategy {rollout.strategy} "
            "ends no old replica before a new one answers: write spec.rollout.strategy: Auto, or use a "
            "ReadWriteMany claim"
        )
    if rollout.max_gpus:
        return (
            f"The rollout from revision {which} waits: pool.maxGPUs holds no new replica beside the old, "
            f"and strategy {rollout.strategy} gives none of those up first: write pool.maxGPUs "
            f"{rollout.max_gpus}, or spec.rollout.strategy: InPlace"
        )
    gpus, each = rollout.missing_gpus, rollout.gpus_per_replica
    size = f"{gpus} free GPU{'s' if gpus > 1 else ''}"
    where = f", {each} on one node for each replica" if each > 1 else ""
    if rollout.strategy == "InPlace":
        more = "those that the old revision gives up are not such: free or add them"
    else:
        more = (
            f"strategy {rollout.strategy} gives no old replica up first: free or add them, or write "
            "spec.rollout.strategy: InPlace"
        )
    return f"The rollout from revision {which} waits for {size}{where}, and {more}; it goes on by itself then"


def _progress(rollout: RolloutFacts) -> str:
    """Return what a rollout is at, without counts."""
    if rollout.claim:
        return ends_first(rollout.claim)
    at = {
        "Starting": "the new replicas load the model, and the old ones serve until those answer",
        "Retiring": "the new replicas answer or wait for the GPUs of the old ones, which leave",
        "Fetching": "a Job fetches the weights, and the old replicas serve meanwhile",
        "Canary": f"a part of the new replicas serves and is judged, {rollout.canary}",
    }.get(rollout.step, "older replicas still serve")
    new, old = rollout.to_revision, rollout.from_revision
    return f"Revision {new} takes the place of {old} ({rollout.strategy}): {at}"


def ends_first(claim: str) -> str:
    """Say why nobody serves during a rollout."""
    return (
        f"The claim {claim} can be mounted on one node only, so the old replica ends before the new one "
        "starts: a ReadWriteMany claim lets it serve meanwhile. If it cannot end since its node is lost, "
        "delete that Node"
    )


def cause_of(failed: FailedFacts) -> Trouble:
    """Return why a revision was given up, as a trouble that stays until the spec changes."""
    try:
        reason = Reason(failed.failed.reason)
    except ValueError:  # of a later version
        reason = Reason.CRASH_LOOP
    message = f"Revision {failed.revision} {_fault(failed)}: {failed.failed.message}"
    return Trouble(reason=reason, message=message)


def _fault(failed: FailedFacts) -> str:
    return "was given up" if failed.failed.reason == Reason.CANARY_WORSE else "did not start"


def given_up(facts: ServiceFacts, failed: FailedFacts) -> str:
    """Return what was given up and why, what runs in its place and how it is tried again."""
    command = approve_command(facts.namespace, facts.name)
    again = f"run {command} --clear" if failed.approved else f"run {command} --revision {failed.revision}"
    why, fault = failed.failed.message.rstrip("."), _fault(failed)
    fault += " and was given up" if fault == "did not start" else ""
    return (
        f"Revision {failed.revision} ({failed.summary}) {fault} ({failed.failed.reason}: {why}). Revision "
        f"{failed.back_to} serves on, and the other is not tried again as it is: correct the spec, or "
        f"{again} once what it lacked is there"
    )
