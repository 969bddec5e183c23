"""One question to the memory model, from options as a command line or a JSON line gives them.

Decides how options are named, what the engine would take where one is absent (and says so), and
which model, GPU and number format are meant. Never decides memory.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import isnan

from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.engines import DEFAULT_ENGINE_VERSION, default_batch, engine_class
from shardwright.catalog.fields import kind, mapping
from shardwright.catalog.gpus import find_product, unknown_product_message
from shardwright.catalog.models import incomplete_models, load_models, unknown_model_message
from shardwright.catalog.quantization import named
from shardwright.catalog.types import (
    FORMATS_16BIT,
    FORMATS_FP8,
    FORMATS_INT4,
    EngineClass,
    GPUProduct,
    ModelArchitecture,
    NumberFormat,
)
from shardwright.cli.estimate_load import LOAD_OPTIONS, Load, link, load_of
from shardwright.cli.files import InputError, name_of, read_text
from shardwright.cli.option_values import OptionError, UnknownMemoryError, count, flag, share, text
from shardwright.cluster.documents import parse_json
from shardwright.planner.legality import format_problem, illegality, image_problem, kv_fp8_problem
from shardwright.planner.types import EngineLimits, MemoryRequest, Parallelism

_ALIASES = {
    "tensor_parallel_size": "tp",
    "tensor_parallel": "tp",
    "pipeline_parallel_size": "pp",
    "pipeline_parallel": "pp",
    "data_parallel_size": "dp",
    "data_parallel": "dp",
    "enable_expert_parallel": "ep",
    "gpu_mem_util": "gpu_memory_utilization",
    "kv_dtype": "kv_cache_dtype",
    "max_batched_tokens": "max_num_batched_tokens",
    "vllm_version": "engine_version",
    "request_rate": "rate",
    "requests_per_second": "rate",
    "max_concurrency": "concurrency",
}
_ROLLING = ("nightly", "latest", "main", "unknown", "not stated")
"""What stands where a release's number should: which accounting it has cannot be told."""
_KV_DTYPES = frozenset(
    {"auto", "bfloat16", "float16", "bf16", "fp16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"}
)


_THIRTY_TWO_BIT = frozenset({"fp32", "float32", "float"})
_HALF = frozenset({"fp16", "float16", "half"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one question; None where the engine's default is meant."""

    model: str
    gpu: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    engine_version: str = DEFAULT_ENGINE_VERSION
    enforce_eager: bool = False
    config: str | Mapping[str, object] | None = None
    weight_bytes: int | None = None
    load: Load | None = None


OPTION_NAMES = (*(field.name for field in fields(Options) if field.name != "load"), *LOAD_OPTIONS)
"""The options that may be given, as they are named here."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request, what was taken where an option was absent, and the load when a latency is asked for."""

    request: MemoryRequest
    notes: tuple[str, ...]
    load: Load | None = None


def from_mapping(raw: Mapping[str, object]) -> Options:
    """Return options from a JSON object with names in any of `max-model-len`, `max_model_len`, `maxModelLen`.

    Raises OptionError for an unknown name or a value of the wrong kind.
    """
    values = named_values(raw)
    return Options(
        model=text(values, "model"),
        gpu=text(values, "gpu"),
        tp=count(values, "tp", 1024) or 1,
        pp=count(values, "pp", 1024) or 1,
        dp=count(values, "dp", 4096) or 1,
        ep=flag(values, "ep"),
        quantization=text(values, "quantization") if "quantization" in values else None,
        kv_cache_dtype=_kv_dtype(values),
        gpu_memory_utilization=share(values, "gpu_memory_utilization", 0.05),
        max_model_len=_length(values),
        max_num_seqs=count(values, "max_num_seqs", 1 << 20),
        max_num_batched_tokens=count(values, "max_num_batched_tokens", 1 << 24),
        engine_version=_version(values),
        enforce_eager=flag(values, "enforce_eager"),
        config=_config(values),
        weight_bytes=count(values, "weight_bytes", 1 << 53),
        load=load_of(values),
    )


def named_values(raw: Mapping[str, object]) -> dict[str, object]:
    """Return the values that are there under the names of `Options`; null, NaN and empty text mean absent.

    Raises OptionError for an unknown name, or for one option under two names.
    """
    values: dict[str, object] = {}
    for key, value in raw.items():
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key.strip().lstrip("-")).lower().replace("-", "_")
        name = _ALIASES.get(name, name)
        if name not in OPTION_NAMES:
            raise OptionError(
                f"{key[:80]}: no such option; the options are {', '.join(sorted(OPTION_NAMES))}"
            )
        if name in values:
            raise OptionError(f"{key[:80]}: given twice")
        if value is not None and value != "" and not (isinstance(value, float) and isnan(value)):
            values[name] = value
    return values


def question(options: Options) -> Question:
    """Return the request that options mean.

    Raises OptionError or CatalogError (bad input) and UnknownMemoryError (understood, not predictable).
    """
    gpu = find_product(options.gpu)
    if gpu is None:
        raise OptionError(f"gpu: {unknown_product_message(options.gpu)}")
    engine = _engine(options.engine_version)
    model, notes = _model(options)
    limits, taken = _limits(options, model, gpu, engine)
    split = Parallelism(tensor=options.tp, pipeline=options.pp, data=options.dp, expert=options.ep)
    _check_split(model, split)
    request = MemoryRequest(
        architecture=model,
        gpu=gpu,
        engine=engine,
        parallelism=split,
        limits=limits,
        utilization_percent=_exact_percent(options),
    )
    if options.load is not None:
        link(options.load, gpu, split)  # refuses NVLink where there is none
    return Question(request, (*notes, *taken, *_refusals(options, model, gpu, engine)), options.load)


def _engine(version: str) -> EngineClass:
    if version.strip().lower().startswith(_ROLLING):
        raise UnknownMemoryError(
            f"engine_version: {version!r} names no release: give the number that its log prints, "
            f"such as {DEFAULT_ENGINE_VERSION}"
        )
    return engine_class(version)


def _exact_percent(options: Options) -> float | None:
    share = options.gpu_memory_utilization
    return None if share is None else round(share * 100, 6)


def _refusals(options: Options, model: ModelArchitecture, gpu: GPUProduct, engine: EngineClass) -> list[str]:
    """Say what this GPU has no kernels for; a checkpoint in BF16 runs in FP16 where that is asked for."""
    half = (
        options.quantization or ""
    ).strip().lower() in _HALF and model.quantization.format in FORMATS_16BIT
    known = model.quantization.format is not NumberFormat.UNKNOWN and not half
    problems = [
        format_problem(model, gpu) if known else "",
        kv_fp8_problem(gpu) if options.kv_cache_dtype == "fp8" else "",
        image_problem(engine, gpu),
    ]
    return [f"vLLM may refuse it: {problem}." for problem in problems if problem]


def _model(options: Options) -> tuple[ModelArchitecture, list[str]]:
    model = _architecture(options)
    if options.quantization is None:
        return model, []
    if options.quantization.strip().lower() in _THIRTY_TWO_BIT:
        raise UnknownMemoryError("quantization: weights and cache in 32 bit are not modelled")
    wanted = named(options.quantization)
    have = model.quantization
    if wanted is None or _same(wanted.format, have.format):
        return model, []
    if have.format not in {*FORMATS_16BIT, NumberFormat.UNKNOWN}:
        raise OptionError(
            f"quantization: the checkpoint of {model.model_id} is {have.format}, not {options.quantization}"
        )
    known = tuple(reason for reason in model.unpredicted if "number format" not in reason)
    changed = replace(
        model, quantization=wanted, checkpoint_bytes=None, weights_from_checkpoint=False, unpredicted=known
    )
    note = f"Linear layers are taken as {wanted.format}; embeddings and the output matrix stay in 16 bit."
    return changed, [note]


def _same(wanted: NumberFormat, have: NumberFormat) -> bool:
    """Whether two names mean the same bytes: FP8 with or without blocks, the 4-bit integer formats."""
    return wanted == have or {wanted, have} <= FORMATS_FP8 or {wanted, have} <= FORMATS_INT4


def _architecture(options: Options) -> ModelArchitecture:
    if options.config is not None:
        return _own(options.model, options.config, options.weight_bytes)
    found = load_models().get(options.model)
    if found is None:
        message = unknown_model_message(options.model, "give its config.json")
        if options.model in incomplete_models():
            raise UnknownMemoryError(message)
        raise OptionError(f"model: {message}")
    if options.weight_bytes is None:
        return found
    return replace(found, checkpoint_bytes=options.weight_bytes, weights_from_checkpoint=True)


def _own(model: str, config: str | Mapping[str, object], weight_bytes: int | None) -> ModelArchitecture:
    """Return the architecture of a config.json, in a file or in a line of a batch."""
    if not isinstance(config, str):
        return architecture_from_config(model, config, weight_bytes)
    try:
        found = mapping(parse_json(read_text(config)), "config.json")
        return architecture_from_config(model, found, weight_bytes)
    except InputError as error:
        raise OptionError(f"config: {error}") from error
    except ValueError as error:  # DocumentError and CatalogError
        raise OptionError(f"config: {name_of(config)}: {error}") from error


def _limits(
    options: Options, model: ModelArchitecture, gpu: GPUProduct, engine: EngineClass
) -> tuple[EngineLimits, list[str]]:
    """Return the engine's limits; what is not given is what the engine itself would take on this device."""
    notes = []
    length = options.max_model_len
    if length is None:
        length = model.max_position_embeddings
        notes.append(f"max-model-len {length}: the model's own context.")
    seqs, tokens = _batch(options, engine, gpu, length)
    if options.max_num_seqs is None:
        notes.append(f"max-num-seqs {seqs}: what vLLM {engine.name} takes on {gpu.short_name}.")
    if options.max_num_batched_tokens is None:
        notes.append(f"max-num-batched-tokens {tokens}: what vLLM {engine.name} takes on {gpu.short_name}.")
    percent = engine.default_gpu_memory_utilization_percent
    if options.gpu_memory_utilization is None:
        notes.append(f"gpu-memory-utilization 0.{percent}: the default of vLLM {engine.name}.")
    else:
        percent = int(options.gpu_memory_utilization * 100 + 1e-6)
    limits = EngineLimits(
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization_percent=percent,
        kv_cache_dtype=options.kv_cache_dtype,
        enforce_eager=options.enforce_eager,
    )
    return limits, notes


def _batch(options: Options, engine: EngineClass, gpu: GPUProduct, length: int) -> tuple[int, int]:
    """Return sequences and batched tokens, given or as the engine takes them beside what is given.

    A default of tokens is at most sequences x length, and one of sequences at most the tokens (vLLM V1,
    `_set_default_max_num_seqs_and_batched_tokens_args`).
    """
    seqs, tokens = default_batch(engine, gpu, length)
    if options.max_num_batched_tokens is not None:
        tokens = options.max_num_batched_tokens
    elif engine.v1:
        tokens = min(tokens, (options.max_num_seqs or seqs) * length)
    return options.max_num_seqs or min(seqs, tokens), tokens


def _check_split(model: ModelArchitecture, split: Parallelism) -> None:
    if model.num_attention_heads % split.tensor:
        raise OptionError(
            f"tp: {split.tensor} does not divide the {model.num_attention_heads} attention heads"
        )
    if model.mla is None and model.num_kv_heads % split.tensor and split.tensor % model.num_kv_heads:
        raise OptionError(
            f"tp: {split.tensor} neither divides nor is a multiple of {model.num_kv_heads} KV heads"
        )
    if split.pipeline > model.num_layers:
        raise OptionError(f"pp: {split.pipeline} is more than the {model.num_layers} layers")
    if split.expert and model.moe is None:
        raise OptionError(f"ep: {model.model_id} has no experts")
    alone = split if model.moe is not None else replace(split, data=1)
    refusal = illegality(model, alone)
    if refusal:
        raise UnknownMemoryError(f"tp: vLLM is expected to refuse {split}: {refusal}")


def _version(values: Mapping[str, object]) -> str:
    value = values.get("engine_version", DEFAULT_ENGINE_VERSION)
    if isinstance(value, float | int) and not isinstance(value, bool) and len(str(value)) > len("0.1"):
        return str(value)  # 0.19; but 0.2 may have been 0.20 before a number lost its zero
    if not isinstance(value, str):
        raise OptionError(f'engine_version: must be a text such as "0.20.0", not {kind(value)}')
    return value


def _kv_dtype(values: Mapping[str, object]) -> str:
    value = str(values.get("kv_cache_dtype", "auto")).strip().lower()
    if value not in _KV_DTYPES:
        raise OptionError(
            f"kv_cache_dtype: must be one of {', '.join(sorted(_KV_DTYPES))}, not {value[:80]!r}"
        )
    return value


def _length(values: Mapping[str, object]) -> int | None:
    value = values.get("max_model_len")
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,7}[kK]", value):
        value = int(value[:-1]) * (1024 if value[-1] == "K" else 1000)
        return count({**values, "max_model_len": value}, "max_model_len", 1 << 30)
    return count(values, "max_model_len", 1 << 30)


def _config(values: Mapping[str, object]) -> str | Mapping[str, object] | None:
    value = values.get("config")
    if value is None:
        return None
    if isinstance(value, str):
        return text(values, "config", 4096)
    if isinstance(value, Mapping):
        return value
    raise OptionError(f"config: must be a path or an object, not {kind(value)}")
