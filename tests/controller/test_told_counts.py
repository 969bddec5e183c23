"""What the commands tell of replicas and prices is what runs, whatever was recorded with the plan."""

import copy

import pytest

from controller.test_approvals import env, running, settle
from controller.test_diff_agrees import live
from shardwright.cli import approve, explain, rollback

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
EXTERNAL = {"scaling": {"mode": "External"}}
LOADED = {"workload": {"requestsPerMinute": 200}, "scaling": {"minReplicas": 1, "maxReplicas": 8}}


def listed(found) -> dict[str, str]:
    """Plan by revision, as `rollback --list` has it."""
    _, *lines = rollback.table(found)
    rows = ([cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines)
    return {row[0]: row[2] for row in rows}


def explained(fake):
    found = live(fake)
    plan = fake.statuses["chat"]["plan"]
    record = copy.deepcopy(fake.objects["ControllerRevision", "team", f"chat-{plan['revision']}"])
    return explain.live_explanation(dict(found.service) | {"status": fake.statuses["chat"]}, record), plan


@pytest.mark.parametrize("load", [{}, {"workload": {"requestsPerMinute": 900}}])
@pytest.mark.parametrize("count", [0, 1, 3, 5])
async def test_the_explanation_tells_the_replicas_and_the_price_of_what_is_wanted(fake, load, count):
    fake.node("n1", gpus=8)
    fake.put("chat", **EXTERNAL, replicas=3, **load)
    await settle(fake)
    fake.put("chat", **EXTERNAL, replicas=count, **load)
    await settle(fake)
    found, plan = explained(fake)
    assert (found.choice.summary, found.choice.replicas) == (plan["summary"], count)
    assert found.choice.price_per_hour == pytest.approx(float(plan["pricePerHour"]), abs=0.01)
    assert f"{count} replica" in found.answer.runs
    noted = [note for note in found.notes if "the plan was made with 3 replicas" in note]
    assert len(noted) == (count != 3)
    if load and count < 2:
        assert found.answer.verdict == "NotKept"


@pytest.mark.parametrize("kind", [{**EXTERNAL, "replicas": 2}, LOADED])
async def test_the_revisions_are_told_with_what_the_operator_runs_of_them(fake, kind):
    fake.node("n1", gpus=8)
    scaled = {**kind, "replicas": 3} if "replicas" in kind else kind | {"scaling": {"minReplicas": 4}}
    fake.put("chat", **kind)
    await settle(fake)
    fake.put("chat", **kind, **env("b"))
    await settle(fake)
    fake.put("chat", **scaled, **env("c"), planPolicy="Manual")
    await settle(fake)
    fake.put("chat", **scaled, **env("c"), planPolicy="Manual", drain={"maxSeconds": 9})
    await settle(fake)
    said = listed(live(fake))
    assert len(said) == 3
    for revision in live(fake).revisions:
        first = approve.describe(live(fake), revision)
        assert said[revision.revision] in first[1]
        assert listed(live(fake))[running(fake)[0]] in first[0]
        told = listed(live(fake))[revision.revision]
        fake.put(
            "chat", **scaled, **env("c"), planPolicy="Manual", drain={"maxSeconds": 9},
            approvedRevision=revision.revision,
        )  # fmt: skip
        await settle(fake)
        assert running(fake) == [revision.revision]
        [count] = fake.deployments().values()
        recorded = revision.summary.rpartition(" ×")[2]
        assert f" ×{count}" in told
        assert (f"recorded with ×{recorded}" in told) == (recorded != str(count))
        assert fake.statuses["chat"]["plan"]["summary"] == told.partition(" (")[0]
