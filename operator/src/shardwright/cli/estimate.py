"""`shardwright estimate` answers whether an engine starts, with how much KV cache, and how fast it serves.

Decides how a prediction is printed and which exit code says it: 0 it fits, 1 it does not, 2 bad input, 3
unknown. Never decides memory or latency itself.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping

from shardwright.catalog.errors import CatalogError
from shardwright.cli.estimate_latency import Latency, latency, latency_json, latency_lines, no_latency_json
from shardwright.cli.estimate_load import LOAD_OPTIONS, NVLINK, PCIE
from shardwright.cli.estimate_options import OPTION_NAMES, Question, from_mapping, named_values, question
from shardwright.cli.files import InputError, read_lines
from shardwright.cli.option_values import OptionError, UnknownMemoryError
from shardwright.cli.second_opinion import SecondOpinion, add_option
from shardwright.cluster.documents import DocumentError, parse_json
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
    _add_load(parser)
    parser.add_argument("--batch", metavar="FILE", help="JSON lines of these options, - for standard input")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "latency",
        "With lengths and one of the two loads, TTFT, TPOT and throughput are predicted as well.",
    )
    group.add_argument("--input-tokens", metavar="TOKENS", help="of one request, with its shared prefix")
    group.add_argument("--output-tokens", metavar="TOKENS", help="of one request")
    group.add_argument("--shared-prefix-tokens", metavar="TOKENS", help="found in the prefix cache (0)")
    group.add_argument("--concurrency", metavar="N", help="requests in flight in this replica")
    group.add_argument("--rate", metavar="PER-SECOND", help="or: requests that arrive each second")
    group.add_argument(
        "--interconnect", metavar="LINK", help=f"{NVLINK} or {PCIE}, where the product leaves it open"
    )
    add_option(group)


def run(args: argparse.Namespace) -> int:
    """Answer one question or a file of them; return the exit code."""
    if args.second_opinion is None:
        return _run(args, None)
    with SecondOpinion(args.second_opinion) as other:
        return _run(args, other)


def _run(args: argparse.Namespace, other: SecondOpinion | None) -> int:
    given = {name: getattr(args, name) for name in OPTION_NAMES}
    if args.batch is not None:
        return _batch(args.batch, {name: value for name, value in given.items() if value is not None}, other)
    loaded = any(given[name] is not None for name in LOAD_OPTIONS)
    try:
        asked = question(from_mapping(given))
    except UnknownMemoryError as unknown:
        _print_unknown(str(unknown), args.output, loaded=loaded)
        return UNKNOWN
    except (OptionError, CatalogError) as error:
        print(f"shardwright estimate: {error}", file=sys.stderr)
        return BAD_INPUT
    answer = estimate(asked.request)
    speed = latency(asked, answer, other)
    if args.output == "json":
        print(json.dumps(_json(asked, answer, speed), indent=2))
    else:
        print(_text(asked, answer, speed))
    return _CODES[answer.verdict]


def _batch(path: str, common: Mapping[str, object], other: SecondOpinion | None) -> int:
    """One answer for each line; options of the command line apply where a line does not say otherwise."""
    codes = set()
    try:
        for code, answer in _answers(read_lines(path), common, other):
            codes.add(code)
            print(json.dumps(answer))
    except InputError as error:
        print(f"shardwright estimate: batch: {error}", file=sys.stderr)
        return BAD_INPUT
    return next((code for code in (BAD_INPUT, UNKNOWN, DOES_NOT) if code in codes), FITS)


def _answers(
    lines: Iterable[str], common: Mapping[str, object], other: SecondOpinion | None
) -> Iterator[tuple[int, dict[str, object]]]:
    """Answer the lines that say something, each with its number, since an empty one has no answer."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            code, answer = _answer(line, common, other)
            yield code, {**answer, "line": number}


def _answer(
    line: str, common: Mapping[str, object], other: SecondOpinion | None
) -> tuple[int, dict[str, object]]:
    try:
        raw = parse_json(line)
    except DocumentError as error:
        return BAD_INPUT, _refused(f"the line {error}")
    if not isinstance(raw, dict):
        return BAD_INPUT, _refused('a line must be an object of options, such as {"model": ..., "gpu": ...}')
    echo = {"id": raw.pop("id")} if "id" in raw else {}
    merged: Mapping[str, object] = common
    try:
        merged = _merged(common, named_values(raw))
        asked = question(from_mapping(merged))
    except UnknownMemoryError as unknown:
        return UNKNOWN, {**echo, **_unknown(str(unknown), loaded=_loaded(merged))}
    except (OptionError, CatalogError) as error:
        return BAD_INPUT, {**echo, **_refused(str(error), loaded=_loaded(merged))}
    answer = estimate(asked.request)
    return _CODES[answer.verdict], {**echo, **_json(asked, answer, latency(asked, answer, other))}


def _merged(common: Mapping[str, object], line: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a line; one that states a load of either kind does not keep the common one."""
    kinds = {"concurrency", "rate"}
    stale = kinds if kinds & line.keys() else set()
    return {**{name: value for name, value in common.items() if name not in stale}, **line}


def _loaded(options: Mapping[str, object]) -> bool:
    return any(name in options for name in LOAD_OPTIONS)


def _json(asked: Question, answer: MemoryEstimate, speed: Latency | None) -> dict[str, object]:
    added = {} if speed is None else latency_json(speed)
    if answer.verdict is Verdict.UNKNOWN:
        return {**_unknown(answer.coverage), "notes": [*asked.notes], **added}
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
        **added,
    }


def _unknown(reason: str, *, loaded: bool = False) -> dict[str, object]:
    figures: dict[str, object] = dict.fromkeys(_FIGURES)
    said = {"verdict": str(Verdict.UNKNOWN), "coverage": reason, "covered": False, "notes": []}
    return {**figures, **said, **(no_latency_json(reason) if loaded else {})}


def _refused(problem: str, *, loaded: bool = False) -> dict[str, object]:
    """Return the keys of every answer, so that a reader of a batch finds a verdict on each line."""
    return {**_unknown(problem, loaded=loaded), "error": problem}


def _print_unknown(reason: str, output: str, *, loaded: bool) -> None:
    sentence = f"{_SENTENCES[Verdict.UNKNOWN]} {reason}"
    print(json.dumps(_unknown(reason, loaded=loaded), indent=2) if output == "json" else sentence)


def _text(asked: Question, answer: MemoryEstimate, speed: Latency | None) -> str:
    request = asked.request
    head = f"{request.architecture.model_id} on {request.gpu.label} {request.parallelism}"
    added = [] if speed is None else latency_lines(speed)
    if answer.verdict is Verdict.UNKNOWN:
        return "\n".join([head, f"{_SENTENCES[Verdict.UNKNOWN]} {answer.coverage}.", *added])
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
    return "\n".join([*lines, *added])
