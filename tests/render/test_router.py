"""The routers: which policy, what of an engine they change, and what their pod may do."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from render.planbuilder import plan, service
from render.validity import validate
from shardwright.api.names import API_KEY
from shardwright.api.reasons import Reason
from shardwright.planner.types import Parallelism
from shardwright.render.digest import revision_hash, template_digest
from shardwright.render.manifests import render
from shardwright.render.overlay import check
from shardwright.render.request import Capabilities, RenderRequest, RouterParts
from shardwright.render.router import router_args
from shardwright.render.routing import TELLS_TOKENS, engine_flags, policy

TELLING, SILENT = ["m", TELLS_TOKENS], ["m"]
ROUTER = {"routing": {"type": "Router"}}
QUEUE = {"routing": {"type": "Router", "policy": "RoundRobin", "maxQueuedRequests": 10}}
PREFIX = {"workload": {"profile": "RAG", "sharedPrefixTokens": 2000}}


def objects(spec, **more):
    svc, chosen = service(spec), plan()
    values = {"plan": chosen, "replicas": 2} | more
    made = render(RenderRequest(service=svc, revision_hash=revision_hash(svc.spec, chosen), **values))
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in made}


def engine_template(found):
    (record,) = (obj for (kind, _), obj in found.items() if kind == "ControllerRevision")
    return record["data"]["template"]


@pytest.mark.parametrize(
    ("routing", "more", "engine", "wanted"),
    [
        ({}, {}, TELLING, "kv_aware"),
        ({"policy": "Auto"}, {}, SILENT, "cache_aware"),
        ({}, PREFIX, TELLING, "cache_aware"),
        ({"policy": "LeastLoad"}, PREFIX, TELLING, "kv_aware"),
        ({"policy": "LeastLoad"}, {}, [*TELLING, "--no-enable-scale-out"], "cache_aware"),
        ({"policy": "LeastLoad"}, {}, ["m", "--enable_scale_out"], "kv_aware"),
        ({"policy": "LeastLoad"}, {}, [*TELLING, "--no_enable_scale_out"], "cache_aware"),
        ({"policy": "CacheAware"}, {}, TELLING, "cache_aware"),
        ({"policy": "RoundRobin"}, {}, TELLING, "round_robin"),
        ({"policy": "PowerOfTwo"}, {}, TELLING, "cache_aware"),
    ],
)
def test_the_policy_is_the_best_that_the_engines_can_be_asked_for(routing, more, engine, wanted):
    spec = service({"routing": {"type": "Router"} | routing} | more).spec
    assert policy(spec, engine) == wanted


@pytest.mark.parametrize(
    ("spec", "version", "flags"),
    [
        ({}, (0, 33, 0), []),
        ({"routing": {"type": "Service"}}, (0, 33, 0), []),
        (ROUTER, (0, 33, 0), [TELLS_TOKENS]),
        (ROUTER, (0, 31, 0), []),
        (ROUTER | PREFIX, (0, 33, 0), []),
        ({"routing": {"type": "Router", "policy": "RoundRobin"}}, (0, 33, 0), []),
        (ROUTER | {"engine": {"args": ["--no-enable-scale-out"]}}, (0, 33, 0), []),
        (QUEUE, (0, 33, 0), ["--max-num-queued-reqs=266"]),
        (QUEUE, (0, 31, 0), []),
        (QUEUE | {"engine": {"args": ["--max-num-queued-reqs=9"]}}, (0, 33, 0), []),
        (QUEUE | {"engine": {"args": ["--max_num_queued_reqs", "9"]}}, (0, 33, 0), []),
        ({"routing": QUEUE["routing"] | {"maxQueuedRequests": 0}}, (0, 33, 0), ["--max-num-queued-reqs=256"]),
    ],
)
def test_an_engine_is_told_only_what_routing_needs(spec, version, flags):
    assert engine_flags(service(spec).spec, plan(), version) == flags


def test_each_rank_that_attends_runs_as_many_as_the_limit_says():
    found = replace(plan(), parallelism=Parallelism(tensor=1, data=2))
    assert engine_flags(service(QUEUE).spec, found, (0, 33, 0)) == ["--max-num-queued-reqs=522"]


def test_an_engine_that_cannot_bound_its_queue_is_not_taken_for_one_that_does():
    old = {"engine": {"version": "0.31.0"}}
    (found,) = check(service(QUEUE | old).spec)
    assert (found.field, found.reason) == ("spec.routing.maxQueuedRequests", Reason.INVALID_SPEC)
    assert check(service(QUEUE).spec) == check(service(ROUTER | old).spec) == []


def test_a_key_is_asked_for_by_engines_and_by_what_holds_requests():
    key = {"routing": {"type": "Router", "apiKeySecretRef": {"name": "keys", "key": "chat"}}}
    wanted = {"name": API_KEY, "valueFrom": {"secretKeyRef": {"name": "keys", "key": "chat"}}}

    def variables(spec):
        found = objects(spec)
        (engine,) = engine_template(found)["spec"]["containers"]
        router, beside = found["Deployment", "chat-router"]["spec"]["template"]["spec"]["containers"]
        assert API_KEY not in str(router)
        return wanted in engine["env"], wanted in beside.get("env", [])

    by_hand = {"engine": {"env": [{"name": API_KEY, "secretRef": {"name": "keys", "key": "chat"}}]}}
    assert variables(ROUTER) == (False, False)
    assert variables(key) == variables(ROUTER | by_hand) == (True, False)
    assert variables(SLEEPY | key) == variables(SLEEPY | by_hand) == (True, True)


@pytest.mark.parametrize("before", [None, {"name": "keys", "key": "old"}])
@pytest.mark.parametrize("after", [None, {"name": "keys", "key": "new"}])
def test_what_holds_requests_asks_for_the_key_of_the_engines_in_force_not_for_that_of_a_spec_that_waits(
    before, after
):
    def of(key):
        return SLEEPY | ({"routing": {"type": "Router", "apiKeySecretRef": key}} if key else {})

    stored = next(o for (kind, _), o in objects(of(before)).items() if kind == "ControllerRevision")["data"]
    found = objects(of(after), plan=None, stored=json.loads(json.dumps(stored)))
    (engine,) = engine_template(found)["spec"]["containers"]
    _, beside = found["Deployment", "chat-router"]["spec"]["template"]["spec"]["containers"]
    assert beside.get("env", []) == [entry for entry in engine["env"] if entry["name"] == API_KEY]


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({}, False),
        ({"routing": {"type": "Router", "maxQueuedRequests": 0}}, True),
        ({"engine": {"args": ["--max-num-queued-reqs", "9"]}}, True),
        ({"engine": {"args": ["--max_num_queued_reqs=9"]}}, True),
        ({"engine": {"args": ["--max-num-queued-tokens=900"]}}, True),
        ({"engine": {"args": ["--max-num-queued-tokens=900"], "version": "0.31.0"}}, True),
    ],
)
def test_a_full_queue_closes_no_engine(spec, refused):
    pod = objects(ROUTER | spec)["Deployment", "chat-router"]["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    assert ("--disable-circuit-breaker" in args) is refused
    assert any(word.startswith("--cb-") for word in args) is not refused


def test_two_keys_are_one_too_many():
    variable = {"engine": {"env": [{"name": API_KEY, "secretRef": {"name": "other", "key": "k"}}]}}
    key = {"routing": {"apiKeySecretRef": {"name": "keys", "key": "chat"}}}
    assert check(service(variable).spec) == []
    (found,) = check(service(variable | key).spec)
    assert (found.field, found.reason) == ("spec.engine.env[0]", Reason.INVALID_SPEC)


def test_a_stored_revision_keeps_its_pods_and_the_policy_follows_them():
    before = engine_template(objects({}))
    stored = next(o for (kind, _), o in objects({}).items() if kind == "ControllerRevision")["data"]
    after = objects(ROUTER, plan=None, stored=json.loads(json.dumps(stored)))
    assert engine_template(after) == before
    router = after["Deployment", "chat-router"]["spec"]["template"]["spec"]["containers"][0]
    assert "--policy=cache_aware" in router["args"]
    new = objects(ROUTER)["Deployment", "chat-router"]["spec"]["template"]["spec"]["containers"][0]
    assert "--policy=kv_aware" in new["args"]


def test_routers_move_no_engine():
    assert template_digest(service(ROUTER).spec) == template_digest(service({}).spec)


def test_the_service_selects_routers_only_once_it_may():
    routed, not_yet, without = objects(ROUTER), objects(ROUTER, routed=False), objects({})
    selector = routed["Service", "chat"]["spec"]["selector"]
    assert selector == routed["Deployment", "chat-router"]["spec"]["selector"]["matchLabels"]
    assert routed["Service", "chat"]["metadata"]["labels"]["shardwright.dev/role"] == "router"
    assert not_yet["Service", "chat"] == without["Service", "chat"]
    assert ("Deployment", "chat-router") in not_yet
    for found in (routed, not_yet):
        assert found["Service", "chat-engine"] == without["Service", "chat-engine"]
    assert set(without) < set(routed)


def test_no_selector_of_engines_takes_a_router():
    found = objects(ROUTER)
    labels = found["Deployment", "chat-router"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        found["Service", "chat-engine"]["spec"]["selector"],
        found["PodDisruptionBudget", "chat"]["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert not set(selector.items()) <= set(labels.items())


def test_only_the_container_that_reads_slices_has_a_token_and_the_right_is_bound_in_its_namespace():
    found = objects(ROUTER, capabilities=Capabilities(router=RouterParts(role_kind="Role", role_name="r")))
    pod = found["Deployment", "chat-router"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    mounted = [c["name"] for c in pod["containers"] if any(m["name"] == "token" for m in c["volumeMounts"])]
    assert mounted == ["endpoints"]
    binding = found["RoleBinding", "chat-router"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    assert binding["subjects"][0]["name"] == pod["serviceAccountName"]
    assert binding["metadata"]["namespace"] == binding["subjects"][0]["namespace"]


def test_the_pod_outlives_its_streams_and_asks_for_no_gpu():
    found = objects(ROUTER | {"drain": {"maxSeconds": 60}})
    pod = found["Deployment", "chat-router"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 15 + 60
    assert not [name for c in pod["containers"] for name in c["resources"]["limits"] if "gpu" in name]
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["lifecycle"]["preStop"]["sleep"]["seconds"] == 15


SLEEPY = ROUTER | {"scaling": {"scaleToZero": {"idleSeconds": 600}}}


def held(spec):
    """What the containers beside the router are told of requests that are held, and what the router is of that."""
    pod = objects(spec)["Deployment", "chat-router"]["spec"]["template"]["spec"]
    router, endpoints = (c["args"] for c in pod["containers"])
    told = dict(word.removeprefix("--").split("=") for word in endpoints if "=" in word)
    mine = ("activator-port", "model", "hold-requests", "hold-seconds", "drain-seconds")
    return {key: told[key] for key in mine if key in told}, "--disable-circuit-breaker" in router


def test_requests_are_held_where_there_may_be_no_engine_and_nowhere_else():
    assert held(ROUTER) == ({}, False)
    assert held(SLEEPY | {"availability": {"surviveNodeLoss": True}}) == ({}, False)
    told, open_always = held(SLEEPY | {"drain": {"maxSeconds": 60}})
    assert open_always
    assert told.pop("hold-seconds") == str(plan_start_s() + 120)
    assert told == {"activator-port": "8002", "model": "chat", "hold-requests": "256", "drain-seconds": "60"}


def test_what_may_be_held_is_what_the_spec_says():
    routing = {"routing": {"type": "Router", "maxQueuedRequests": 0, "maxQueueSeconds": 30}}
    told, _ = held(
        SLEEPY | routing | {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "servedName": "mine"}}
    )
    assert (told["hold-requests"], told["hold-seconds"], told["model"]) == ("0", "30", "mine")


def plan_start_s():
    (record,) = (obj for (kind, _), obj in objects(SLEEPY).items() if kind == "ControllerRevision")
    return record["data"]["startupSeconds"]


@given(st.sampled_from(["Auto", "CacheAware", "LeastLoad", "RoundRobin", "PowerOfTwo"]), st.integers(0, 5000))
def test_whatever_is_asked_for_is_valid(chosen, shared):
    spec = {"routing": {"type": "Router", "policy": chosen}, "workload": {"sharedPrefixTokens": shared}}
    for obj in objects(spec).values():
        validate(obj)
    words = router_args(policy(service(spec).spec, TELLING))
    assert len(words) == len({word.partition("=")[0] for word in words})
