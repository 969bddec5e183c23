"""Raw Kubernetes nodes and pods for the topology and planner tests."""

H100 = "NVIDIA-H100-80GB-HBM3"
A100_40 = "NVIDIA-A100-SXM4-40GB"
L40S = "NVIDIA-L40S"
A6000 = "NVIDIA-RTX-A6000"
V100 = "Tesla-V100-SXM2-32GB"
MEMORY = {H100: 81559, A100_40: 40960, L40S: 46068, A6000: 49140, V100: 32768, "NVIDIA-H200": 143771}


def node(
    name,
    product=H100,
    gpus=8,
    *,
    allocatable=None,
    labels=None,
    taints=(),
    ready=True,
    cordoned=False,
    host=None,
):
    """A GPU node as `kubectl get node -o json` shows it."""
    found = {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.memory": str(MEMORY.get(product, 81559)),
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/cuda.driver-version.major": "580",
        **(labels or {}),
    }
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {k: v for k, v in found.items() if v is not None}},
        "spec": {"taints": [dict(t) for t in taints], **({"unschedulable": True} if cordoned else {})},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "allocatable": {
                "cpu": "128",
                "memory": "1024Gi",
                "ephemeral-storage": "4Ti",
                "nvidia.com/gpu": str(gpus if allocatable is None else allocatable),
                **(host or {}),
            },
        },
    }


def pod(
    name, node_name="", gpus=1, *, namespace="work", phase="Running", owner=None, revision="", **metadata
):
    """A pod with one container that asks for GPUs."""
    labels = {"shardwright.dev/service": owner, "shardwright.dev/revision": revision} if owner else {}
    if owner:  # as the pods of a Deployment are
        labels["pod-template-hash"] = "5f"
        controller = {"kind": "ReplicaSet", "name": f"{owner}-{revision}-5f", "controller": True}
        metadata["ownerReferences"] = [controller]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, **metadata},
        "spec": {
            **({"nodeName": node_name} if node_name else {}),
            "containers": [
                {
                    "resources": {
                        "limits": {"nvidia.com/gpu": str(gpus)},
                        "requests": {"cpu": "4", "memory": "8Gi"},
                    }
                }
            ],
        },
        "status": {"phase": phase},
    }
