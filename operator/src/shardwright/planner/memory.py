"""Whether an engine will start, and with how much KV cache.

Decides the memory bill of the fullest GPU of a replica as vLLM itself keeps it: cache = utilisation x visible
memory - weights - non-torch - activation peak - (from 0.20 on) CUDA graphs. Never decides which arrangement
is better.

Sources and measured errors: `docs/memory-model.md`.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from shardwright.catalog.engines import start_constants
from shardwright.catalog.gpus import visible_gib
from shardwright.catalog.types import AttentionKind, ModelArchitecture
from shardwright.planner import activation, kv, weights
from shardwright.planner.margin import Coverage, coverage
from shardwright.planner.types import (
    GIB,
    BillItem,
    EngineLimits,
    MemoryEstimate,
    MemoryRequest,
    Parallelism,
    Verdict,
)

VISIBLE, KV_CACHE = "Visible memory", "KV cache"
"""Items of the bill that others look for: what there is, and what is left."""
HOPPER = 9
"""Major compute capability whose block-FP8 experts run by DeepGEMM unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The bill of one pipeline stage, in GiB; `tokens` is what its own pool would hold."""

    stage: weights.Stage
    weights: float
    activation: float
    correction: float
    """What was measured beyond all that is predicted."""
    pool: float
    concurrency: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """What all ranks share, in GiB."""

    total: float
    budget: float
    non_torch: float
    graphs: float
    margin: float
    subtracted: float
    """What of these the engine takes before the pool."""


@lru_cache(maxsize=2048)
def estimate(request: MemoryRequest) -> MemoryEstimate:
    """Return the memory bill and verdict of an arrangement.

    The figures are of the pipeline stage that holds the fewest tokens, as vLLM takes the smallest. `verdict`
    counts on the pool less the margin. Pure; results are cached by value.
    """
    total = request.visible_gib if request.visible_gib is not None else visible_gib(request.gpu)
    budget = total * request.percent / 100
    known = coverage(request, budget)
    graphs = _graph_gib(request)
    account = _Account(
        total=total,
        budget=budget,
        non_torch=_non_torch_gib(request),
        graphs=graphs,
        margin=known.margin_gib,
        subtracted=_non_torch_gib(request) + (graphs if request.engine.subtracts_cuda_graphs else 0.0),
    )
    bills = [_stage(request, stage, account) for stage in _stages(request)]
    return _answer(request, known, account, min(bills, key=lambda bill: (bill.tokens, bill.pool)))


def _answer(request: MemoryRequest, known: Coverage, account: _Account, worst: _Stage) -> MemoryEstimate:
    """Judge the stage that holds the fewest tokens."""
    model, limits, tensor = request.architecture, request.limits, request.parallelism.tensor
    promised = max(0.0, worst.pool - account.margin) * GIB
    _, promised_tokens = kv.pool_tokens(model, tensor, worst.stage, limits, promised)
    need = kv.request_bytes(model, tensor, worst.stage, limits, limits.max_model_len)
    room = _room_outside_gib(request, account.total, account.graphs)
    return MemoryEstimate(
        verdict=_verdict(request, worst.pool, promised >= need, room),
        coverage=_phrase(model, known),
        covered=known.covered and not model.unpredicted,
        visible_gib=account.total,
        weights_gib_per_gpu=worst.weights,
        activation_gib=worst.activation,
        non_torch_gib=account.non_torch,
        cuda_graph_gib=account.graphs,
        margin_gib=account.margin,
        kv_cache_gib_per_gpu=worst.pool,
        kv_tokens=worst.tokens,
        promised_kv_tokens=promised_tokens,
        max_concurrency=worst.concurrency,
        kv_bytes_per_token_per_gpu=need / limits.max_model_len,
        largest_model_len=kv.longest_request(model, tensor, worst.stage, limits, promised),
        bill=_bill(request, account, worst),
        notes=_notes(request, known, worst.pool, need / GIB, room),
    )


def _stages(request: MemoryRequest) -> tuple[weights.Stage, ...]:
    """Return the stages that can differ: the first, the last, and the longest between them."""
    found = weights.stages(request.architecture.num_layers, request.parallelism.pipeline)
    if len(found) <= 2:
        return found
    return found[0], max(found[1:-1], key=lambda stage: stage.layers), found[-1]


def _stage(request: MemoryRequest, stage: weights.Stage, account: _Account) -> _Stage:
    model, split, limits = request.architecture, request.parallelism, request.limits
    loaded = weights.stage_bytes(model, split, stage, amd=request.gpu.vendor == "amd") / GIB
    hopper = request.gpu.compute_capability is not None and request.gpu.compute_capability[0] == HOPPER
    peak = activation.peak_gib(model, request.engine, split, limits, last_stage=stage.last, hopper=hopper)
    taken = account.subtracted + loaded + peak
    correction = taken * (request.measured_ratio - 1.0)
    pool = account.budget - taken - correction
    concurrency, tokens = kv.pool_tokens(model, split.tensor, stage, limits, pool * GIB)
    return _Stage(
        stage=stage,
        weights=loaded,
        activation=peak,
        correction=correction,
        pool=pool,
        concurrency=concurrency,
        tokens=tokens,
    )


def _non_torch_gib(request: MemoryRequest) -> float:
    engine, split = request.engine, request.parallelism
    if split.tensor > 1 or split.data > 1:
        return engine.non_torch_tp_gib
    return engine.non_torch_pp_gib if split.pipeline > 1 else engine.non_torch_tp1_gib


def _graph_gib(request: MemoryRequest) -> float:
    if request.limits.enforce_eager:
        return 0.0
    return request.engine.cuda_graph_amd_gib if request.gpu.vendor == "amd" else request.engine.cuda_graph_gib


def _room_outside_gib(request: MemoryRequest, total: float, graphs: float) -> float:
    """Return GiB left outside the budget once start-up has taken what it takes there; negative: it will fail.

    Checked for V1 above vLLM's own default utilisation only: below it every measured start had the room.
    """
    percent = request.percent
    if percent <= activation.TRUSTED_UTILIZATION_PERCENT or not request.engine.v1:
        return 0.0
    outside = total * (100 - percent) / 100 - start_constants().context_gib
    graphs_outside = 0.0 if request.engine.subtracts_cuda_graphs else graphs
    need = activation.after_pool_gib(
        request.architecture,
        request.engine,
        request.parallelism,
        request.limits,
        graphs_outside_gib=graphs_outside,
    )
    return outside - need


def _verdict(request: MemoryRequest, pool_gib: float, holds_one: bool, room_gib: float) -> Verdict:
    model = request.architecture
    if model.unpredicted or model.attention in {AttentionKind.STATE_HYBRID, AttentionKind.OTHER}:
        return Verdict.UNKNOWN
    if pool_gib <= 0 or room_gib < 0:
        return Verdict.OUT_OF_MEMORY
    return Verdict.FITS if holds_one else Verdict.TOO_SMALL


def _phrase(model: ModelArchitecture, known: Coverage) -> str:
    return f"not predicted: {'; '.join(model.unpredicted)}" if model.unpredicted else known.phrase


def _bill(request: MemoryRequest, account: _Account, worst: _Stage) -> tuple[BillItem, ...]:
    limits, split, graphs = request.limits, request.parallelism, account.graphs
    outside = not request.engine.subtracts_cuda_graphs
    taken = f"{graphs:.2f} GiB, taken after the pool before vLLM 0.20."
    sampler = f"The sampler sorts {limits.max_num_seqs} sequences x {request.architecture.vocab_size} words"
    return (
        _line(VISIBLE, account.total, f"What vLLM sees of a {request.gpu.short_name}."),
        _line(
            "Outside the budget",
            account.budget - account.total,
            f"gpu-memory-utilization is {request.percent:g} %.",
        ),
        _line("Weights", -worst.weights, _weights_why(request.architecture, split, worst.stage)),
        _line(
            "Activation peak",
            -worst.activation,
            f"{sampler}; a layer holds {limits.max_num_batched_tokens} tokens.",
        ),
        _line(
            "Non-torch", -account.non_torch, "NCCL's and kernels' own buffers, by version and parallelism."
        ),
        _line("CUDA graphs", 0.0 if outside else -graphs, taken if outside else "Reserved before the pool."),
        *_corrected(worst),
        _line(KV_CACHE, worst.pool, "What is left."),
        _line("Margin", -account.margin, "Reserve of the class, promised to nobody."),
    )


def _corrected(worst: _Stage) -> tuple[BillItem, ...]:
    if not worst.correction:
        return ()
    return (
        _line("Measured beyond", -worst.correction, "Engines of this model on this GPU took so much more."),
    )


def _line(item: str, gib: float, why: str) -> BillItem:
    return BillItem(item=item, gib=gib, why=why)


def _weights_why(model: ModelArchitecture, split: Parallelism, stage: weights.Stage) -> str:
    source = "the checkpoint's bytes" if model.weights_from_checkpoint else "its dimensions"
    part = f", {stage.layers} of {model.num_layers} layers" if split.pipeline > 1 else ""
    return f"{model.quantization.format} weights by {source}, split over {split}{part}."


def _notes(request: MemoryRequest, known: Coverage, pool: float, need: float, room: float) -> tuple[str, ...]:
    notes = list(known.notes)
    model, limits = request.architecture, request.limits
    if room < 0:
        notes.append(
            f"CUDA graphs and start-up buffers need {-room:.2f} GiB more than utilisation "
            f"{request.percent:g} % leaves outside the pool: lower it."
        )
    if pool - known.margin_gib < need <= pool:
        notes.append("It may start: the pool holds one request only if the margin is counted on.")
    if limits.max_model_len > model.max_position_embeddings:
        notes.append(f"The model declares a context of {model.max_position_embeddings} tokens.")
    if model.multimodal:
        notes.append("The peak of the vision encoder is a constant; many or large images can take more.")
    return tuple(notes)


def with_limits(request: MemoryRequest, limits: EngineLimits) -> MemoryRequest:
    """Return the same question with other engine limits."""
    return replace(request, limits=limits)
