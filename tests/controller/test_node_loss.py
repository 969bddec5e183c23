"""A pod serves only while its node is there and ready, whatever the pod's own status still says."""

import asyncio

import pytest

from shardwright.api.llmservice import ServiceKey
from shardwright.controller.options import Options
from shardwright.controller.parts import Parts
from shardwright.metrics.exposition import Exposition

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
SOON_S = 1.0
LOST = {
    "deleted": lambda fake: fake.parts.store.remove_node("n1"),
    "not ready": lambda fake: fake.node("n1", ready="False"),
    "silent": lambda fake: fake.node("n1", ready="Unknown"),
}


@pytest.fixture
async def served(fake):
    """One service on `n1`; there is room on `n2`."""
    fake.node("n1")
    fake.node("n2")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"
    return fake


@pytest.mark.parametrize("how", LOST)
async def test_a_lost_node_is_told_at_once_and_nothing_is_deleted_or_written_but_the_status(served, how):
    before = [entry for entry in served.writes() if not entry.startswith("status")]
    LOST[how](served)
    await asyncio.sleep(SOON_S)
    assert served.condition("chat", "Available") == ("False", "NodeLost")
    assert served.condition("chat", "Degraded") == ("True", "NodeLost")
    gone = how == "deleted"
    assert served.condition("chat", "Placed") == (("False", "NodeLost") if gone else ("True", "Placed"))
    for kind in ("Available", "Degraded", *(["Placed"] if gone else [])):
        message = served.message("chat", kind)
        assert "n1" in message
        assert ("is gone" in message) == gone
        assert ("delete the Node" in message) == ("is not ready" in message) == (not gone)
    assert served.statuses["chat"]["readyReplicas"] == 0
    assert served.condition("chat", "Stalled")[0] == "False"
    told = served.log.count("status chat")
    await asyncio.sleep(100)
    assert [entry for entry in served.writes() if not entry.startswith("status")] == before
    assert served.log.count("status chat") == told
    served.node("n1")
    await asyncio.sleep(5)
    assert served.condition("chat", "Ready")[0] == "True"
    assert served.condition("chat", "Degraded")[0] == "False"


async def test_a_node_that_others_are_on_concerns_nobody_else(served):
    told = served.log.count("status chat")
    served.parts.store.remove_node("n2")
    await asyncio.sleep(5)
    assert served.log.count("status chat") == told
    assert served.condition("chat", "Available")[0] == "True"


async def test_a_pod_that_is_seen_before_its_node_serves_once_that_is_seen(fake):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n3")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Available")[0] == "False"
    fake.node("n3")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Available")[0] == "True"


async def test_an_old_replica_does_not_go_for_a_new_one_on_a_lost_node(served):
    [old] = served.deployments()
    served.put("chat", engine={"env": [{"name": "A", "value": "b"}]})
    await asyncio.sleep(5)
    [new] = set(served.deployments()) - {old}
    served.parts.store.remove_node("n2")
    key = ("Deployment", "team", old)
    hidden = served.objects.pop(key)
    served.run_pods("n2")
    served.objects[key] = hidden
    await asyncio.sleep(5)
    assert not [entry for entry in served.log if entry.startswith("delete")]
    assert served.condition("chat", "Available")[0] == "True", "the old one answers"
    served.node("n2")
    await asyncio.sleep(5)
    assert f"delete Deployment/{old}" in served.log
    assert new in served.deployments()


async def test_where_nodes_are_declared_pods_alone_count(fake):
    declared = Parts.wire(fake, Options(pool_config_map=("team", "pool")), Exposition())
    assert not declared.store.nodes_watched
    fake.parts.store.nodes_watched = False
    fake.node("n1", ready="Unknown")
    fake.node("n2")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert len(fake.parts.store.pods_of(ServiceKey(("team", "chat")))) == 1
