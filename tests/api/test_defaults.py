"""What an absent field means, and which fields have no effect yet."""

import pytest
import yaml

from api.cases import RULES, merged, service
from shardwright.api import defaults
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.parse import parse_service
from shardwright.api.reasons import Reason
from shardwright.api.support import unimplemented, unimplemented_fields


def spec(patch) -> LLMServiceSpec:
    return parse_service(service(patch)).spec


def test_the_smallest_spec():
    resolved = defaults.resolve(spec({}))
    assert (resolved.traffic.input_p50_tokens, resolved.traffic.input_p95_tokens) == (1000, 4000)
    assert (resolved.traffic.output_p50_tokens, resolved.traffic.output_p95_tokens) == (250, 800)
    assert resolved.traffic.concurrency is None
    assert resolved.traffic.concurrency_per_replica == 8
    assert (resolved.scale.min_replicas, resolved.scale.max_replicas, resolved.scale.planned_replicas) == (
        1,
        None,
        1,
    )
    assert (resolved.targets.ttft.milliseconds, resolved.targets.stated) == (1000, False)
    assert resolved.gpu_memory_utilization_percent == 92
    assert resolved.interconnect_policy == "PreferNVLink"
    assert resolved.engine_version is None


@pytest.mark.parametrize("name", defaults.PROFILES)
def test_a_profile_fills_only_what_is_not_written(name):
    profile = defaults.PROFILES[name]
    written = {"profile": name, "inputTokens": {"p50": 7, "p95": 9}}
    resolved = defaults.resolve(
        spec({"workload": written, "slo": {"tpot": {"percentile": 50, "milliseconds": 3}}})
    )
    assert (resolved.traffic.input_p50_tokens, resolved.traffic.input_p95_tokens) == (7, 9)
    assert resolved.traffic.output_p95_tokens == profile.output_p95_tokens
    assert resolved.targets.ttft.milliseconds == profile.ttft_ms
    assert (resolved.targets.tpot.percentile, resolved.targets.tpot.milliseconds) == (50, 3)
    assert resolved.targets.stated
    # A profile must pass the rules of the fields that it stands for.
    assert profile.input_p50_tokens <= profile.input_p95_tokens
    assert profile.output_p50_tokens <= profile.output_p95_tokens


@pytest.mark.parametrize(
    ("patch", "planned", "per_replica"),
    [
        ({"workload": {"concurrency": 10}}, 1, 10),
        ({"workload": {"concurrency": 10}, "scaling": {"minReplicas": 3}}, 3, 4),
        ({"scaling": {"minReplicas": 3}}, 3, 8),
        ({"replicas": 0, "scaling": {"mode": "External"}, "workload": {"concurrency": 5}}, 0, 5),
        ({"replicas": 4, "scaling": {"mode": "External"}}, 4, 8),
        ({"scaling": {"minReplicas": 0, "scaleToZero": {"idleSeconds": 60}}}, 1, 8),
        ({"availability": {"surviveNodeLoss": True}}, 2, 8),
        ({"availability": {"surviveNodeLoss": True}, "scaling": {"minReplicas": 4}}, 4, 8),
    ],
)
def test_replicas_and_the_load_of_one(patch, planned, per_replica):
    resolved = defaults.resolve(spec(patch))
    assert resolved.scale.planned_replicas == planned
    assert resolved.traffic.concurrency_per_replica == per_replica


ZERO = {"scaling": {"scaleToZero": {"idleSeconds": 60}}}
QUEUES = {"routing": {"type": "Router", "maxQueuedRequests": 9, "maxQueueSeconds": 9}}


def test_zero_needs_routers_and_what_survives_a_node_keeps_its_replicas():
    def found(*patches):
        made = spec(merged(*patches))
        told = [problem.field for problem in unimplemented(made)]
        scale = defaults.resolve(made).scale
        return scale.idle_seconds, scale.min_replicas, scale.planned_replicas, told

    asked, queues = "spec.scaling.scaleToZero", ["spec.routing.maxQueueSeconds"]
    assert found(ZERO, {}) == (None, 1, 1, [asked])
    assert found(ZERO, {"routing": {"type": "Router"}}) == (60, 0, 1, [])
    assert found(ZERO, QUEUES) == (60, 0, 1, [])
    assert found({}, QUEUES) == (None, 1, 1, queues)
    assert found(ZERO, merged(QUEUES, {"availability": {"surviveNodeLoss": True}})) == (
        None,
        2,
        2,
        [asked, *queues],
    )


def test_every_accepted_example_resolves():
    for case in RULES:
        resolved = defaults.resolve(spec(case.accepted))
        assert resolved.scale.planned_replicas >= 0
        assert resolved.traffic.concurrency_per_replica >= 1


SET = yaml.safe_load(
    """
    model: {adapters: [{name: a, source: b}]}
    slo: {ttft: {percentile: 95, milliseconds: 900}}
    pool: {provisioning: Elastic, shapes: [{product: X, gpusPerNode: 1, maxNodes: 1}], topologyKeys: [rack],
           network: {socketInterface: eth0}}
    scaling: {maxReplicas: 2, schedules: [{cron: "0 0 * * *", minReplicas: 1}], scaleToZero: {idleSeconds: 60}}
    planPolicy: Auto
    rollout: {canary: {steps: [{percent: 1, minutes: 1}]}}
    routing: {type: Gateway, gatewayRef: {name: g}, policy: CacheAware, apiKeySecretRef: {name: a, key: b}, maxQueuedRequests: 1,
              maxQueueSeconds: 1}
    disaggregation: {mode: Auto}
    engine: {speculative: {method: ngram}, kvOffloadGiB: 1, multiNode: LeaderWorkerSet}
    """
)


def test_each_field_without_effect_is_told_when_set_and_only_then():
    assert unimplemented(spec({})) == ()
    found = unimplemented(spec(SET))
    power = unimplemented(spec({"routing": {"type": "Router", "policy": "PowerOfTwo"}}))  # of routers alone
    told = {(problem.field, problem.message) for problem in (*found, *power)}
    assert (len(found), len(power)) == (len(unimplemented_fields()) - 1, 1)
    assert told == set(unimplemented_fields())
    assert {(problem.reason, problem.blocking) for problem in found} == {(Reason.NOT_IMPLEMENTED, False)}


def test_writing_what_happens_anyway_is_not_told():
    harmless = {
        "planPolicy": "OnSpecChange",
        "rollout": {"strategy": "Surge", "paused": True},
        "routing": {"type": "Service"},
        "disaggregation": {"mode": "Disabled"},
        "parallelism": {"data": 1},
        "pool": {"provisioning": "Static"},
    }
    assert unimplemented(spec(merged(harmless, {"scaling": {"mode": "Auto"}}))) == ()
