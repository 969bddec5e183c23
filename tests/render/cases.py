"""Services and plans that cover what rendering can do; golden files are made from them."""

from typing import Any

from render.planbuilder import A6000, MI300X, plan
from shardwright.planner.types import EngineLimits, Parallelism, Plan
from shardwright.render.request import Capabilities

TOKEN = {"tokenSecretRef": {"name": "hf", "key": "token"}}

CASES: dict[str, tuple[dict[str, Any], Plan, Capabilities, tuple[str, ...]]] = {
    "8b-tp1-hub": ({}, plan(), Capabilities(), ("h100-1", "h100-0")),
    "70b-tp4-token": (
        {
            "model": {
                "id": "meta-llama/Llama-3.3-70B-Instruct",
                "servedName": "llama-70b",
                "source": {"type": "Hub", "hub": TOKEN},
                "cache": {"type": "PVC", "claimName": "model-cache"},
                "chatTemplate": {"configMapRef": {"name": "templates", "key": "llama.jinja"}},
            },
            "slo": {
                "ttft": {"percentile": 95, "milliseconds": 1200},
                "tpot": {"percentile": 95, "milliseconds": 45},
            },
            "pool": {
                "nodeSelector": {"pool": "serving"},
                "tolerations": [
                    {"key": "dedicated", "operator": "Equal", "value": "llm", "effect": "NoSchedule"}
                ],
                "priorityClassName": "serving",
                "schedulerName": "packing",
            },
            "engine": {
                "version": "0.32.0",
                "toolCallParser": "llama3_json",
                "imagePullSecrets": [{"name": "registry"}],
                "args": ["--seed", "7"],
                "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}],
            },
            "drain": {"maxSeconds": 120},
        },
        plan(
            "meta-llama/Llama-3.3-70B-Instruct", parallelism=Parallelism(tensor=4), billions=70.6, replicas=1
        ),
        Capabilities(pod_monitor=True),
        ("h100-0",),
    ),
    "pvc": (
        {
            "model": {
                "id": "acme/finetune-8b",
                "source": {"type": "PVC", "pvc": {"claimName": "weights", "path": "finetunes/8b/"}},
                "cache": {"type": "HostPath", "path": "/var/cache/vllm"},
            },
            "availability": {"surviveNodeLoss": True},
        },
        plan("acme/finetune-8b", revision=None),
        Capabilities(),
        (),
    ),
    "uri": (
        {
            "model": {
                "id": "acme/finetune-8b",
                "source": {"type": "URI", "uri": {"uri": "s3://models/8b", "credentialsSecretRef": "s3"}},
                "tokenizer": "meta-llama/Llama-3.1-8B-Instruct",
            }
        },
        plan("acme/finetune-8b", revision=None),
        Capabilities(),
        (),
    ),
    "moe-ep": (
        {
            "model": {"id": "Qwen/Qwen3-235B-A22B", "trustRemoteCode": True},
            "engine": {"reasoningParser": "qwen3"},
        },
        plan("Qwen/Qwen3-235B-A22B", parallelism=Parallelism(tensor=8, expert=True), billions=235, moe=True),
        Capabilities(),
        (),
    ),
    "pcie-tp4": (
        {"model": {"id": "Qwen/Qwen3-32B", "quantization": "FP8", "quantizeAtLoad": True}},
        plan(
            "Qwen/Qwen3-32B",
            product=A6000,
            parallelism=Parallelism(tensor=4),
            billions=32.8,
            within_island=False,
            min_gpu_memory_mib=46068,
            limits=EngineLimits(
                max_model_len=16384,
                max_num_seqs=64,
                max_num_batched_tokens=2048,
                gpu_memory_utilization_percent=90,
                kv_cache_dtype="fp8",
                enforce_eager=True,
            ),
        ),
        Capabilities(),
        (),
    ),
    "gateway": (
        {
            "routing": {
                "type": "Gateway",
                "gatewayRef": {
                    "name": "inference",
                    "namespace": "gateways",
                    "sectionName": "https",
                    "endpointPicker": {"name": "picker"},
                },
            }
        },
        plan(),
        Capabilities(),
        (),
    ),
    "gateway-alone": (
        {"routing": {"type": "Gateway", "gatewayRef": {"name": "inference"}}},
        plan(),
        Capabilities(),
        (),
    ),
    "overlay": (
        {
            "podTemplate": {
                "metadata": {"labels": {"team": "search"}, "annotations": {"note": "x"}},
                "spec": {
                    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["mirror"]}],
                    "containers": [
                        {
                            "name": "engine",
                            "volumeMounts": [{"name": "extra", "mountPath": "/extra", "readOnly": True}],
                            "securityContext": {"readOnlyRootFilesystem": False},
                        },
                        {"name": "sidecar", "image": "example.org/proxy:1"},
                    ],
                    "volumes": [{"name": "extra", "configMap": {"name": "extra"}}],
                },
            }
        },
        plan(),
        Capabilities(),
        (),
    ),
    "router": ({"routing": {"type": "Router"}}, plan(), Capabilities(), ()),
    "router-key-queue": (
        {
            "routing": {
                "type": "Router",
                "apiKeySecretRef": {"name": "keys", "key": "chat"},
                "maxQueuedRequests": 64,
            },
            "scaling": {"scaleToZero": {"idleSeconds": 600}},
        },
        plan(),
        Capabilities(),
        (),
    ),
    "amd": (
        {"engine": {"version": "0.33.0"}},
        plan(product=MI300X, parallelism=Parallelism(tensor=2)),
        Capabilities(),
        (),
    ),
}
