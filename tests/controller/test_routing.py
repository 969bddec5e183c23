"""The way to routers and back: the endpoint moves when somebody answers there, and routers go when it has left them."""

import asyncio

import pytest

from shardwright.cluster.errors import Forbidden, Transient
from shardwright.controller.options import Options
from shardwright.render.request import Capabilities

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
ROUTER = {"routing": {"type": "Router"}}
PARTS = ("ServiceAccount", "RoleBinding", "PodDisruptionBudget", "Deployment")


def role(fake):
    """What the endpoint selects."""
    return fake.objects["Service", "team", "chat"]["spec"]["selector"]["shardwright.dev/role"]


def parts(fake):
    return {kind for kind, _, name in fake.objects if name == "chat-router"}


async def answer(fake, routers):
    key = ("Deployment", "team", "chat-router")
    fake.server._store("MODIFIED", key, fake.objects[key] | {"status": {"readyReplicas": routers}})
    await asyncio.sleep(5)


async def begun(fake, **spec):
    fake.node("n1")
    fake.put("chat", **spec)
    await asyncio.sleep(2)
    fake.run_pods("n1")
    await asyncio.sleep(5)


async def test_a_new_service_begins_behind_its_routers_and_is_available_when_one_answers(fake):
    await begun(fake, **ROUTER)
    assert (role(fake), parts(fake)) == ("router", set(PARTS))
    assert fake.condition("chat", "Available") == ("False", "RouterUnavailable")
    assert fake.condition("chat", "Ready") == ("False", "RouterUnavailable")
    await answer(fake, 1)
    assert fake.condition("chat", "Available") == ("True", "Serving")
    assert fake.condition("chat", "Ready")[0] == "True"
    await answer(fake, 0)
    assert fake.condition("chat", "Available") == ("False", "RouterUnavailable")
    assert role(fake) == "router"


async def test_what_serves_is_moved_to_routers_only_when_one_answers(fake):
    await begun(fake)
    engines = fake.deployments()
    fake.put("chat", at=1, **ROUTER)
    await asyncio.sleep(5)
    assert (role(fake), parts(fake)) == ("engine", set(PARTS))
    assert fake.condition("chat", "Available") == ("True", "Serving")
    assert fake.condition("chat", "Ready") == ("False", "RouterUnavailable")
    assert "selects the engines until a router answers" in fake.message("chat", "Ready")
    await answer(fake, 1)
    assert role(fake) == "router"
    assert fake.condition("chat", "Ready")[0] == "True"
    assert {name: count for name, count in fake.deployments().items() if name != "chat-router"} == engines


async def test_the_way_back_leaves_nothing_and_routers_go_last(fake):
    await begun(fake, **ROUTER)
    await answer(fake, 2)
    before = len(fake.log)
    fake.put("chat", at=1)
    await asyncio.sleep(5)
    assert (role(fake), parts(fake)) == ("engine", set())
    said = [what for what in fake.log[before:] if "chat-router" in what or what.endswith("Service/chat")]
    assert said[0].endswith("Service/chat"), said
    assert len([what for what in said if what.startswith("delete")]) == len(PARTS), said
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_service_that_cannot_be_moved_back_keeps_its_routers(fake):
    await begun(fake, **ROUTER)
    await answer(fake, 2)
    fake.fail["apply Service/chat"] = Transient("away")
    fake.put("chat", at=1)
    await asyncio.sleep(30)
    assert parts(fake) == set(PARTS)
    fake.fail.clear()
    await asyncio.sleep(60)
    assert (role(fake), parts(fake)) == ("engine", set())


async def test_a_restart_writes_nothing_and_moves_nothing_though_no_router_answers(fake):
    await begun(fake, **ROUTER)
    await answer(fake, 2)
    await answer(fake, 0)
    before = len(fake.writes())
    await fake.restart(Options())
    await asyncio.sleep(5)
    assert fake.writes()[before:] == []
    assert role(fake) == "router"


REFUSED = {"engine": {"args": ["--tensor-parallel-size=9"]}}


@pytest.mark.parametrize(
    "routing",
    [{}, {"type": "Router", "policy": "RoundRobin"}, {"type": "Gateway", "gatewayRef": {"name": "g"}}],
)
async def test_a_refused_spec_leaves_routers_as_they_are(fake, routing):
    await begun(fake, **ROUTER)
    await answer(fake, 2)
    before = {key: obj for key, obj in fake.objects.items() if key[2].startswith("chat")}
    fake.put("chat", at=1, routing=routing, **REFUSED)
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted")[0] == "False"
    assert {key: obj for key, obj in fake.objects.items() if key[2].startswith("chat")} == before
    await answer(fake, 0)
    assert fake.condition("chat", "Available") == ("False", "RouterUnavailable"), "they are what clients meet"
    fake.put("chat", at=2, routing=routing)
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted")[0] == "True"
    assert {key: obj for key, obj in fake.objects.items() if key[2].startswith("chat")} != before


async def test_a_refused_spec_brings_neither_routers_nor_routes(fake):
    await begun(fake)
    for at, asked in enumerate((ROUTER, GATEWAY), 1):
        fake.put("chat", at=at, **asked, **REFUSED)
        await asyncio.sleep(5)
        assert (role(fake), parts(fake), ways(fake)) == ("engine", set(), set())
        assert fake.condition("chat", "Available") == ("True", "Serving")


@pytest.mark.parametrize("kind", PARTS)
async def test_what_is_deleted_of_routers_comes_back_while_a_spec_is_refused(fake, kind):
    await begun(fake, **ROUTER)
    await answer(fake, 2)
    fake.put("chat", at=1, **ROUTER, **REFUSED)
    await asyncio.sleep(5)
    fake.lose((kind, "team", "chat-router"))
    await asyncio.sleep(5)
    assert parts(fake) == set(PARTS)


GATEWAY = {
    "routing": {"type": "Gateway", "gatewayRef": {"name": "inference", "endpointPicker": {"name": "p"}}}
}


def ways(fake):
    return {kind for kind, _, _ in fake.objects if kind in {"HTTPRoute", "InferencePool"}}


async def test_the_way_from_a_gateway_comes_and_goes_and_moves_no_engine(fake):
    await begun(fake)
    engines = fake.deployments()
    fake.put("chat", at=1, **GATEWAY)
    await asyncio.sleep(5)
    assert ways(fake) == {"HTTPRoute", "InferencePool"}
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.condition("chat", "Accepted") == ("True", "NotImplemented")
    alone = {"routing": {"type": "Gateway", "gatewayRef": {"name": "inference"}}}
    fake.put("chat", at=2, **alone)
    await asyncio.sleep(5)
    assert ways(fake) == {"HTTPRoute"}
    fake.put("chat", at=3)
    await asyncio.sleep(5)
    assert ways(fake) == set()
    assert fake.deployments() == engines


async def test_a_cluster_without_the_kinds_is_told_and_serves(fake):
    fake.parts.reconciler.capabilities = Capabilities(http_route=True, inference_pool=False)
    await begun(fake, **GATEWAY)
    assert ways(fake) == set()
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.condition("chat", "Accepted") == ("True", "GatewayUnavailable")
    assert "InferencePool cannot be written" in fake.message("chat", "Accepted")


async def test_a_route_that_is_refused_is_told_and_serves(fake):
    fake.fail["apply HTTPRoute/"] = Forbidden("no", status=403)
    await begun(fake, **GATEWAY)
    await asyncio.sleep(30)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Available")[0] == "True"
    assert "HTTPRoute/chat" in fake.message("chat", "Degraded")


@pytest.mark.parametrize(
    ("routing", "selected"),
    [
        ({}, "router"),
        ({"routing": {"policy": "RoundRobin"}}, "router"),
        ({"routing": {"type": "Service"}}, "engine"),
        ({"routing": {"type": "Gateway", "gatewayRef": {"name": "inference"}}}, "engine"),
    ],
)
async def test_an_operator_that_routes_by_default_leaves_what_a_spec_says(fake, routing, selected):
    await fake.restart(Options(routers=True))
    await begun(fake, **routing)
    assert role(fake) == selected
    if selected == "router":
        await answer(fake, 2)
        assert fake.condition("chat", "Accepted") == ("True", "Valid")
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_service_alone_is_told_what_it_cannot_do(fake):
    await begun(fake, routing={"type": "Service"})
    assert fake.condition("chat", "Accepted") == ("True", "Valid")
    told = fake.message("chat", "Accepted")
    assert "gets a 500 or a reset from an engine that drains" in told
    assert fake.condition("chat", "Ready")[0] == "True"
    fake.put("chat", routing={"type": "Service", "policy": "RoundRobin"})
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted") == ("True", "NotImplemented"), "what is ignored comes first"
    assert "a 500 or a reset" in fake.message("chat", "Accepted")
    fake.put("chat", **ROUTER)
    await asyncio.sleep(5)
    assert "reset" not in fake.message("chat", "Accepted")


async def test_routing_by_default_moves_what_serves_without_moving_an_engine(fake):
    await begun(fake)
    engines = fake.deployments()
    await fake.restart(Options(routers=True))
    await asyncio.sleep(5)
    assert role(fake) == "engine"
    await answer(fake, 2)
    assert role(fake) == "router"
    assert {name: count for name, count in fake.deployments().items() if name != "chat-router"} == engines
    await fake.restart(Options())
    await asyncio.sleep(5)
    assert (role(fake), parts(fake)) == ("engine", set())
    assert fake.deployments() == engines
