"""Engines that each fetch from a hub start in turn; those that need not start at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubelet import LOADING, Kubelet, ended
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
@pytest.mark.parametrize(
    "model",
    [
        {"source": {"type": "PVC", "pvc": {"claimName": "models"}}},
        {"source": {"type": "URI", "uri": {"uri": "s3://bucket/model"}}},
        {"cache": {"type": "PVC", "claimName": "models"}},
    ],
    ids=["claim", "object store", "fetched once"],
)
async def test_what_asks_no_hub_starts_at_once(fake, model):
    fake.foreign(
        "PersistentVolumeClaim", "models", spec={"accessModes": ["ReadWriteMany"], "volumeName": "pv"}
    )
    kubelet = await begun(fake, model=MODEL | model)
    await kubelet.run(5)
    revision = kubelet.revision()
    kubelet.broken[revision] = LOADING
    await kubelet.run(60)
    assert stated(fake) == 20


@given(counts, counts, counts)
def test_it_takes_nothing_back_and_always_goes_on(count, there, ready):
    ready = min(ready, there)
    found = in_turn(count, stated=there, ready=ready)
    assert min(count, there) <= found <= count
    if ready == there < count:
        assert found > there, "all that were begun answer: it goes on"
    assert found - ready <= max(AT_ONCE, ready, there - ready)
