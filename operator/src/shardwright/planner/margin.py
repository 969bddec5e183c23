"""What the memory model covers, and the reserve it keeps.

Decides the class of a prediction (which measured starts stand behind it) and how much of the predicted cache
is not promised. Never changes the prediction itself.

Sources: distribution of predicted minus measured cache over the start-up data (`docs/memory-model.md`): dense
NVIDIA P95 +0.13 GiB, MLA +1.79, other experts +1.27, MI300X +3.06.
"""

from dataclasses import dataclass

from shardwright.catalog.types import AttentionKind, ModelArchitecture, NumberFormat
from shardwright.planner.types import MemoryRequest

DENSE_GIB = 0.5
DENSE_SHARE = 0.01
EXPERTS_GIB = 2.0
AMD_GIB = 4.0
STATE_GIB = 5.0
UNCOVERED_FACTOR = 2.0
"""The reserve of a class that no start stands behind."""
NEWER_ENGINE_SHARE = 0.005
"""On top, of the budget, where the engine's version class was not measured but its accounting is carried
on."""

MEASURED_FAMILIES = frozenset({
    "llama", "mistral", "mistral3", "mixtral", "qwen2", "qwen2_moe", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3",
    "qwen3_moe",
    "qwen3_vl_text", "qwen3_vl_moe_text", "gemma", "gemma2", "gemma3", "gemma3_text", "granite", "phi",
    "phi3", "gpt_oss", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_vl", "minimax_m2",
})  # fmt: skip
"""model_type of the models with a measured start."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What stands behind a prediction."""

    phrase: str
    covered: bool
    margin_gib: float
    notes: tuple[str, ...] = ()


def coverage(request: MemoryRequest, budget_gib: float) -> Coverage:
    """Return class, coverage and reserve of a request; `budget_gib` is utilisation x visible memory."""
    name, margin = _reserve(request, budget_gib)
    gaps = _gaps(request)
    notes = []
    if gaps:
        return Coverage(f"{name}, not covered: {'; '.join(gaps)}", False, margin * UNCOVERED_FACTOR)
    if not request.engine.measured:
        margin += NEWER_ENGINE_SHARE * budget_gib
        name += f", engine {_version(request)} not measured (accounting of 0.20)"
        notes.append(
            "No start of this engine version was measured: that of 0.20 is carried on, with more reserve."
        )
    if request.gpu.visible_gib is None and request.visible_gib is None:
        margin += NEWER_ENGINE_SHARE * budget_gib
        name += f", visible memory of {request.gpu.short_name} not measured"
        notes.append("Visible memory is the label's less 0.6 GiB: no start-up log of this product states it.")
    return Coverage(name, True, margin, tuple(notes))


def _reserve(request: MemoryRequest, budget_gib: float) -> tuple[str, float]:
    model, amd = request.architecture, request.gpu.vendor == "amd"
    kind = _kind(model)
    if model.attention is AttentionKind.STATE_HYBRID:
        return kind, STATE_GIB
    if amd:
        return f"{kind} on AMD", AMD_GIB
    name = f"{kind} on NVIDIA, vLLM {request.engine.name}"
    if model.moe is not None or model.mla is not None or model.attention is AttentionKind.OTHER:
        return name, EXPERTS_GIB
    return name, max(DENSE_GIB, DENSE_SHARE * budget_gib)


def _kind(model: ModelArchitecture) -> str:
    words = "mixture of experts" if model.moe is not None else "dense"
    if model.attention is AttentionKind.MLA:
        words = f"MLA {words}"
    if model.attention is AttentionKind.SLIDING_HYBRID:
        words = f"sliding-window {words}"
    if model.attention is AttentionKind.STATE_HYBRID:
        words = f"state-space hybrid {words}"
    return words


def _gaps(request: MemoryRequest) -> list[str]:
    """Return what is modelled but not measured, one phrase each."""
    model, split = request.architecture, request.parallelism
    found = []
    if model.family not in MEASURED_FAMILIES:
        found.append(f"no start of a {model.family} model was measured")
    if not request.engine.v1:
        found.append("the engine before V1")
    if _amd_experts(request):
        found.append("16-bit experts on ROCm are padded by an amount that differs between models")
    if request.added_flags:
        found.append(f"{', '.join(request.added_flags)} in engine.args")
    if split.data > 1 or split.expert:
        found.append("workspaces of data and expert parallelism")
    if model.quantization.format is NumberFormat.UNKNOWN:
        found.append(f"number format {model.quantization.method}")
    return found


def _amd_experts(request: MemoryRequest) -> bool:
    experts = request.architecture.moe is not None and request.gpu.vendor == "amd"
    return experts and request.architecture.quantization.format in {NumberFormat.BF16, NumberFormat.FP16}


def _version(request: MemoryRequest) -> str:
    return ".".join(str(part) for part in request.engine.version[:2])
