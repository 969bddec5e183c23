"""The load: distinct LLMService specs, a fleet that holds all of them, and pods of other people.

It decides what is asked of the operator. Pure: same arguments, same objects.
"""

import itertools
from typing import Any

from harness.nodes import cpu_node, pool

Manifest = dict[str, Any]

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB"
L40S, A6000 = "NVIDIA-L40S", "NVIDIA-RTX-A6000"
NAMESPACES = 10
FOREIGN_NAMESPACES = 5

# Model, products it may use, contexts; 88 distinct specs. Most name a product, as teams with a quota do; the
# others leave the choice of product to the operator.
_FAMILIES: tuple[tuple[str, tuple[tuple[str, ...], ...], tuple[int, ...]], ...] = (
    ("Qwen/Qwen3-0.6B", ((L40S,),), (8192, 32768)),
    ("Qwen/Qwen3-1.7B", ((L40S,), (A6000,)), (8192, 16384)),
    ("meta-llama/Llama-3.2-3B-Instruct", ((L40S,), (A100,)), (8192, 32768)),
    ("Qwen/Qwen3-4B", ((L40S,), (A100,)), (8192, 32768)),
    ("mistralai/Mistral-7B-Instruct-v0.3", ((L40S,), (A100,), (H100,)), (8192, 16384)),
    ("Qwen/Qwen2.5-7B-Instruct", ((A100,), (H100,)), (8192, 16384)),
    ("meta-llama/Llama-3.1-8B-Instruct", ((), (A100,), (H100,)), (8192, 32768)),
    ("Qwen/Qwen3-8B", ((), (A100,), (H100,)), (8192, 32768)),
    ("Qwen/Qwen3-14B", ((A100,), (H100,)), (8192, 16384)),
    ("Qwen/Qwen3-32B", ((H100,),), (8192, 16384)),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", ((H100,),), (8192,)),
    ("meta-llama/Llama-3.3-70B-Instruct", ((H100,),), (8192,)),
)
_PROFILES = ("Chat", "RAG", "Writing")
_CONCURRENCY = {"Chat": 8, "RAG": 4, "Writing": 6}


def distinct_specs() -> list[Manifest]:
    """Give every distinct spec once, small models first."""
    numbered = itertools.count()
    return [
        _spec(model, products, context, profile)
        for model, choices, contexts in _FAMILIES
        for products, context in itertools.product(choices, contexts)
        for profile in _two_profiles(next(numbered))
    ]


def _two_profiles(index: int) -> tuple[str, str]:
    return _PROFILES[index % 3], _PROFILES[(index + 1) % 3]


def _spec(model: str, products: tuple[str, ...], context: int, profile: str) -> Manifest:
    gpus: Manifest = {"maxGPUs": 64}
    if products:
        gpus["gpuProducts"] = list(products)
    return {
        "model": {"id": model, "maxContextTokens": context},
        "workload": {"profile": profile, "concurrency": _CONCURRENCY[profile]},
        "pool": gpus,
        "scaling": {"minReplicas": 1, "maxReplicas": 4},
    }


def services(count: int) -> list[Manifest]:
    """Give `count` LLMServices over the distinct specs in turn."""
    specs = distinct_specs()
    return [
        service(f"svc-{index:04d}", namespace(index), specs[index % len(specs)]) for index in range(count)
    ]


def service(called: str, in_namespace: str, spec: Manifest) -> Manifest:
    """Wrap a spec into an LLMService."""
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": called, "namespace": in_namespace},
        "spec": spec,
    }


def plain_deployment(called: str, in_namespace: str) -> Manifest:
    """Give a Deployment of one pod that has nothing to do with the operator."""
    labels = {"app": called}
    container = {"name": "main", "image": "registry.example/work:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": called, "namespace": in_namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def name(index: int) -> str:
    """Name the service with this index."""
    return f"svc-{index:04d}"


def namespace(index: int) -> str:
    """Name the namespace of the service with this index."""
    return f"team-{index % NAMESPACES}"


def namespaces() -> list[str]:
    """Name every namespace that the load needs."""
    others = [f"other-{index}" for index in range(FOREIGN_NAMESPACES)]
    return [f"team-{index}" for index in range(NAMESPACES)] + others


def fleet_size(service_count: int) -> int:
    """Give the nodes that leave room for second replicas: one per service, half of that from 1000 services on.

    In a small load each service that is scaled weighs more, the small models come first and want the L40S, and other
    people's pods sit on most of the few nodes.
    """
    return max(40, min(500, service_count), service_count // 2)


def nodes(count: int) -> list[Manifest]:
    """Give a fleet of `count` nodes: by what the specs ask for, a tenth without GPUs."""
    cpu = max(1, count // 10)
    a100 = max(1, count * 22 // 100)
    l40s = max(1, count * 24 // 100)
    a6000 = max(1, count * 12 // 100)
    h100 = max(1, count - cpu - a100 - l40s - a6000)
    return [
        *pool(h100, H100, prefix="h100"),
        *pool(a100, A100, prefix="a100"),
        *pool(l40s, L40S, prefix="l40s"),
        *pool(a6000, A6000, prefix="a6000"),
        *(cpu_node(f"cpu-{index:04d}", cpu_cores=128, memory_gib=512) for index in range(cpu)),
    ]


def foreign_pods(count: int, fleet: list[Manifest]) -> list[Manifest]:
    """Give other people's pods: a twelfth holds one GPU each, some run beside them, most on the other nodes."""
    gpu_nodes = [_node_name(node) for node in fleet if _has_gpus(node)]
    cpu_nodes = [_node_name(node) for node in fleet if not _has_gpus(node)]
    with_gpu = min(count // 12, len(gpu_nodes))
    beside = with_gpu + min(2 * len(gpu_nodes), (count - with_gpu) // 4)
    return [
        *(_foreign(index, gpu_nodes[index % len(gpu_nodes)], gpus=1) for index in range(with_gpu)),
        *(_foreign(index, gpu_nodes[index % len(gpu_nodes)], gpus=0) for index in range(with_gpu, beside)),
        *(_foreign(index, cpu_nodes[index % len(cpu_nodes)], gpus=0) for index in range(beside, count)),
    ]


def _node_name(node: Manifest) -> str:
    return str(node["metadata"]["name"])


def _has_gpus(node: Manifest) -> bool:
    return "nvidia.com/gpu" in node["status"]["allocatable"]


def _foreign(index: int, node: str, *, gpus: int) -> Manifest:
    resources: Manifest = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    if gpus:
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"work-{index:05d}",
            "namespace": f"other-{index % FOREIGN_NAMESPACES}",
            "labels": {"app": f"work-{index % 97}", "team": f"other-{index % FOREIGN_NAMESPACES}"},
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/work:1", "resources": resources}],
        },
    }
