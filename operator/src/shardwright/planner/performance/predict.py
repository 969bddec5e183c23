"""TTFT, TPOT and throughput of one arrangement at one load.

Decides how the parts of the model come together to one answer. Never searches. Formulas, constants and
measured errors: `docs/performance-model.md`.
"""

from shardwright.catalog.performance import PerformanceConstants, load_performance_constants
from shardwright.planner.performance.band import band
from shardwright.planner.performance.load import MS, Engine, Settled, engine_of, longest_step_ms, settle
from shardwright.planner.performance.speed import speed
from shardwright.planner.performance.tails import tails
from shardwright.planner.performance.types import (
    PerformanceRequest,
    Prediction,
    TPOTTerms,
    TTFTTerms,
)


def predict(request: PerformanceRequest, constants: PerformanceConstants | None = None) -> Prediction:
    """Return what one replica does under the request's load.

    `constants`: the shipped ones when absent. Raises MissingFactError when the card's row lacks a rate.
    """
    engine = engine_of(request, speed(request, constants or load_performance_constants()))
    state = settle(engine, request.concurrency, request.rate_per_s)
    ttft, tpot = _ttft(engine, state), _tpot(engine, state)
    at = state.at
    ttft_ms, tpot_ms = ttft.total_ms, tpot.total_ms
    return Prediction(
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        output_tokens_per_s=at.rate_per_ms * MS * request.output_tokens,
        requests_per_s=at.rate_per_ms * MS,
        running=at.running,
        utilisation=state.utilisation,
        saturated=state.saturated,
        longest_step_ms=longest_step_ms(engine, at),
        ttft=ttft,
        tpot=tpot,
        tails=tails(ttft_ms, tpot_ms, at.running),
        band=band(request),
    )


def _ttft(engine: Engine, state: Settled) -> TTFTTerms:
    speed, prompt, at = engine.speed, engine.prompt, state.at
    return TTFTTerms(
        request_ms=speed.request_ms,
        weights_ms=prompt.weights_ms,
        compute_ms=prompt.compute_ms,
        attention_ms=prompt.attention_ms,
        communication_ms=prompt.communication_ms,
        launch_ms=prompt.launch_ms + speed.launch_ms + speed.sequence_ms,
        step_ms=at.step_wait_ms,
        queue_ms=at.queue_ms,
        slots_ms=state.slots_ms,
        correction_ms=at.ttft_ms * (1.0 - 1.0 / engine.ttft_ratio),
    )


def _tpot(engine: Engine, state: Settled) -> TPOTTerms:
    step = state.at.step
    return TPOTTerms(
        weights_ms=step.weights_ms,
        compute_ms=step.compute_ms,
        kv_ms=step.kv_ms,
        communication_ms=step.communication_ms,
        launch_ms=step.launch_ms,
        interference_ms=state.at.interference_ms,
        correction_ms=state.at.tpot_ms * (1.0 - 1.0 / engine.tpot_ratio),
    )
