"""An explanation as text, for the command line.

Decides how it reads: short (the choice, what to know of it, where it has room) or whole (the questions, the
bill, the predicted times, what other targets cost, every candidate). Never a word or a figure that is not in
the document.
"""

from collections.abc import Sequence

from shardwright.planner.explanation.answer import beyond
from shardwright.planner.explanation.document import (
    Candidate,
    Choice,
    CostCurve,
    Curves,
    Explanation,
    Load,
    Measured,
    Memory,
    Mix,
    Number,
    Prediction,
    ProductPrice,
    Proposal,
    Room,
    SecondOpinion,
    Time,
)
from shardwright.planner.question import count

_SHOWN_MS = 0.005
"""Terms nearer to 0 would be printed as nothing."""


def short_text(found: Explanation) -> str:
    """Write the decision, its notes and its room; the reasons are left to the whole explanation."""
    if found.choice is None:
        lines = [f"No plan: {found.reason}", f"  {found.message}"]
    else:
        lines = [
            *_plan_lines(found, found.choice),
            f"  not smaller  {found.choice.binding_constraint}",
        ]
    lines += _notes(found)
    if found.room is not None:
        lines += ["", *_room(found.room)]
    if found.candidates:
        lines += ["", f"{len(found.candidates)} candidates: shardwright explain tells each and its reason"]
    return "\n".join([*lines, ""])


def whole_text(found: Explanation) -> str:
    """Write all of it, in the order of the decision's questions."""
    told = found.answer
    head = [f"{found.service.namespace}/{found.service.name}: ".lstrip("/") + _headline(found)]
    lines = [
        *head,
        f"  runs         {told.runs}",
        f"  costs        {told.costs}",
        f"  keeps        {told.keeps}",
        f"  limits       {told.limits}",
        *_source(found),
    ]
    if found.choice is not None:
        lines += ["", *_plan_lines(found, found.choice)]
    if found.questions:
        lines += ["", "Questions, in order:"]
        lines += [
            f"  {n}. {step.question} {step.answer}: {step.because}"
            for n, step in enumerate(found.questions, 1)
        ]
    lines += _notes(found)
    lines += _proposal(found.proposal)
    lines += _mix(found.cheaper_mix)
    lines += _memory(found.memory)
    lines += _terms(found.prediction)
    lines += _curves(found.curves)
    lines += [line for curve in found.cost for line in _cost(curve)]
    if found.measured is not None:
        lines += _measured(found.measured)
    if found.room is not None:
        lines += ["", *_room(found.room)]
    lines += _prices(found.prices)
    lines += candidate_lines(found.candidates)
    return "\n".join([*lines, ""])


def candidate_lines(candidates: Sequence[Candidate]) -> list[str]:
    """Write every candidate once, with its reason."""
    if not candidates:
        return []
    rows = [f"  {c.arrangement}: {c.reason}: {c.message}" for c in candidates]
    return ["", f"Candidates ({len(candidates)}):", *rows]


def _prices(prices: Sequence[ProductPrice]) -> list[str]:
    """Write what a GPU costs, and who says so."""
    if not prices:
        return []
    width = max(len(price.gpu) for price in prices)
    rows = []
    for price in prices:
        amount = "?" if price.price_per_gpu_hour is None else f"{price.price_per_gpu_hour:.2f}"
        lists = f" ({price.source})" if price.source else ""
        rows.append(f"  {price.gpu:<{width}} {amount:>7}  {price.origin or 'not known'}{lists}")
    return ["", "Prices, USD of one GPU for one hour:", *rows]


def _headline(found: Explanation) -> str:
    return f"no plan, {found.reason}" if found.choice is None else found.choice.summary


def _source(found: Explanation) -> list[str]:
    if found.source.type == "Decided":
        return []
    lines = [f"  recorded     as frozen in revision {found.source.revision}"]
    return [*lines, *(f"  not recorded {sentence}" for sentence in found.source.not_recorded)]


def _plan_lines(found: Explanation, choice: Choice) -> list[str]:
    engine, pod, memory = choice.engine, choice.pod, found.memory
    flags = (
        f"max-num-seqs {engine.max_num_seqs}, max-num-batched-tokens {engine.max_num_batched_tokens}, "
        f"gpu-memory-utilization {engine.gpu_memory_utilization_percent} %, "
        f"kv-cache-dtype {engine.kv_cache_dtype}"
    )
    needs = (
        f"{pod.cpu_millis / 1000:g} CPUs, {pod.memory_gib} GiB memory of which {pod.shm_gib} GiB shared, "
        f"{pod.ephemeral_gib} GiB disk"
    )
    cache = "" if memory is None else (
        f"{memory.promised_kv_tokens} tokens for certain; the work needs {memory.needed_kv_tokens} "
        f"({memory.requests_in_flight} requests in flight in one engine)"
    )  # fmt: skip
    return [
        f"Plan: {choice.summary}",
        f"  model        {choice.model}",
        f"  GPU          {choice.gpu_product}, {choice.gpus_per_replica} a replica, {choice.gpus} in all",
        f"  context      {choice.max_context_tokens} tokens",
        f"  engine       {flags}",
        f"  KV cache     {cache}",
        f"  pod          {needs}",
        *_speed(found.prediction, found.load, choice),
        f"  coverage     {choice.coverage}",
    ]


def _speed(predicted: Prediction | None, load: Load, choice: Choice) -> list[str]:
    if predicted is None:
        return ["  speed        not predicted"]
    total = "" if choice.price_per_hour is None else f", {choice.price_per_hour:.2f} an hour in all"
    band = predicted.band
    times = f"{_time(predicted.ttft)}, {_time(predicted.tpot)}"
    mark = "" if band.covered else "Unvalidated: "
    rate = f"{load.most_requests_per_minute_per_replica} requests a minute"
    limit = f"; {beyond(load.limit)}" if load.limit is not None else ""
    return [
        f"  speed        {times} with {load.running_per_replica} requests running in a replica{total}",
        f"  load         a replica takes {rate}{limit}",
        f"  error band   {mark}{band.low:.2f} to {band.high:.2f} times the prediction ({band.phrase})",
        *_second(predicted.second_opinion),
    ]


def _second(second: SecondOpinion | None) -> list[str]:
    """Write what another model says of the TPOT."""
    if second is None:
        return []
    if second.verdict is None:
        return [f"  second       no opinion from {second.source}: {second.said}"]
    band = f"TPOT is {second.tpot_band_low:.2f} to {second.tpot_band_high:.2f} times the prediction"
    return [f"  second       {second.source} says {second.said}: {band}"]


def _time(time: Time) -> str:
    value = "without end" if time.judged_ms is None else f"{time.judged_ms} ms"
    return f"{time.name} P{time.percentile} {value}"


def _notes(found: Explanation) -> list[str]:
    """Write the notes, those that are advice with their reason."""
    known = {advice.message: f" ({advice.reason})" for advice in found.advice}
    notes = [f"  - {note}{known.get(note, '')}" for note in found.notes]
    return ["", "Notes:", *notes] if notes else []


def _mix(mix: Mix | None) -> list[str]:
    """Write two products that would do for less, with the split of replicas and traffic."""
    if mix is None:
        return []
    lines = ["", f"Cheaper on two products, as advice ({_price(mix.price_per_hour)} in all):"]
    for part in mix.parts:
        kv = "" if part.kv_cache_dtype == "auto" else f" with {part.kv_cache_dtype.upper()} KV cache"
        lines.append(
            f"  {part.traffic_percent:>3} % of the traffic  {part.model} on {part.gpu_product} "
            f"{part.parallelism}{kv} ×{part.replicas}, {count(part.gpus, 'GPU')}, "
            f"{_price(part.price_per_hour)}"
        )
    return lines


def _proposal(proposal: Proposal | None) -> list[str]:
    """Write what is proposed and not in force."""
    if proposal is None:
        return []
    price = _price(proposal.price_per_hour)
    return [
        "",
        f"Proposed and not in force ({proposal.reason}):",
        f"  revision     {proposal.revision}: {proposal.summary}, {count(proposal.gpus, 'GPU')}, {price}",
        f"  changes      {', '.join(proposal.changes)}",
        f"  to run it    {proposal.approve}",
    ]


def _memory(memory: Memory | None) -> list[str]:
    if memory is None:
        return []
    width = max((len(line.item) for line in memory.bill), default=0)
    rows = [f"  {line.item:<{width}} {line.gib:8.2f}  {line.why}" for line in memory.bill]
    return ["", "Memory of the fullest GPU, GiB:", *rows]


def _terms(predicted: Prediction | None) -> list[str]:
    if predicted is None:
        return []
    lines = []
    for time in (predicted.ttft, predicted.tpot):
        if time.median_ms is None:
            continue
        lines += ["", f"Median {time.name} at the planned load: {time.median_ms} ms, the sum of:"]
        lines += [
            f"  {term.name:<13} {term.ms:>9.2f}  {term.why}"
            for term in time.terms
            if term.ms is not None and abs(term.ms) >= _SHOWN_MS
        ]
    return lines


def _curves(curves: Curves | None) -> list[str]:
    if curves is None:
        return []
    heads = [f"{name} P{p}" for name in ("TTFT", "TPOT") for p in curves.percentiles]
    lines = ["", f"One replica against its load, ms ({curves.unit}; * is the planned load):"]
    lines.append("  " + f"{'load':>8}" + "".join(f"{head:>11}" for head in heads))
    for point in curves.points:
        cells = [t.ttft_ms for t in point.times] + [t.tpot_ms for t in point.times]
        mark = "*" if point.load == curves.planned else " "
        lines.append(f" {mark}{point.load:>8}" + "".join(f"{_cell(c):>11}" for c in cells))
    return lines


def _cost(curve: CostCurve) -> list[str]:
    whose = "target" if curve.stated else "the profile's target"
    lines = ["", f"Cost against {curve.target} P{curve.percentile} ({whose} is {curve.current_ms} ms):"]
    for point in curve.points:
        what = (
            f"no plan, {point.reason}"
            if point.summary is None
            else f"{_price(point.price_per_hour):>9}  {point.summary}"
        )
        lines.append(f"  {point.target_ms:>7} ms  {what}")
    return lines


def _price(price: Number | None) -> str:
    return "?" if price is None else f"{price:.2f}/h"


def _cell(value: Number | None) -> str:
    return "without end" if value is None else f"{value}"


def _measured(measured: Measured) -> list[str]:
    lines = ["", f"Measured by {measured.source}, as of {measured.at}:"]
    for figure in measured.figures:
        known = f"{figure.measured} where {figure.predicted} is predicted, {figure.ratio} times"
        what = figure.reason if figure.ratio is None else f"{known} ({figure.reason})"
        lines.append(f"  {figure.name:<9} {what}; {figure.samples} samples")
    return lines


def _room(room: Room) -> list[str]:
    lines = [f"Room now: {room.placed} of {room.wanted} replicas"]
    lines += [f"  {node.name}: {node.count}" for node in room.nodes]
    if room.stranded_gpus:
        lines.append(f"  {room.stranded_gpus} free GPUs are too few on their nodes for one more replica")
    if room.obstacle:
        lines.append(f"  {room.obstacle}")
    if room.holders:
        lines.append(f"  GPUs are held by {', '.join(f'{h.name} ({h.count})' for h in room.holders)}")
    return lines
