"""What is said of a Job that fetches weights: what is waited for, and why it fails.

Decides reason and sentence from the Job's state and the last words of its pod, which end with a word of ours
(`render.fetch_script`). Never repeats other words of a log: they change, and may hold what is secret.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.api.reasons import ConditionType, Reason
from shardwright.api.status import Condition
from shardwright.diagnose.facts import FetchFacts, PodTrouble
from shardwright.diagnose.trouble import BENIGN, EXITS, Trouble, trouble_of

_WORD: Final = re.compile(r"shardwright fetch: (\w+)")
_SENTENCES: Final = MappingProxyType(
    {
        Reason.HUB_UNAUTHORIZED: (
            "the hub refuses the model: check spec.model.id, accept the licence on the model's page with the "
            "account that the token belongs to, and name that token in "
            "spec.model.source.hub.tokenSecretRef"
        ),
        Reason.HUB_RATE_LIMITED: (
            "the hub limits the rate of downloads, and is asked again when it says so, else ever less often "
            "up to every five minutes: a token in spec.model.source.hub.tokenSecretRef has a higher limit, "
            "and a mirror in spec.model.source.hub.endpoint none"
        ),
        Reason.HUB_UNAVAILABLE: (
            "the hub does not answer, or with an error of its own, and is asked again by itself: if it "
            "lasts, look at the way out of the cluster (a proxy's variables go into spec.engine.env), or "
            "name a mirror in spec.model.source.hub.endpoint"
        ),
        Reason.MODEL_NOT_FOUND: (
            "the hub has no such repository or revision, or does not show it to the token: correct "
            "spec.model.id or spec.model.revision"
        ),
        Reason.CACHE_FULL: (
            "the claim has no room for the weights: enlarge it, or delete from it what no service uses"
        ),
        Reason.FETCH_FAILED: "it ended with an error: look at its last output with kubectl logs job/",
    }
)


def waits_for(facts: FetchFacts) -> str:
    """Say what engines wait for, since when and for how long at most."""
    since = f", since {facts.since}" if facts.since else ""
    return (
        f"The weights are fetched once into the claim {facts.claim} by the Job {facts.job}{since} and for at "
        f"most {facts.minutes} minutes: the engines start when it has ended. {_describe(facts)}"
    )


def fetch_trouble(facts: FetchFacts, previous: Iterable[Condition]) -> Trouble | None:
    """Return what is wrong with a Job; None while nothing is.

    With a Job that gives up Kubernetes removes its pod, and so the last words: the last status has them.
    """
    if facts.trouble is not None and facts.trouble.reason not in BENIGN:
        return _of_pod(facts, facts.trouble)
    if not facts.ended:
        return None
    told = next((c for c in previous if c.type == ConditionType.DEGRADED and c.status == "True"), None)
    if told is not None and told.message.startswith(_who(facts.job)):
        return Trouble(reason=_reason(told.reason), message=told.message)
    if facts.ended == "DeadlineExceeded":
        slow = f"it was not done in {facts.minutes} minutes, and the next one goes on where it stopped"
        message = f"{_who(facts.job)}: {slow}. {_describe(facts)}. {_again(facts)}"
        return Trouble(reason=Reason.FETCH_FAILED, message=message)
    return _trouble(facts, Reason.FETCH_FAILED)


def is_told(job: str, conditions: Iterable[Condition]) -> bool:
    """Whether a status says that a Job fails."""
    return any(condition.message.startswith(_who(job)) for condition in conditions)


def _of_pod(facts: FetchFacts, pod: PodTrouble) -> Trouble:
    if words := _WORD.findall(pod.message):
        return _trouble(facts, next((r for r in _SENTENCES if r.value == words[-1]), Reason.FETCH_FAILED))
    if pod.last_exit == "OOMKilled" or pod.reason in EXITS:
        return _trouble(facts, Reason.FETCH_FAILED)
    other = trouble_of(replace(pod, container=""))
    return replace(other, message=f"{_who(facts.job)}: {other.message}")


def _reason(word: str) -> Reason:
    """Read a reason of a status, which a later version may have written."""
    try:
        return Reason(word)
    except ValueError:
        return Reason.FETCH_FAILED


def _trouble(facts: FetchFacts, reason: Reason) -> Trouble:
    job = facts.job if reason is Reason.FETCH_FAILED else ""
    return Trouble(reason=reason, message=f"{_who(facts.job)}: {_SENTENCES[reason]}{job}. {_again(facts)}")


def _who(job: str) -> str:
    return f"The Job {job} cannot fetch the weights"


def _describe(facts: FetchFacts) -> str:
    """Say where it stands why it has no pod, or that has no volume: Kubernetes has it in events only."""
    pod = f"kubectl describe pod -l job-name={facts.job}"
    return f"Should it not come to run, kubectl describe job {facts.job} and {pod} say why"


def _again(facts: FetchFacts) -> str:
    return f"What serves goes on meanwhile; kubectl delete job {facts.job} has it tried at once"
