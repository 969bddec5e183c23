"""`shardwright estimate` answers whether an engine will start, and with how much KV cache.

Decides how a prediction is printed and which exit code says it: 0 it fits, 1 it does not, 2 bad input, 3
unknown. Never decides memory itself.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from shardwright.catalog.errors import CatalogError
from shardwright.cli.estimate_options import (
    OptionError,
    Options,
    Question,
    UnknownMemoryError,
    from_mapping,
    named_values,
    question,
)
from shardwright.planner.memory import estimate
from shardwright.planner.types import MemoryEstimate, Verdict

FITS, DOES_NOT, BAD_INPUT, UNKNOWN = 0, 1, 2, 3
_CODES = {
    Verdict.FITS: FITS,
    Verdict.TOO_SMALL: DOES_NOT,
    Verdict.OUT_OF_MEMORY: DOES_NOT,
    Verdict.UNKNOWN: UNKNOWN,
}
_SENTENCES = {
    Verdict.FITS: "It fits.",
    Verdict.TOO_SMALL: "Too small: the KV cache does not hold one request of the maximum length.",
    Verdict.OUT_OF_MEMORY: "Out of memory: weights and overheads take more than there is.",
    Verdict.UNKNOWN: "Unknown: the memory model does not cover this.",
}
_FIGURES = (
    "weightsGiBPerGPU", "activationGiB", "nonTorchGiB", "cudaGraphGiB", "kvCacheGiBPerGPU", "kvTokens",
    "maxConcurrency", "marginGiB", "promisedKVTokens", "largestModelLen",
)  # fmt: skip


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "estimate",
        help="will this model start on this GPU, and with how much KV cache?",
        description="Will this start, and with how much KV cache? "
        "Exit code: 0 it fits, 1 it does not, 2 bad input, 3 unknown.",
    )
    parser.add_argument("--model", metavar="ID", help="model id of the catalogue, or any with --config")
    parser.add_argument(
        "--gpu", metavar="PRODUCT", help="nvidia.com/gpu.product label or a name such as H100"
    )
    parser.add_argument("--tp", metavar="N", help="tensor parallelism (1)")
    parser.add_argument("--pp", metavar="N", help="pipeline parallelism (1)")
    parser.add_argument("--dp", metavar="N", help="attention data parallelism of one engine (1)")
    parser.add_argument("--ep", action="store_true", default=None, help="expert parallelism")
    parser.add_argument("--quantization", metavar="NAME", help="number format, such as fp8, awq, mxfp4")
    parser.add_argument("--kv-cache-dtype", metavar="DTYPE", help="auto or fp8")
    parser.add_argument("--gpu-memory-utilization", metavar="SHARE", help="such as 0.9; default by version")
    parser.add_argument("--max-model-len", metavar="TOKENS", help="default: the model's context")
    parser.add_argument("--max-num-seqs", metavar="N", help="default: the engine's on this device")
    parser.add_argument("--max-num-batched-tokens", metavar="N", help="default: the engine's on this device")
    parser.add_argument("--engine-version", metavar="VERSION", help="vLLM version, such as 0.19.0")
    parser.add_argument("--enforce-eager", action="store_true", default=None, help="no CUDA graphs")
    parser.add_argument("--config", metavar="FILE", help="config.json of a model outside the catalogue")
    parser.add_argument("--weight-bytes", metavar="BYTES", help="sum of the checkpoint's weight files")
    parser.add_argument("--batch", metavar="FILE", help="JSON lines of these options, - for standard input")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Answer one question or a file of them; return the exit code."""
    given = {field.name: getattr(args, field.name) for field in fields(Options)}
    if args.batch is not None:
        return _batch(args.batch, {name: value for name, value in given.items() if value is not None})
    try:
        asked = question(from_mapping(given))
    except UnknownMemoryError as unknown:
        _print_unknown(str(unknown), args.output)
        return UNKNOWN
    except (OptionError, CatalogError) as error:
        print(f"shardwright estimate: {error}", file=sys.stderr)
        return BAD_INPUT
    answer = estimate(asked.request)
    print(json.dumps(_json(asked, answer), indent=2) if args.output == "json" else _text(asked, answer))
    return _CODES[answer.verdict]


def _batch(path: str, common: Mapping[str, object]) -> int:
    """One answer for each line; options of the command line apply where a line does not say otherwise."""
    try:
        lines = sys.stdin if path == "-" else Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        print(f"shardwright estimate: batch: cannot read {path}: {error}", file=sys.stderr)
        return BAD_INPUT
    codes = set()
    for code, answer in _answers(lines, common):
        codes.add(code)
        print(json.dumps(answer))
    return next((code for code in (BAD_INPUT, UNKNOWN, DOES_NOT) if code in codes), FITS)


def _answers(lines: Iterable[str], common: Mapping[str, object]) -> Iterator[tuple[int, dict[str, object]]]:
    for line in lines:
        if line.strip():
            yield _answer(line, common)


def _answer(line: str, common: Mapping[str, object]) -> tuple[int, dict[str, object]]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BAD_INPUT, _refused(f"not JSON: {error}")
    if not isinstance(raw, dict):
        return BAD_INPUT, _refused('a line must be an object of options, such as {"model": ..., "gpu": ...}')
    echo = {"id": raw.pop("id")} if "id" in raw else {}
    try:
        asked = question(from_mapping({**common, **named_values(raw)}))
    except UnknownMemoryError as unknown:
        return UNKNOWN, {**echo, **_unknown(str(unknown))}
    except (OptionError, CatalogError) as error:
        return BAD_INPUT, {**echo, **_refused(str(error))}
    answer = estimate(asked.request)
    return _CODES[answer.verdict], {**echo, **_json(asked, answer)}


def _json(asked: Question, answer: MemoryEstimate) -> dict[str, object]:
    if answer.verdict is Verdict.UNKNOWN:
        return {**_unknown(answer.coverage), "notes": [*asked.notes]}
    return {
        "weightsGiBPerGPU": round(answer.weights_gib_per_gpu, 4),
        "activationGiB": round(answer.activation_gib, 4),
        "nonTorchGiB": round(answer.non_torch_gib, 4),
        "cudaGraphGiB": round(answer.cuda_graph_gib, 4),
        "kvCacheGiBPerGPU": round(answer.kv_cache_gib_per_gpu, 4),
        "kvTokens": answer.kv_tokens,
        "maxConcurrency": round(answer.max_concurrency, 3),
        "marginGiB": round(answer.margin_gib, 4),
        "verdict": str(answer.verdict),
        "coverage": answer.coverage,
        "covered": answer.covered,
        "promisedKVTokens": answer.promised_kv_tokens,
        "largestModelLen": answer.largest_model_len,
        "notes": [*asked.notes, *answer.notes],
    }


def _unknown(reason: str) -> dict[str, object]:
    figures: dict[str, object] = dict.fromkeys(_FIGURES)
    return {**figures, "verdict": str(Verdict.UNKNOWN), "coverage": reason, "covered": False, "notes": []}


def _refused(problem: str) -> dict[str, object]:
    """Return the keys of every answer, so that a reader of a batch finds a verdict on each line."""
    return {**_unknown(problem), "error": problem}


def _print_unknown(reason: str, output: str) -> None:
    sentence = f"{_SENTENCES[Verdict.UNKNOWN]} {reason}"
    print(json.dumps(_unknown(reason), indent=2) if output == "json" else sentence)


def _text(asked: Question, answer: MemoryEstimate) -> str:
    request = asked.request
    head = f"{request.architecture.model_id} on {request.gpu.label} {request.parallelism}"
    if answer.verdict is Verdict.UNKNOWN:
        return f"{head}\n{_SENTENCES[Verdict.UNKNOWN]} {answer.coverage}."
    lines = [head, _SENTENCES[answer.verdict], ""]
    width = max(len(line.item) for line in answer.bill)
    lines += [f"  {line.item:<{width}}  {line.gib:>9.2f} GiB  {line.why}" for line in answer.bill]
    length, promised = request.limits.max_model_len, answer.promised_kv_tokens
    cache = f"{answer.kv_tokens} tokens, {answer.max_concurrency:.2f} requests of {length} tokens"
    lines += [
        "",
        f"KV cache of the engine: {cache}; promised after the margin: {promised} tokens.",
        f"Longest single request after the margin: {answer.largest_model_len} tokens.",
        f"Coverage: {answer.coverage}.",
    ]
    lines += [f"Note: {note}" for note in (*asked.notes, *answer.notes)]
    return "\n".join(lines)
