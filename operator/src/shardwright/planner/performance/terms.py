"""The terms of a predicted time by name, each with what it stands for.

Decides how the summands of TTFT and TPOT are called wherever they are shown. Never computes one.
"""

from shardwright.planner.performance.types import TPOTTerms, TTFTTerms

Named = tuple[tuple[str, float, str], ...]
"""Name, milliseconds, meaning."""


def ttft_terms(terms: TTFTTerms) -> Named:
    """Return the summands of the median TTFT."""
    return (
        ("request", terms.request_ms, "HTTP, tokenisation, scheduling."),
        ("weights", terms.weights_ms, "Reading the weights, once for each chunk of the prompt."),
        ("compute", terms.compute_ms, "What multiplying the prompt takes beyond that."),
        ("attention", terms.attention_ms, "Each token of the prompt with those before it."),
        ("communication", terms.communication_ms, "Between tensor ranks and pipeline stages."),
        ("launch", terms.launch_ms, "Starting kernels, routing experts."),
        ("step", terms.step_ms, "Waiting for the step under way and the decode steps of others."),
        ("queue", terms.queue_ms, "Prefills of other requests before this one."),
        ("slots", terms.slots_ms, "Waiting for a running request to end, when no more fit."),
        *_measured(terms.correction_ms),
    )


def tpot_terms(terms: TPOTTerms) -> Named:
    """Return the summands of the median TPOT."""
    return (
        ("weights", terms.weights_ms, "Reading the weights once."),
        ("compute", terms.compute_ms, "What multiplying takes beyond that."),
        ("kv", terms.kv_ms, "Reading the KV cache of all running requests."),
        ("communication", terms.communication_ms, "Between tensor ranks and pipeline stages."),
        ("launch", terms.launch_ms, "Starting kernels, routing experts, sampling."),
        ("interference", terms.interference_ms, "Prefills of others, spread over the output tokens."),
        *_measured(terms.correction_ms),
    )


def _measured(correction_ms: float) -> Named:
    if not correction_ms:
        return ()
    return (("measured", correction_ms, "What such engines were measured to take beyond the other terms."),)
