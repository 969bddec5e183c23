"""Every reason of a candidate: why an arrangement is the plan, or is not.

Decides the vocabulary, and one sentence for each. Never decides which one applies.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class CandidateReason(StrEnum):
    """What became of a candidate."""

    CHOSEN = "Chosen"
    LARGER_THAN_NEEDED = "LargerThanNeeded"
    """It fits, but a smaller one does too."""
    COSTS_MORE = "CostsMore"
    WEIGHTS_DO_NOT_FIT = "WeightsDoNotFit"
    KV_TOO_SMALL = "KVTooSmall"
    ILLEGAL_TENSOR_PARALLELISM = "IllegalTensorParallelism"
    BEYOND_ISLAND = "BeyondIsland"
    BEYOND_NODE = "BeyondNode"
    NUMBER_FORMAT_UNSUPPORTED = "NumberFormatUnsupported"
    OVER_BUDGET = "OverBudget"
    NODE_TOO_SMALL = "NodeTooSmall"
    NOT_PINNED = "NotPinned"
    MEMORY_UNKNOWN = "MemoryUnknown"
    NEEDS_MULTI_NODE = "NeedsMultiNode"
    UNVALIDATED = "Unvalidated"
    CONTEXT_TOO_LONG = "ContextTooLong"
    DRIVER_TOO_OLD = "DriverTooOld"
    RANKED_LOWER = "RankedLower"
    """It fits at the same cost, but a rule that its sentence names puts another first."""
    TTFT_TOO_HIGH = "TTFTTooHigh"
    TPOT_TOO_HIGH = "TPOTTooHigh"
    PAUSE_TOO_LONG = "PauseTooLong"
    RATE_TOO_LOW = "RateTooLow"
    SLOWER = "Slower"
    POOL_TOO_SMALL = "PoolTooSmall"
    PRICE_UNKNOWN = "PriceUnknown"


CANDIDATE_SENTENCES: Final[Mapping[CandidateReason, str]] = MappingProxyType(
    {
        CandidateReason.CHOSEN: "This arrangement is the plan.",
        CandidateReason.LARGER_THAN_NEEDED: (
            "It fits, but an arrangement with fewer GPUs does too; pin parallelism to use it all the same."
        ),
        CandidateReason.COSTS_MORE: (
            "It fits, but the chosen arrangement costs less; restrict pool.gpuProducts to force this product."
        ),
        CandidateReason.WEIGHTS_DO_NOT_FIT: (
            "Weights and overheads alone exceed one GPU's memory; more GPUs in a replica, a larger GPU or a "
            "quantized variant would help."
        ),
        CandidateReason.KV_TOO_SMALL: (
            "The weights fit, but the KV cache left is smaller than the work needs; lower "
            "model.maxContextTokens or workload.concurrency, or allow an FP8 KV cache."
        ),
        CandidateReason.ILLEGAL_TENSOR_PARALLELISM: (
            "The model's heads or widths cannot be split this many ways; another degree is needed."
        ),
        CandidateReason.BEYOND_ISLAND: (
            "Its ranks would leave the NVLink island; interconnect.policy Any permits that, at a cost in "
            "speed."
        ),
        CandidateReason.BEYOND_NODE: (
            "No node of the pool has as many GPUs as its tensor ranks need in one place."
        ),
        CandidateReason.NUMBER_FORMAT_UNSUPPORTED: (
            "The GPU cannot compute in the number format of the checkpoint, or of the KV cache where only "
            "FP8 is allowed; use another product or variant, or allow Auto."
        ),
        CandidateReason.OVER_BUDGET: (
            "It needs more GPUs than pool.maxGPUs allows; raise maxGPUs or lower minReplicas."
        ),
        CandidateReason.NODE_TOO_SMALL: (
            "The nodes lack CPU, memory or ephemeral storage for such a pod, even when they are empty."
        ),
        CandidateReason.NOT_PINNED: "spec.parallelism pins other degrees; remove the pin to let it compete.",
        CandidateReason.MEMORY_UNKNOWN: (
            "The memory model does not cover this model, GPU or engine version, so nothing is promised of it."
        ),
        CandidateReason.NEEDS_MULTI_NODE: (
            "One replica would span nodes, which this version cannot run yet; a larger GPU or a quantized "
            "variant would avoid it."
        ),
        CandidateReason.UNVALIDATED: (
            "No measurement covers it, and its predicted gain is too small to prefer it to a covered "
            "arrangement."
        ),
        CandidateReason.CONTEXT_TOO_LONG: (
            "model.maxContextTokens exceeds what the checkpoint declares; lower it or choose another "
            "checkpoint."
        ),
        CandidateReason.DRIVER_TOO_OLD: (
            "The nodes' GPU driver is older than the engine's image needs; update the driver or use an "
            "older engine."
        ),
        CandidateReason.RANKED_LOWER: (
            "It fits at the same cost, but a rule that its message names puts the chosen one first."
        ),
        CandidateReason.TTFT_TOO_HIGH: (
            "It fits, but a lone request is predicted to miss slo.ttft; relax it, shorten the input, or "
            "allow faster GPUs."
        ),
        CandidateReason.TPOT_TOO_HIGH: (
            "It fits, but a lone request is predicted to miss slo.tpot; relax it, or allow more GPUs to a "
            "replica or faster ones."
        ),
        CandidateReason.PAUSE_TOO_LONG: (
            "It fits, but one prefill chunk beside a decode step is predicted to take longer than slo.itl; "
            "relax it, or lower engine.maxNumBatchedTokens."
        ),
        CandidateReason.RATE_TOO_LOW: (
            "It fits, but as many replicas as pool.maxGPUs and scaling.maxReplicas allow are predicted to "
            "serve less than the stated load within the stated targets; raise them, or relax the targets."
        ),
        CandidateReason.SLOWER: (
            "It fits, but slo.optimizeFor is Latency and the chosen arrangement is predicted to be faster."
        ),
        CandidateReason.POOL_TOO_SMALL: (
            "It fits, but the pool's nodes hold a smaller part of the replicas that are wanted than of "
            "the chosen arrangement; add nodes of this product."
        ),
        CandidateReason.PRICE_UNKNOWN: (
            "It fits, but no price of this product is known, and the chosen arrangement has one; state it in "
            "the chart's prices, or in the file of --prices."
        ),
    }
)
"""One sentence for each candidate reason: what it means and what to do next."""
