"""Engines that each fetch from a hub start in turn; those that need not start at once."""

import asyncio
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubelet import LOADING, PULL, Kubelet, ended
from shardwright.cluster.errors import Forbidden
from shardwright.controller.staggered import AT_ONCE, in_turn

pytestmark = pytest.mark.looptime
MODEL = {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192}
TWENTY = {"scaling": {"mode": "External"}, "replicas": 20, "pool": {"maxGPUs": 32}}
LIMITED = ended("HfHubHTTPError: 429 Client Error: Too Many Requests for url (address)")
counts = st.integers(0, 200)


async def begun(fake, **spec):
    fake.node("n1", gpus=32)
    fake.put("chat", **{"model": MODEL} | TWENTY | spec)
    return Kubelet(fake)


def stated(fake):
    [count] = fake.deployments().values()
    return count


@pytest.mark.asyncio
async def test_growth_at_most_doubles_what_answers(fake):
    kubelet = await begun(fake)
    await kubelet.run(1, every=1)
    revision = kubelet.revision()
    kubelet.broken[revision] = LOADING
    await kubelet.run(60)
    assert stated(fake) == AT_ONCE
    assert "they start in turn" in fake.message("chat", "Available")
    del kubelet.broken[revision]
    await kubelet.run(60)
    assert stated(fake) == 20
    assert fake.condition("chat", "Ready") == ("True", "Serving")


@pytest.mark.asyncio
async def test_none_is_added_while_the_hub_refuses_and_none_is_taken(fake):
    kubelet = await begun(fake, replicas=2)
    await kubelet.run(20)
    revision = kubelet.revision()
    kubelet.broken[revision] = LIMITED
    await kubelet.run(10)
    fake.put("chat", model=MODEL, **TWENTY)
    await kubelet.run(60)
    assert stated(fake) == 2
    assert fake.condition("chat", "Degraded") == ("True", "HubRateLimited")
    fake.put("chat", model=MODEL, **TWENTY | {"replicas": 1})
    await kubelet.run(20)
    assert stated(fake) == 1, "fewer are fewer"
    fake.put("chat", model=MODEL, **TWENTY)
    del kubelet.broken[revision]
    await kubelet.run(60)
    assert stated(fake) == 20


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["lost", "leaving"])
async def test_who_leaves_or_cannot_be_reached_holds_nobody_up(fake, how):
    """What such a pod last said stands until somebody removes its node."""
    fake.node("n2")
    kubelet = await begun(fake, replicas=2)
    kubelet.node = "n2"
    await kubelet.run(10)
    kubelet.broken[kubelet.revision()] = LIMITED
    await kubelet.run(10)
    if how == "lost":
        fake.node("n2", ready="Unknown")
    for pod in fake.pods.values() if how == "leaving" else ():
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        fake.parts.store.set_pod(copy.deepcopy(pod))
    fake.put("chat", model=MODEL, **TWENTY)
    await asyncio.sleep(30)
    assert stated(fake) == AT_ONCE


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("state", "count"),
    [
        (PULL, 20),
        (ended("RuntimeError: CUDA driver is too old"), 20),
        (ended("HfHubHTTPError: 503 Server Error: Service Unavailable for url (address)"), AT_ONCE),
        (LIMITED, AT_ONCE),
        (LOADING, AT_ONCE),
    ],
    ids=["image", "crash", "hub away", "hub refuses", "fetches"],
)
async def test_who_does_not_get_to_fetch_holds_nobody_up(fake, state, count):
    """All that were begun first may be on one broken node."""
    kubelet = await begun(fake)
    await kubelet.run(1, every=1)
    kubelet.broken[kubelet.revision()] = state
    await kubelet.run(60)
    assert stated(fake) == count


@pytest.mark.asyncio
async def test_what_was_refused_is_offered_in_turn_as_well(fake):
    kubelet = await begun(fake, replicas=2)
    await kubelet.run(20)
    kubelet.broken[kubelet.revision()] = LOADING
    fake.fail["apply Deployment/chat"] = Forbidden("policy: no more", status=403)
    fake.put("chat", model=MODEL, **TWENTY)
    await kubelet.run(20)
    assert stated(fake) == 2
    fake.fail.clear()
    for _ in range(120):
        await kubelet.run(5)
        assert stated(fake) <= 2 + AT_ONCE
    assert stated(fake) == AT_ONCE


@pytest.mark.asyncio
@pytest.mark.parametrize("strategy", ["Auto", "Surge", "BlueGreen"])
async def test_a_rollout_goes_in_turn_says_so_and_ends(fake, strategy):
    fake.node("n1", gpus=64)
    spec = TWENTY | {"replicas": 10, "rollout": {"strategy": strategy}, "model": MODEL}
    fake.put("chat", **spec)
    kubelet = Kubelet(fake)
    await kubelet.run(60)
    old = kubelet.revision()
    fake.put("chat", **spec, engine={"env": [{"name": "A", "value": "b"}]})
    await kubelet.run(1, every=1)
    new = kubelet.revision("b")
    kubelet.broken[new] = LOADING
    await kubelet.run(60)
    assert fake.deployments() == {f"chat-{old}": 10, f"chat-{new}": AT_ONCE}
    assert "start in turn" in fake.message("chat", "Ready")
    del kubelet.broken[new]
    await kubelet.run(120)
    assert fake.deployments() == {f"chat-{new}": 10}
    assert fake.condition("chat", "Ready") == ("True", "Serving")


CLAIM = {"cache": {"type": "PVC", "claimName": "models"}}


def shared_claim(fake):
    fake.foreign(
        "PersistentVolumeClaim", "models", spec={"accessModes": ["ReadWriteMany"], "volumeName": "pv"}
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("why", ["waits", "held"])
@pytest.mark.parametrize(
    ("runs", "stated_now", "count"),
    [({}, CLAIM, AT_ONCE), (CLAIM, {}, 20)],
    ids=["each", "once"],
)
async def test_engines_in_force_count_whatever_the_spec_leads_to(fake, why, runs, stated_now, count):
    shared_claim(fake)
    kubelet = await begun(fake, model=MODEL | runs, replicas=1)
    await kubelet.run(20)
    kubelet.broken[kubelet.revision()] = LOADING
    await kubelet.run(10)
    more = (
        {"planPolicy": "Manual"}
        if why == "waits"
        else {"engine": {"env": [{"name": "B", "secretRef": {"name": "none", "key": "k"}}]}}
    )
    fake.put("chat", **TWENTY | more, model=MODEL | stated_now)
    await kubelet.run(60)
    assert stated(fake) == count
    assert ("start in turn" in fake.message("chat", "Available")) is (count < 20)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"source": {"type": "PVC", "pvc": {"claimName": "models"}}}},
        {"model": {"source": {"type": "URI", "uri": {"uri": "s3://bucket/model"}}}},
        {"model": CLAIM},
        {"engine": {"env": [{"name": "VLLM_USE_MODELSCOPE", "value": "1"}]}},
        {"engine": {"env": [{"name": "TRANSFORMERS_OFFLINE", "value": "1"}]}},
    ],
    ids=["claim", "object store", "fetched once", "another hub", "offline"],
)
async def test_what_asks_no_hub_starts_at_once(fake, spec):
    shared_claim(fake)
    kubelet = await begun(fake, **spec | {"model": MODEL | spec.get("model", {})})
    await kubelet.run(5)
    revision = kubelet.revision()
    kubelet.broken[revision] = LOADING
    await kubelet.run(60)
    assert stated(fake) == 20


@given(counts, counts, counts, counts)
def test_it_takes_nothing_back_and_always_goes_on(count, there, ready, idle):
    ready = min(ready, there)
    idle = min(idle, there - ready)
    found = in_turn(count, stated=there, ready=ready, idle=idle)
    assert min(count, there) <= found <= count
    if ready + idle == there < count:
        assert found > there, "none that was begun fetches: it goes on"
    assert found - ready - idle <= max(AT_ONCE, ready, there - ready - idle)
