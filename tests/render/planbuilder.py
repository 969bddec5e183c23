"""Plans and services built by hand, for tests of rendering and diagnosis. Figures are plausible, not predicted."""

from typing import Any

from shardwright.api.llmservice import LLMService
from shardwright.api.reasons import CandidateReason
from shardwright.catalog.types import GPUProduct, Interconnect, ModelArchitecture, MoEArchitecture
from shardwright.planner.types import (
    GIB,
    BillItem,
    Candidate,
    EngineLimits,
    MemoryEstimate,
    ModelChoice,
    Parallelism,
    Plan,
    Verdict,
)
from shardwright.topology.types import Resources

UID = "8d6b6c1e-5b5e-4b7a-9d56-0f6a3a1f9a10"

H100 = GPUProduct(
    label="NVIDIA-H100-80GB-HBM3", vendor="nvidia", family="hopper", compute_capability=(9, 0), memory_mib=81559,
    visible_gib=79.19, interconnect=Interconnect.NVSWITCH, island_gpus=8, link_gbytes_s=450, pcie_gbytes_s=64,
    memory_gbytes_s=3350, short_name="H100", verified=True, price_per_gpu_hour=2.5,
)  # fmt: skip
A6000 = GPUProduct(
    label="NVIDIA-RTX-A6000", vendor="nvidia", family="ampere", compute_capability=(8, 6), memory_mib=49140,
    visible_gib=47.4, interconnect=Interconnect.BRIDGE_PAIR, island_gpus=1, link_gbytes_s=56, pcie_gbytes_s=32,
    memory_gbytes_s=768, short_name="A6000", verified=True,
    aliases=("NVIDIA RTX A6000", "RTX-A6000"),
)  # fmt: skip
MI300X = GPUProduct(
    label="AMD_Instinct_MI300X_OAM", vendor="amd", family="AI", compute_capability=None, memory_mib=196608,
    visible_gib=191.5, interconnect=Interconnect.XGMI, island_gpus=8, link_gbytes_s=448, pcie_gbytes_s=64,
    memory_gbytes_s=5300, short_name="MI300X", verified=True,
)  # fmt: skip


def service(spec: dict[str, Any] | None = None, name: str = "chat", generation: int = 1) -> LLMService:
    """An LLMService from the spec as a user writes it; model and pool have defaults."""
    base: dict[str, Any] = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "pool": {"maxGPUs": 16}}
    merged = base | (spec or {})
    merged["pool"] = {"maxGPUs": 16} | merged["pool"]
    metadata = {"name": name, "namespace": "team-a", "uid": UID, "generation": generation}
    return LLMService.model_validate({"metadata": metadata, "spec": merged})


def architecture(model_id: str, billions: float, *, moe: bool = False) -> ModelArchitecture:
    return ModelArchitecture(
        model_id=model_id, family="llama", num_layers=32, hidden_size=4096, intermediate_size=14336,
        num_attention_heads=32, num_kv_heads=8, head_dim=128, vocab_size=128256, max_position_embeddings=131072,
        moe=MoEArchitecture(num_experts=128, experts_per_token=8, expert_intermediate_size=768) if moe else None,
        checkpoint_bytes=int(billions * 2e9), source="a test",
    )  # fmt: skip


def estimate(weights_gib: float) -> MemoryEstimate:
    return MemoryEstimate(
        verdict=Verdict.FITS, coverage="dense on Hopper, 0.32 and newer", covered=True, visible_gib=79.19,
        weights_gib_per_gpu=weights_gib, activation_gib=1.26, non_torch_gib=0.26, cuda_graph_gib=0.5,
        margin_gib=0.79, kv_cache_gib_per_gpu=54.5, kv_tokens=446_000, promised_kv_tokens=440_000,
        max_concurrency=13.6, kv_bytes_per_token_per_gpu=131072.0, largest_model_len=131072,
        bill=(
            BillItem(item="weights", gib=weights_gib, why="8.03e9 parameters of 2 bytes"),
            BillItem(item="KV cache", gib=54.5, why="what remains"),
        ),
    )  # fmt: skip


def plan(
    model_id: str = "meta-llama/Llama-3.1-8B-Instruct",
    *,
    product: GPUProduct = H100,
    parallelism: Parallelism | None = None,
    billions: float = 8.03,
    replicas: int = 2,
    revision: str | None = "0e9e39f249a16976918f6564b8830bc894c89659",
    limits: EngineLimits | None = None,
    moe: bool = False,
    **changes: Any,
) -> Plan:
    split = parallelism or Parallelism()
    chosen = Candidate(
        model_id=model_id, product=product.label, parallelism=split, reason=CandidateReason.CHOSEN,
        message="the smallest arrangement that holds the work",
    )  # fmt: skip
    shm = 2 * GIB * split.gpus
    values: dict[str, Any] = {
        "model": ModelChoice(model_id=model_id, revision=revision, architecture=architecture(model_id, billions, moe=moe)),
        "product": product,
        "parallelism": split,
        "limits": limits
        or EngineLimits(
            max_model_len=32768, max_num_seqs=256, max_num_batched_tokens=8192, gpu_memory_utilization_percent=92
        ),
        "estimate": estimate(round(billions * 2e9 / GIB / split.gpus, 2)),
        "replicas": replicas,
        "pod_resources": Resources(
            gpus=split.gpus, cpu_millis=4000 * split.gpus, memory_bytes=32 * GIB * split.gpus + shm,
            ephemeral_bytes=60 * GIB,
        ),
        "shm_bytes": shm,
        "gpu_resource": "amd.com/gpu" if product.vendor == "amd" else "nvidia.com/gpu",
        "within_island": True,
        "planned_concurrency": 8,
        "required_kv_tokens": 38_400,
        "context_clamped_from": None,
        "binding_constraint": "weights: 15.0 of 79.2 GiB on one GPU leave room for 440000 tokens",
        "coverage": "dense on Hopper, 0.32 and newer",
        "candidates": (chosen,),
        "inputs_digest": "f00dfeed" * 4,
        "nodes_gpus": split.gpus,
    }  # fmt: skip
    return Plan(**(values | changes))
