"""Argo CD's health rule, run in the Lua version that Argo CD embeds (gopher-lua: Lua 5.1)."""

import re
from pathlib import Path

import pytest
import yaml
from lupa import lua51

from shardwright.api.reasons import ConditionType, Reason

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = yaml.safe_load((ROOT / "docs/gitops/argocd-cm.yaml").read_text())["data"][
    "resource.customizations.health.shardwright.dev_LLMService"
]


def condition(kind, status, reason="Because", message="A sentence"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def health(*conditions, generation=2, observed=2, status=True):
    obj = {"metadata": {"generation": generation}}
    if status:
        obj["status"] = {"observedGeneration": observed}
        if conditions:
            obj["status"]["conditions"] = list(conditions)
    runtime = lua51.LuaRuntime()
    # Argo CD opens a few safe libraries only: the rule must not reach for the others.
    runtime.execute("os = nil io = nil debug = nil package = nil require = nil")
    runtime.globals().obj = runtime.table_from(obj, recursive=True)
    answer = runtime.execute(SCRIPT)
    return answer.status, answer.message


CASES = {
    "never seen": (health(status=False), "Progressing"),
    "schema default only": (health(observed=-1), "Progressing"),
    "an older generation was ready": (health(condition("Ready", "True"), observed=1), "Progressing"),
    "an older generation was stalled": (health(condition("Stalled", "True"), observed=1), "Progressing"),
    "ready": (health(condition("Available", "True"), condition("Ready", "True")), "Healthy"),
    "ready with a diagnosis": (
        health(condition("Ready", "True"), condition("Degraded", "True", "ForeignAutoscaler")),
        "Healthy",
    ),
    "stalled": (health(condition("Ready", "False"), condition("Stalled", "True", "DoesNotFit")), "Degraded"),
    "stalled while the old plan serves": (
        health(condition("Available", "True"), condition("Stalled", "True", "InvalidSpec")),
        "Degraded",
    ),
    "crash loop": (
        health(condition("Available", "False"), condition("Ready", "False"), condition("Degraded", "True")),
        "Degraded",
    ),
    "rolling out over a sick revision": (
        health(condition("Available", "True"), condition("Ready", "False"), condition("Degraded", "True")),
        "Progressing",
    ),
    "no room": (health(condition("Placed", "False", "NoRoom"), condition("Ready", "False")), "Progressing"),
    "starting": (health(condition("Placed", "True"), condition("Ready", "False", "Starting")), "Progressing"),
    "asked to run nothing": (health(condition("Ready", "False", "ScaledToZero")), "Suspended"),
    "idle, and woken by the next request": (
        health(condition("Available", "True", "ScaledToZero"), condition("Ready", "True", "ScaledToZero")),
        "Healthy",
    ),
    "a plan waits for approval while another serves": (
        health(
            condition("Available", "True"),
            condition("Ready", "False", "WaitsForApproval"),
            condition("Stalled", "True", "WaitsForPerson"),
        ),
        "Suspended",
    ),
    "a rollout is paused": (
        health(
            condition("Available", "True"),
            condition("Ready", "False", "RolloutPaused"),
            condition("Stalled", "True", "WaitsForPerson"),
        ),
        "Suspended",
    ),
    "a revision did not start, and the old one serves": (
        health(
            condition("Available", "True"),
            condition("Ready", "False", "RolloutFailed"),
            condition("Stalled", "True", "WaitsForPerson"),
        ),
        "Degraded",
    ),
    "pinned": (
        health(condition("Available", "True"), condition("Ready", "True", "RevisionPinned")),
        "Healthy",
    ),
    "not judged yet": (health(condition("Accepted", "True")), "Progressing"),
}


@pytest.mark.parametrize("case", CASES)
def test_health(case):
    (status, message), expected = CASES[case]
    assert status == expected
    assert message


def test_the_message_carries_reason_and_sentence():
    assert health(condition("Placed", "False", "NoRoom", "team-b/chat holds 8 of 8 GPUs"))[1] == (
        "NoRoom: team-b/chat holds 8 of 8 GPUs"
    )


def test_the_rules_speak_of_conditions_and_reasons_that_exist():
    flux = (ROOT / "docs/gitops/flux-kustomization.yaml").read_text()
    types = set(re.findall(r'is\("(\w+)"', SCRIPT)) | set(re.findall(r'conditions\["(\w+)"\]', SCRIPT))
    types |= set(re.findall(r"c\.type == '(\w+)'", flux))
    reasons = set(re.findall(r'reason == "(\w+)"', SCRIPT)) | set(re.findall(r"c\.reason == '(\w+)'", flux))
    assert len(types) >= 5
    assert types <= {kind.value for kind in ConditionType}
    suspended = {Reason.SCALED_TO_ZERO, Reason.WAITS_FOR_APPROVAL, Reason.ROLLOUT_PAUSED}
    assert reasons == {reason.value for reason in suspended}
