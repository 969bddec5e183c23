"""The command line of `vllm serve`, held against the flags that a real vLLM was seen to take.

It decides what is refused: a flag that vLLM does not know, a value that it would not take. Most flags change nothing
here; what the simulator heeds is in `Arguments`. The list is the recorded one of the tests, not the operator's.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAGS = Path(__file__).parents[3] / "tests" / "data" / "vllm_flags.txt"
_TYPES = {"int": int, "float": float}
_MANY_CHOICES = 60


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the simulator heeds of a command line."""

    model: str
    served_name: str
    port: int
    max_model_len: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_queued_requests: int | None
    max_queued_tokens: int | None
    shutdown_timeout_s: float
    keep_alive_s: float
    api_key: str | None
    gpu_memory_utilization: float
    kv_cache_dtype: str
    prefix_caching: bool
    stream_interval: int
    load_tracking: bool
    scale_out: bool
    buckets: dict[str, list[float]]
    identity: tuple[str, ...]
    """All that changes what the model answers."""


def parse(argv: list[str], environment: dict[str, str]) -> Arguments:
    """Read the arguments after `vllm`; a mistake ends the process with vLLM's exit code of 2."""
    parser = _parser()
    if not argv or argv[0] != "serve":
        parser.error(f"the simulator knows `vllm serve` only, not {' '.join(argv[:1]) or 'nothing'}")
    found = vars(parser.parse_args(argv[1:]))
    model = found["model_tag"] or found["model"]
    names = found["served_model_name"] or [model]
    port = found["port"] or 8000
    identity = (
        "revision",
        "tokenizer",
        "tokenizer_revision",
        "chat_template",
        "quantization",
        "hf_overrides",
    )
    return Arguments(
        model=model,
        served_name=names[0] if isinstance(names, list) else names,
        port=int(port),
        max_model_len=_tokens(found["max_model_len"]),
        max_num_seqs=_optional(found["max_num_seqs"]),
        max_num_batched_tokens=_optional(found["max_num_batched_tokens"]),
        max_queued_requests=_optional(found["max_num_queued_reqs"]),
        max_queued_tokens=_optional(found["max_num_queued_tokens"]),
        shutdown_timeout_s=float(found["shutdown_timeout"] or 0),
        keep_alive_s=float(environment.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE") or 5),
        api_key=environment.get("VLLM_API_KEY") or _first(found["api_key"]),
        gpu_memory_utilization=float(found["gpu_memory_utilization"] or 0.92),
        kv_cache_dtype=found["kv_cache_dtype"] or "auto",
        prefix_caching=found["enable_prefix_caching"] is not False,
        scale_out=found["enable_scale_out"] is not False,
        load_tracking=bool(found["enable_server_load_tracking"]),
        stream_interval=int(found["stream_interval"] or 1),
        buckets=json.loads(found["custom_histogram_buckets"] or "{}"),
        identity=(model, *(f"{name}={found[name]}" for name in identity)),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm serve", usage="vllm serve [model_tag] [options]", allow_abbrev=False, add_help=False
    )
    for line in FLAGS.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        _, names, action, kind, _, choices, *_ = (*line.split("\t"), "", "", "", "", "")
        if names == "model_tag":
            parser.add_argument(names, nargs="?")
        elif names.startswith("-h "):
            continue
        else:
            _add(parser, [name for name in names.split() if name.startswith("-")], action, kind, choices)
    return parser


def _add(parser: argparse.ArgumentParser, names: list[str], action: str, kind: str, choices: str) -> None:
    known: dict[str, Any] = {"default": None}
    if action.startswith("BooleanOptional"):
        known["action"] = argparse.BooleanOptionalAction
        # It makes the other half by itself.
        names = [name for name in names if not name.startswith("--no-")]
    elif action.startswith("StoreTrue"):
        known |= {"action": "store_true"}
    else:
        known["type"] = _TYPES.get(kind, str)
        if "/" in action and (nargs := action.rpartition("/")[2]) in {"+", "*", "?"}:
            known["nargs"] = nargs
        if action.startswith("Append"):
            known["action"] = "append"
        allowed = [choice for choice in choices.split(",") if choice]
        if 0 < len(allowed) < _MANY_CHOICES and kind in {"str", ""}:
            known["choices"] = allowed
    parser.add_argument(*names, **known)


def _tokens(value: str | int | None) -> int:
    """Read lengths as vLLM does: 16k is 16000, 16K is 16384."""
    if value is None or str(value) in {"-1", "auto"}:
        return 131_072
    text = str(value)
    factor = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}.get(text[-1], 1)
    return int(float(text if factor == 1 else text[:-1]) * factor)


def _optional(value: str | int | None) -> int | None:
    return None if value is None else _tokens(value)


def _first(value: list[str] | str | None) -> str | None:
    return value[0] if isinstance(value, list) and value else value or None  # type: ignore[return-value]
