"""More replicas are asked for than `pool.maxGPUs` holds: what fits runs, and what is cut is said."""

import asyncio

import pytest

from controller.test_approvals import env, nothing_is_written_at_a_restart, running, settle

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
EXTERNAL = {"scaling": {"mode": "External"}}


def asked(mode: str, count: int) -> dict:
    if mode == "External":
        return EXTERNAL | {"replicas": count}
    return {"scaling": {"minReplicas": count, "maxReplicas": 50}}


@pytest.mark.parametrize("why", ["in force", "waits", "pinned", "held"])
@pytest.mark.parametrize("mode", ["External", "Auto"])
@pytest.mark.parametrize("each", [1, 2])
async def test_what_the_budget_cuts_is_said_until_it_is_asked_for_no_more(fake, mode, each, why):
    fake.node("n1", gpus=8)
    first = {"parallelism": {"tensor": each}}
    fake.put("chat", **first, **asked(mode, 2))
    await settle(fake)
    assert fake.condition("chat", "Ready")[0] == "True"
    [old] = running(fake)
    other = {
        "in force": {},
        "waits": {"planPolicy": "Manual", **env("b")},
        "pinned": {"approvedRevision": old, **env("b")},
        "held": {"engine": {"args": ["--tensor-parallel-size=9"]}},
    }[why]
    fake.put("chat", **first, **asked(mode, 2), **other)
    await settle(fake)
    for count, over in ((8 // each, False), (20, True), (2, False)):
        fake.log.clear()
        fake.put("chat", **first, **asked(mode, count), **other)
        await settle(fake)
        placed = fake.condition("chat", "Placed")
        assert fake.statuses["chat"]["replicas"] == sum(fake.deployments().values()) <= 8 // each
        if over:
            assert placed == ("False", "GPUBudgetTooSmall")
            assert sum(fake.deployments().values()) == 8 // each
            field = "spec.replicas" if mode == "External" else "spec.scaling.minReplicas"
            message = fake.message("chat", "Placed")
            assert f"{field} asks for 20 replicas" in message
            assert f"only {8 // each} of them can run" in message
            assert f"write spec.pool.maxGPUs: {20 * each} or more, or {field}: {8 // each}" in message
            assert "event GPUBudgetTooSmall" in fake.log
        else:
            assert placed == ("True", "Placed")
        assert fake.condition("chat", "Available") == ("True", "Serving")
        if why in {"in force", "pinned"}:
            ready = ("False", "GPUBudgetTooSmall") if over else ("True", "Serving")
            pinned = why == "pinned" and not over
            assert fake.condition("chat", "Ready") == (("True", "RevisionPinned") if pinned else ready)


async def test_a_budget_that_cuts_is_said_beside_room_that_is_short(fake):
    fake.node("n1", gpus=2)
    fake.put("chat", **EXTERNAL, replicas=1)
    await settle(fake)
    fake.put("chat", **EXTERNAL, replicas=20)
    await settle(fake)
    assert fake.condition("chat", "Placed") == ("False", "PartiallyPlaced")
    assert "spec.replicas asks for 20 replicas of 1 GPU each, and pool.maxGPUs" in fake.message(
        "chat", "Placed"
    )


async def test_a_cut_is_told_once_and_again_when_it_is_another(fake):
    fake.node("n1", gpus=8)
    fake.put("chat", **EXTERNAL, replicas=1)
    await settle(fake)
    for count in (9, 10):
        fake.put("chat", **EXTERNAL, replicas=count)
        await settle(fake)
        assert f"asks for {count} replicas" in fake.message("chat", "Placed")
    assert fake.log.count("event GPUBudgetTooSmall") == 2  # Placed and Ready
    await asyncio.sleep(2000)
    assert fake.log.count("event GPUBudgetTooSmall") == 2
    await nothing_is_written_at_a_restart(fake)
