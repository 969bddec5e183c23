"""What is advised about a plan, each with one sentence that says what to do next.

Decides the vocabulary of advice. Never decides which one applies. `docs/reasons.md` is generated from this
table and a test holds the two together.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class AdviceReason(StrEnum):
    """What is advised about a plan."""

    LOAD_ASSUMED = "LoadAssumed"
    PINNED_ABOVE_ONE_GPU = "PinnedAboveOneGPU"
    KV_CACHE_DECIDES = "KVCacheDecides"
    TENSOR_OVER_PCIE = "TensorOverPCIe"
    TENSOR_BEYOND_ISLAND = "TensorBeyondIsland"
    STAGES_FOR_CAPACITY = "StagesForCapacity"
    KV_CACHE_REPLICATED = "KVCacheReplicated"
    FOUR_BIT_EXPERTS = "FourBitExperts"
    WHOLE_NODE_DOMAIN = "WholeNodeDomain"
    LATENCY_NEEDS_OWN_GPUS = "LatencyNeedsOwnGPUs"
    CHEAPER_MIX = "CheaperMix"
    CHEAPER_OVER_PCIE = "CheaperOverPCIe"
    REPLICAS_FOR_PROFILE = "ReplicasForProfile"


ADVICE_SENTENCES: Final[Mapping[AdviceReason, str]] = MappingProxyType(
    {
        AdviceReason.LOAD_ASSUMED: (
            "A target is stated and no load, so that targets are judged for a lone request; the message says "
            "whether they hold at the load that is assumed, and where they stop to: state "
            "workload.requestsPerMinute or workload.concurrency to have your load judged."
        ),
        AdviceReason.PINNED_ABOVE_ONE_GPU: (
            "One GPU keeps what is stated and parallelism pins more: take the pin out, and let more traffic "
            "be more replicas."
        ),
        AdviceReason.KV_CACHE_DECIDES: (
            "The weights fit fewer GPUs, and only the KV cache takes more; a shorter model.maxContextTokens, "
            "shorter requests in spec.workload or an FP8 KV cache may do with fewer."
        ),
        AdviceReason.TENSOR_OVER_PCIE: (
            "Tensor ranks talk over PCIe in every layer, which takes longer than over NVLink; the predicted "
            "times count it: use GPUs with links, or a quantized checkpoint that needs fewer ranks."
        ),
        AdviceReason.TENSOR_BEYOND_ISLAND: (
            "There are more tensor ranks than an NVLink island has GPUs, so that some talk over PCIe; pin "
            "fewer, or use nodes with larger islands."
        ),
        AdviceReason.STAGES_FOR_CAPACITY: (
            "Pipeline stages hold what an island does not; they add memory and no speed to a single request: "
            "larger GPUs or a quantized checkpoint would do without."
        ),
        AdviceReason.KV_CACHE_REPLICATED: (
            "Each tensor rank holds the whole KV cache, since that of MLA cannot be split by heads; where "
            "requests in flight are what is short, try ranks with attention of their own, which no measured "
            "row covers: pin parallelism.data."
        ),
        AdviceReason.FOUR_BIT_EXPERTS: (
            "Experts of four bits are widened before they are multiplied: they save memory, not time; where "
            "an FP8 checkpoint fits, compare it in model.variants."
        ),
        AdviceReason.WHOLE_NODE_DOMAIN: (
            "A replica takes all GPUs of a large node, and whatever fails there takes all of it; the message "
            "says whether half of them would do."
        ),
        AdviceReason.LATENCY_NEEDS_OWN_GPUS: (
            "Services with targets in milliseconds slow each other down on one GPU, and no prediction counts "
            "it; give each of them GPUs of its own, without time-slicing or MPS."
        ),
        AdviceReason.CHEAPER_MIX: (
            "Two GPU products would take the load together for less; a service runs on one product, so write "
            "two services and split the traffic as the message says."
        ),
        AdviceReason.CHEAPER_OVER_PCIE: (
            "Ranks over PCIe would keep what is stated for less, and pool.interconnect.policy PreferNVLink "
            "takes them only when nothing else keeps it: write Any to let price decide."
        ),
        AdviceReason.REPLICAS_FOR_PROFILE: (
            "Targets of the profile, which slo does not state, are missed at the stated load, and more "
            "replicas would keep them; none is added for what nobody stated: write the targets in slo to "
            "have them kept."
        ),
    }
)
"""One sentence for each reason of advice: what it means and what to do next."""
