"""The first screen of an explanation, in plain words: what runs, what it costs, does it hold, what limits it.

Decides sentences for somebody who knows what the service is for, not how an engine works. Every figure in
them is one of the document's.
"""

from shardwright.planner.explanation.document import Answer, Choice, Load, Prediction
from shardwright.planner.explanation.walk import time_text
from shardwright.planner.question import count
from shardwright.planner.types import NoPlan, Parallelism

_LIMITS = {
    "TTFT": "the time to the first token (TTFT) would be too long",
    "TPOT": "the time between tokens (TPOT) would be too long",
    "LongestStep": "the pauses between tokens would be too long",
    "Slots": "the engine's batch or its KV cache is full",
}


def answer(
    choice: Choice, split: Parallelism, load: Load, predicted: Prediction | None, *, short: bool
) -> Answer:
    """Return the first screen of a plan. `short`: fewer replicas run than the stated load takes."""
    if predicted is None:
        verdict, keeps = "NotKnown", "Not known: no latency is predicted for this model on this GPU."
    else:
        kept = all(t.kept for t in (predicted.ttft, predicted.tpot)) and not short
        verdict, keeps = ("Kept" if kept else "NotKept"), _keeps(load, predicted, short)
    return Answer.model_validate(
        {
            "verdict": verdict,
            "runs": _runs(choice, split),
            "costs": _costs(choice),
            "keeps": keeps,
            "limits": _limits(choice, load),
        }
    )


def refusal(decision: NoPlan) -> Answer:
    """Return the first screen where there is no plan."""
    return Answer(
        verdict="NoPlan",
        runs="Nothing: no arrangement in this pool serves the model as asked.",
        costs="Nothing.",
        keeps=f"No ({decision.reason.value}).",
        limits=f"{decision.message[:1].upper()}{decision.message[1:]}.".replace("..", "."),
    )


def _runs(choice: Choice, split: Parallelism) -> str:
    gpus = f"{choice.gpus} {choice.gpu} {'GPU' if choice.gpus == 1 else 'GPUs'}"
    if choice.gpus_per_replica == 1:
        how = count(choice.replicas, "replica") + (
            " of one GPU each" if choice.replicas > 1 else " on one GPU"
        )
    else:
        each = " each" if choice.replicas > 1 else ""
        how = f"{count(choice.replicas, 'replica')} of {choice.gpus_per_replica} GPUs{each} ({_split(split)})"
    return f"{choice.model} on {gpus}: {how}."


def _split(split: Parallelism) -> str:
    parts = []
    if split.tensor > 1:
        parts.append(f"every layer split over {split.tensor} GPUs")
    if split.pipeline > 1:
        parts.append(f"the layers in {split.pipeline} stages")
    if split.data > 1:
        parts.append(f"attention {split.data} times")
    if split.expert:
        parts.append("the experts spread")
    return ", ".join(parts)


def _costs(choice: Choice) -> str:
    if choice.price_per_hour is None:
        return f"{count(choice.gpus, 'GPU')}; no price of a {choice.gpu} is known."
    listed = choice.price_origin == "Default"
    whose = "a list price, the default; yours may differ" if listed else "as configured"
    gpus, each = count(choice.gpus, "GPU"), f"{choice.price_per_gpu_hour:.2f}"
    return f"{choice.price_per_hour:.2f} USD an hour: {gpus} at {each} ({whose})."


def _keeps(load: Load, predicted: Prediction, short: bool) -> str:
    times = (predicted.ttft, predicted.tpot)
    stated, missed = any(t.stated for t in times), [t.name for t in times if not t.kept]
    what = "the targets" if stated else f"the targets of the {load.profile} profile (none is stated)"
    at = (
        f"with {load.per_replica} {load.unit} in a replica (no load is stated)"
        if load.stated is None
        else f"at {load.stated} {load.unit}"
    )
    told = "; ".join(time_text(t) for t in times)
    if short:
        return f"No: the stated load takes more replicas than run. With as many as it takes: {told}."
    head = f"Not {' and '.join(missed)}" if missed else "Yes, as predicted"
    doubt = "" if predicted.band.covered else " Nothing measured covers this: take the figures as a guess."
    return f"{head}: {what} {at}: {told}.{doubt}"


def beyond(limit: str) -> str:
    """Say what stops a replica from more load."""
    return f"beyond that {_LIMITS.get(limit, limit)}"


def _limits(choice: Choice, load: Load) -> str:
    parts = []
    if load.limit is not None and load.most_requests_per_minute_per_replica is not None:
        each = f"{load.most_requests_per_minute_per_replica} requests a minute"
        parts.append(f"One replica takes {each}; {beyond(load.limit)}.")
    constraint = choice.binding_constraint
    parts.append(
        f"It is not smaller because: {constraint}."
        if choice.gpus_per_replica > 1
        else f"It is the smallest there is: {constraint}."
    )
    return " ".join(parts)
