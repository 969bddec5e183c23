"""One rejected object and one accepted neighbour for every rule of the resource, and what the schema refuses.

Used twice: against `parse_service` offline, and against a real API server in e2e/test_api_matrix.py. They must agree.
"""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class RuleCase:
    """`sentence` is how the rule's message begins; the patches are merged over the smallest spec."""

    sentence: str
    rejected: Json
    accepted: Json
    names: tuple[str, str] = ("chat", "chat")


@dataclass(frozen=True)
class SchemaCase:
    """What types and bounds refuse. `at`: the field; `words`: what the API server says."""

    name: str
    spec: Json
    at: str
    words: str


def service(patch: Json, name: str = "chat", namespace: str = "default") -> Json:
    """The smallest object with `patch` merged over its spec."""
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": merged({"model": {"id": "a/b"}, "pool": {"maxGPUs": 8}}, patch),
    }


def merged(below: Json, above: Json) -> Json:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def _source(**source: Any) -> Json:
    return {"model": {"source": source}}


def _engine(**engine: Any) -> Json:
    return {"engine": engine}


def _args(*args: str) -> Json:
    return _engine(args=list(args))


def _tolerate(**toleration: Any) -> Json:
    return {"pool": {"tolerations": [toleration]}}


_SHAPE = {"product": "NVIDIA-L40S", "gpusPerNode": 4, "maxNodes": 2}
_REF = {"name": "s", "key": "k"}
_FINE_ARGS = _args("--enable-prefix-caching", "--seed=7", "--tokenizer-mode", "auto")

RULES: tuple[RuleCase, ...] = (
    RuleCase("metadata.name must be", {}, {}, names=("chat.v1", "chat-v1")),
    RuleCase("metadata.name must be", {}, {}, names=("c" * 41, "c" * 40)),
    RuleCase("metadata.name must be", {}, {}, names=("7b", "b7")),
    RuleCase("spec.replicas goes with", {"replicas": 2}, {"replicas": 2, "scaling": {"mode": "External"}}),
    RuleCase("spec.replicas goes with", {"scaling": {"mode": "External"}}, {"scaling": {"mode": "Auto"}}),
    RuleCase(
        "one replica with the pinned parallelism",
        {"parallelism": {"tensor": 4, "pipeline": 2, "data": 2}},
        {"parallelism": {"tensor": 4, "pipeline": 2}},
    ),
    RuleCase(
        "scaling.minReplicas × the GPUs",
        {"parallelism": {"tensor": 4}, "scaling": {"minReplicas": 3}},
        {"parallelism": {"tensor": 4}, "scaling": {"minReplicas": 2}},
    ),
    RuleCase(
        "scaling.minReplicas × the GPUs",
        {"scaling": {"minReplicas": 9}},
        {"scaling": {"minReplicas": 8}},
    ),
    RuleCase(
        "availability.surviveNodeLoss needs two",
        {"availability": {"surviveNodeLoss": True}, "scaling": {"minReplicas": 1}},
        {"availability": {"surviveNodeLoss": True}, "scaling": {"minReplicas": 2}},
    ),
    RuleCase(
        "availability.surviveNodeLoss needs two",
        {"availability": {"surviveNodeLoss": True}, "scaling": {"maxReplicas": 1}},
        {"availability": {"surviveNodeLoss": True}, "scaling": {}},
    ),
    RuleCase(
        "workload.inputTokens.p95 exceeds",
        {"workload": {"inputTokens": {"p50": 1, "p95": 4097}}, "model": {"maxContextTokens": 4096}},
        {"workload": {"inputTokens": {"p50": 1, "p95": 4096}}, "model": {"maxContextTokens": 4096}},
    ),
    RuleCase(
        "source.type PVC needs",
        _source(type="PVC"),
        _source(type="PVC", pvc={"claimName": "c", "path": "m/x"}),
    ),
    RuleCase("source.type URI needs", _source(type="URI"), _source(type="URI", uri={"uri": "s3://b/m"})),
    RuleCase(
        "only the block that source.type names",
        _source(type="PVC", pvc={"claimName": "c"}, hub={"tokenSecretRef": _REF}),
        _source(type="Hub", hub={"tokenSecretRef": _REF}),
    ),
    RuleCase(
        "only the block that source.type names",
        _source(type="Hub", uri={"uri": "s3://b/m"}),
        _source(type="Hub"),
    ),
    RuleCase(
        "source.pvc.path is a path inside",
        _source(type="PVC", pvc={"claimName": "c", "path": "a/../../b"}),
        _source(type="PVC", pvc={"claimName": "c", "path": "a/..b/c.."}),
    ),
    RuleCase(
        "source.pvc.path is a path inside",
        _source(type="PVC", pvc={"claimName": "c", "path": "/a"}),
        _source(type="PVC", pvc={"claimName": "c"}),
    ),
    RuleCase(
        "vLLM loads from s3://",
        _source(type="URI", uri={"uri": "ftp://h/m"}),
        _source(type="URI", uri={"uri": "gs://b/m"}),
    ),
    RuleCase(
        "cache.claimName goes with",
        {"model": {"cache": {"type": "PVC"}}},
        {"model": {"cache": {"type": "PVC", "claimName": "c"}}},
    ),
    RuleCase(
        "cache.claimName goes with",
        {"model": {"cache": {"type": "Ephemeral", "claimName": "c"}}},
        {"model": {"cache": {"type": "Ephemeral"}}},
    ),
    RuleCase(
        "cache.path goes with",
        {"model": {"cache": {"type": "HostPath"}}},
        {"model": {"cache": {"type": "HostPath", "path": "/var/cache"}}},
    ),
    RuleCase(
        "cache.path must not contain",
        {"model": {"cache": {"type": "HostPath", "path": "/var/../etc"}}},
        {"model": {"cache": {"type": "HostPath", "path": "/var/..etc"}}},
    ),
    RuleCase(
        "quantizeAtLoad needs",
        {"model": {"quantizeAtLoad": True}},
        {"model": {"quantizeAtLoad": True, "quantization": "FP8"}},
    ),
    RuleCase(
        "quantizeAtLoad needs",
        {"model": {"quantizeAtLoad": True, "quantization": "AWQ"}},
        {"model": {"quantizeAtLoad": False, "quantization": "AWQ"}},
    ),
    RuleCase(
        "model.revision is a commit on the hub",
        merged(_source(type="URI", uri={"uri": "s3://b/m"}), {"model": {"revision": "main"}}),
        merged(_source(type="Hub"), {"model": {"revision": "refs/pr/7"}}),
    ),
    RuleCase(
        "model.variants are fetched",
        merged(_source(type="PVC", pvc={"claimName": "c"}), {"model": {"variants": [{"id": "a/c"}]}}),
        {"model": {"variants": [{"id": "a/c"}]}},
    ),
    RuleCase(
        "model.variants are other checkpoints",
        {"model": {"variants": [{"id": "a/b"}]}},
        {"model": {"variants": [{"id": "a/b", "revision": "fp8"}]}},
    ),
    RuleCase(
        "allowedKVCacheDtypes names each",
        {"model": {"allowedKVCacheDtypes": ["FP8", "FP8"]}},
        {"model": {"allowedKVCacheDtypes": ["Auto", "FP8"]}},
    ),
    RuleCase(
        "p50 must not exceed p95",
        {"workload": {"outputTokens": {"p50": 11, "p95": 10}}},
        {"workload": {"outputTokens": {"p50": 10, "p95": 10}}},
    ),
    RuleCase(
        "write either workload.requestsPerMinute",
        {"workload": {"requestsPerMinute": 1, "concurrency": 1}},
        {"workload": {"requestsPerMinute": 1}},
    ),
    RuleCase(
        "sharedPrefixTokens is a part",
        {"workload": {"sharedPrefixTokens": 11, "inputTokens": {"p50": 1, "p95": 10}}},
        {"workload": {"sharedPrefixTokens": 10, "inputTokens": {"p50": 1, "p95": 10}}},
    ),
    RuleCase(
        "a toleration with operator Exists",
        _tolerate(key="k", operator="Exists", value="v"),
        _tolerate(key="k", value="v"),
    ),
    RuleCase(
        "a toleration without key",
        _tolerate(effect="NoSchedule"),
        _tolerate(operator="Exists", effect="NoSchedule"),
    ),
    RuleCase(
        "tolerationSeconds goes with",
        _tolerate(key="k", tolerationSeconds=30),
        _tolerate(key="k", tolerationSeconds=30, effect="NoExecute"),
    ),
    RuleCase(
        "pool.shapes goes with",
        {"pool": {"provisioning": "Elastic"}},
        {"pool": {"provisioning": "Elastic", "shapes": [_SHAPE]}},
    ),
    RuleCase(
        "pool.shapes goes with",
        {"pool": {"shapes": [_SHAPE]}},
        {"pool": {"provisioning": "Static"}},
    ),
    RuleCase(
        "pool.nodeSelector keys are",
        {"pool": {"nodeSelector": {"gpu type": "a"}}},
        {"pool": {"nodeSelector": {"example.com/gpu-type": "a", "zone": ""}}},
    ),
    RuleCase(
        "parallelism.expert Enabled",
        {"parallelism": {"tensor": 1, "data": 1, "expert": "Enabled"}},
        {"parallelism": {"tensor": 2, "data": 1, "expert": "Enabled"}},
    ),
    RuleCase(
        "scaling.minReplicas must not exceed",
        {"scaling": {"minReplicas": 3, "maxReplicas": 2}},
        {"scaling": {"minReplicas": 2, "maxReplicas": 2}},
    ),
    RuleCase(
        "minReplicas 0 needs",
        {"scaling": {"minReplicas": 0}},
        {"scaling": {"minReplicas": 0, "scaleToZero": {"idleSeconds": 60}}},
    ),
    RuleCase(
        "scaling.scaleToZero never takes effect",
        {"scaling": {"minReplicas": 1, "scaleToZero": {"idleSeconds": 60}}},
        {"scaling": {"scaleToZero": {"idleSeconds": 60}}},
    ),
    RuleCase(
        "with scaling.mode External",
        {"replicas": 2, "scaling": {"mode": "External", "maxReplicas": 4}},
        {"replicas": 0, "scaling": {"mode": "External"}},
    ),
    RuleCase(
        "a schedule needs a bound",
        {"scaling": {"schedules": [{"cron": "0 8 * * 1-5"}]}},
        {"scaling": {"schedules": [{"cron": "0 8 * * 1-5", "minReplicas": 0}]}},
    ),
    RuleCase(
        "a schedule's minReplicas",
        {"scaling": {"schedules": [{"cron": "0 8 * * *", "minReplicas": 3, "maxReplicas": 2}]}},
        {"scaling": {"schedules": [{"cron": "0 8 * * *", "minReplicas": 2, "maxReplicas": 2}]}},
    ),
    RuleCase(
        "rollout.canary.steps must grow",
        {"rollout": {"canary": {"steps": [{"percent": 50, "minutes": 5}, {"percent": 10, "minutes": 5}]}}},
        {"rollout": {"canary": {"steps": [{"percent": 10, "minutes": 5}, {"percent": 50, "minutes": 5}]}}},
    ),
    RuleCase(
        "rollout.canary needs both",
        {"rollout": {"strategy": "BlueGreen", "canary": {"steps": [{"percent": 10, "minutes": 5}]}}},
        {"rollout": {"strategy": "Surge", "canary": {"steps": [{"percent": 10, "minutes": 5}]}}},
    ),
    RuleCase(
        "routing.gatewayRef goes with",
        {"routing": {"type": "Gateway"}},
        {"routing": {"type": "Gateway", "gatewayRef": {"name": "g"}}},
    ),
    RuleCase(
        "routing.gatewayRef goes with",
        {"routing": {"gatewayRef": {"name": "g"}}},
        {"routing": {"type": "Router"}},
    ),
    RuleCase(
        "policy, maxQueuedRequests and",
        {"routing": {"type": "Service", "maxQueuedRequests": 10}},
        {"routing": {"type": "Router", "maxQueuedRequests": 10}},
    ),
    RuleCase("an env entry needs", _engine(env=[{"name": "A"}]), _engine(env=[{"name": "A", "value": ""}])),
    RuleCase(
        "an env entry needs",
        _engine(env=[{"name": "A", "value": "x", "secretRef": _REF}]),
        _engine(env=[{"name": "A", "secretRef": _REF}]),
    ),
    RuleCase(
        "an env value is readable",
        _engine(env=[{"name": "Proxy_Password", "value": "x"}]),
        _engine(env=[{"name": "Proxy_Password", "secretRef": _REF}, {"name": "KEYS", "value": "x"}]),
    ),
    RuleCase(
        "engine.image needs",
        _engine(image="r.example/vllm:1"),
        _engine(image="r.example/vllm:1", version="0.33.0"),
    ),
    RuleCase(
        "the operator owns VLLM_HOST_IP",
        _engine(env=[{"name": "HF_TOKEN", "secretRef": _REF}]),
        _engine(env=[{"name": "VLLM_API_KEY", "secretRef": _REF}]),
    ),
    RuleCase("the plan owns --tensor-parallel-size", _args("-tp", "2"), _FINE_ARGS),
    RuleCase("the plan owns --nnodes", _args("--nnodes=2"), _FINE_ARGS),
    RuleCase("the plan owns --max-model-len", _args("--max_model_len", "4096"), _args("--max-model-lens")),
    RuleCase("the plan owns --gpu-memory-utilization", _args("--gpu-memory-utilization=0.95"), _FINE_ARGS),
    RuleCase(
        "the plan owns --max-num-seqs", _args("--max-num-seqs", "256"), _args("--max-num-queued-reqs=9")
    ),
    RuleCase("the plan owns --kv-cache-dtype", _args("-q", "fp8"), _args("fp8")),
    RuleCase("the plan owns --model,", _args("--served-model-name", "x"), _args("--model-impl=auto")),
    RuleCase("the plan owns --load-format", _args("--load-format=dummy"), _FINE_ARGS),
    RuleCase("the plan owns --tool-call-parser", _args("--reasoning-parser", "x"), _FINE_ARGS),
    RuleCase("the plan owns --host", _args("--port", "80"), _FINE_ARGS),
    RuleCase("the plan owns --api-key", _args("--api-key=secret"), _FINE_ARGS),
    RuleCase("the plan owns --shutdown-timeout", _args("--seed=1", "--shutdown-timeout=1"), _FINE_ARGS),
)

SCHEMA: tuple[SchemaCase, ...] = (
    SchemaCase("float", {"pool": {"maxGPUs": 1.5}}, "spec.pool.maxGPUs", "must be of type integer"),
    SchemaCase("text for number", {"pool": {"maxGPUs": "8"}}, "spec.pool.maxGPUs", "must be of type integer"),
    SchemaCase("below a bound", {"pool": {"maxGPUs": 0}}, "spec.pool.maxGPUs", "greater than or equal to 1"),
    SchemaCase(
        "above a bound",
        {"engine": {"gpuMemoryUtilizationPercent": 99}},
        "spec.engine.gpuMemoryUtilizationPercent",
        "less than or equal to 98",
    ),
    SchemaCase("enum", {"workload": {"profile": "chat"}}, "spec.workload.profile", "Unsupported value"),
    SchemaCase("single value", {"engine": {"type": "SGLang"}}, "spec.engine.type", "Unsupported value"),
    SchemaCase(
        "percentile",
        {"slo": {"ttft": {"percentile": 96, "milliseconds": 1}}},
        "spec.slo.ttft.percentile",
        "Unsupported value",
    ),
    SchemaCase("missing", {"disaggregation": {}}, "spec.disaggregation.mode", "Required value"),
    SchemaCase("pattern", {"engine": {"version": "latest"}}, "spec.engine.version", "should match"),
    SchemaCase("too long", {"model": {"servedName": "x" * 129}}, "spec.model.servedName", "Too long"),
    SchemaCase("dash first", {"model": {"servedName": "--port"}}, "spec.model.servedName", "should match"),
    SchemaCase("too many", {"pool": {"gpuProducts": ["a"] * 33}}, "spec.pool.gpuProducts", "Too many"),
    SchemaCase("unknown field", {"pool": {"maxGpus": 8}}, "spec.pool.maxGpus", "unknown field"),
    SchemaCase(
        "unknown field in a list",
        {"model": {"variants": [{"id": "a/c", "rev": "x"}]}},
        "spec.model.variants[0].rev",
        "unknown field",
    ),
    SchemaCase(
        "twice the same key",
        {"engine": {"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]}},
        "spec.engine.env[1]",
        "Duplicate value",
    ),
    SchemaCase(
        "YAML's bare Off", {"disaggregation": {"mode": False}}, "spec.disaggregation.mode", "must be of type"
    ),
)
