"""Changes of the spec that would have a plan where there is none: each that is named was tried.

Decides which of a few changes do: a smaller load than the assumed one, a pin left out, ranks over PCIe
allowed, a quantised checkpoint of the same model. Never changes anything, and never names what was not
planned by it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.api.defaults import DEFAULT_CONCURRENCY_PER_REPLICA
from shardwright.catalog.models import load_models
from shardwright.planner.candidates import Survey, survey
from shardwright.planner.question import Fit, Question
from shardwright.planner.ranking import cost_of, winner_of
from shardwright.planner.types import ModelChoice

_QUANTISED = re.compile(r"-(fp8|nvfp4|mxfp4|awq|gptq|int4|int8|quantized|w4a16|w8a8|w8a16)\b")
"""How the names of quantised checkpoints go on after their model's."""


def other_ways(question: Question, surveys: Sequence[Survey]) -> str:
    """Say which single changes of the spec would have a plan, with what that is; empty when none would."""
    ways = [
        *_stated_load(question, surveys),
        *_without_pins(question, surveys),
        *_unlinked(question, surveys),
        *_quantised(question, surveys),
    ]
    return f". What would do as well: {', or '.join(ways)}" if ways else ""


def _stated_load(question: Question, surveys: Sequence[Survey]) -> Iterator[str]:
    """Where no load is stated, one is assumed: a smaller one may do."""
    if question.loaded:
        return
    for in_flight in range(DEFAULT_CONCURRENCY_PER_REPLICA - 1, 0, -1):
        total = in_flight * question.replicas
        traffic = replace(question.resolved.traffic, concurrency=total)
        asked = replace(question, resolved=replace(question.resolved, traffic=traffic))
        best = _best(asked, [(one, one.model) for one in surveys])
        if best is not None and best.replicas <= question.replicas:
            assumed = f"where {DEFAULT_CONCURRENCY_PER_REPLICA} a replica are assumed"
            yield f"workload.concurrency {total}, {assumed} ({_what(best)})"
            return


def unlinked(question: Question) -> Question:
    """Return the question with ranks over PCIe allowed."""
    return replace(question, resolved=replace(question.resolved, interconnect_policy="PreferNVLink"))


def _without_pins(question: Question, surveys: Sequence[Survey]) -> Iterator[str]:
    pins = question.spec.parallelism
    if pins is None or not (pins.tensor or pins.pipeline or pins.data):
        return
    free = pins.model_copy(update={"tensor": None, "pipeline": None, "data": None})
    asked = replace(question, spec=question.spec.model_copy(update={"parallelism": free}))
    if best := _best(asked, [(one, one.model) for one in surveys]):
        pinned = (("tensor", pins.tensor), ("pipeline", pins.pipeline), ("data", pins.data))
        names = " and ".join(f"parallelism.{name} {value}" for name, value in pinned if value)
        yield f"leave out {names} ({_what(best)})"


def _unlinked(question: Question, surveys: Sequence[Survey]) -> Iterator[str]:
    if question.policy != "RequireNVLink":
        return
    if best := _best(unlinked(question), [(one, one.model) for one in surveys]):
        yield f"pool.interconnect.policy PreferNVLink ({_what(best)})"


def _quantised(question: Question, surveys: Sequence[Survey]) -> Iterator[str]:
    tried = {one.model.model_id for one in surveys}
    pairs = [(one, other) for one in surveys for other in _siblings(one.model)]
    pairs = [(one, other) for one, other in pairs if other.model_id not in tried]
    if best := _best(question, pairs):
        yield f"{best.model.model_id} in model.variants ({_what(best)})"


def _siblings(model: ModelChoice) -> Iterator[ModelChoice]:
    """Yield the catalogue's quantised checkpoints of a model: of its name and its shape."""
    own, name = model.architecture, model.model_id.rsplit("/", 1)[-1].lower().removesuffix("-bf16")
    for model_id, other in load_models().items():
        rest = model_id.rsplit("/", 1)[-1].lower()
        alike = (other.num_layers, other.hidden_size) == (own.num_layers, own.hidden_size)
        if alike and rest.startswith(name) and _QUANTISED.match(rest.removeprefix(name)):
            yield ModelChoice(model_id=model_id, revision=None, architecture=other)


def _best(question: Question, pairs: Sequence[tuple[Survey, ModelChoice]]) -> Fit | None:
    """Return what would be planned of these checkpoints in the pool; never with a shorter context."""
    fits = [fit for one, model in pairs for fit in survey(question, model, one.offer).fits if not fit.clamped]
    return winner_of(fits, cost_of(question)) if fits else None


def _what(fit: Fit) -> str:
    return f"{fit.name} on {fit.offer.product.short_name}"
