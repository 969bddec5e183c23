"""`shardwright simulate` replays a trace of requests under the autoscaler, or other rules.

Decides what a file of requests, a replica model or a plan, and a spec mean for a replay. The plan is the
planner's, the replay and the rules are `autoscaler`'s; what is shown is `cli.simulation`'s. Exit code: 0
replayed, 2 bad input.
"""

import argparse
from collections.abc import Callable
from math import ceil, isfinite
from typing import Final, NamedTuple

from shardwright.api.defaults import resolve
from shardwright.autoscaler.planned import replica_model
from shardwright.autoscaler.replay import clairvoyant, rivals
from shardwright.autoscaler.replay.fleet import Policy, World, replay
from shardwright.autoscaler.replay.own import Own
from shardwright.autoscaler.replay.trace import Trace, overlaid
from shardwright.autoscaler.replica import ReplicaModel, capacity
from shardwright.autoscaler.signals import ScalingPlan
from shardwright.cli import option_values, pool_options, simulation
from shardwright.cli.decide import complain, decide, tell
from shardwright.cli.files import InputError, name_of, of_file, read_text
from shardwright.cli.plan_input import read_service
from shardwright.cli.simulation import Run
from shardwright.cli.trace_input import COLUMNS, read_trace
from shardwright.cluster.documents import DocumentError, parse_json
from shardwright.planner.types import NoPlan
from shardwright.render.startup import startup_budget
from shardwright.render.storage import source_type

REPLAYED, BAD_INPUT = 0, 2
KEYS: Final = {
    "stepMs": ("step_s", 1e-3), "perSequenceMs": ("sequence_s", 1e-3), "perKvTokenUs": ("kv_token_s", 1e-6),
    "perPrefillTokenMs": ("prefill_token_s", 1e-3), "kvTokens": ("kv_tokens", 1.0),
    "tokenBudget": ("budget_tokens", 1.0), "seats": ("seats", 1.0),
}  # fmt: skip
"""Keys of a replica model, what they are here, and their unit."""
WHOLE: Final = ("kvTokens", "tokenBudget", "seats")
COLD_START: Final = "coldStartSeconds"
POLICIES: Final = (
    "shardwright", "fixed", "hpa-in-flight", "hpa-kv", "keda-waiting", "llm-d", "knative", "wva", "ray",
    "dynamo", "clairvoyant",
)  # fmt: skip
PERCENTILE: Final = 99.0
"""Without a spec. The clairvoyant's too, whose search is for a share of requests and not for percentiles."""
TRIM_SLOTS: Final = 20
"""Slots of 15 s that the clairvoyant lowers at once."""
MOST_REPLICAS: Final = 1000
UNSCORED_S: Final = 600.0
"""Of the start, which says more of the size that a fleet began with than of its rule."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "simulate",
        help="what the autoscaler would do with a log of requests",
        description="Replays a trace of requests through a queueing simulator under the autoscaler or "
        "another rule. Exit code: 0 replayed, 2 bad input.",
    )
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help="an LLMService: its slo, scaling, GPU budget, and its plan"
    )
    pool_options.add(parser)
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context for --cluster")
    parser.add_argument(
        "--trace", required=True, metavar="FILE", help=f"CSV ({', '.join(COLUMNS)}) or .jsonl, also .gz"
    )
    parser.add_argument(
        "--replica-model", metavar="FILE",
        help=f"JSON: {', '.join(KEYS)}, {COLD_START}; default: as the plan of -f predicts, on the nodes of "
        "the options above",
    )  # fmt: skip
    parser.add_argument(
        "--trace-scale", type=int, default=1, metavar="N", help="N copies laid over each other"
    )
    parser.add_argument("--ttft-ms", type=float, metavar="MS", help="instead of the spec's slo.ttft")
    parser.add_argument("--tpot-ms", type=float, metavar="MS", help="instead of the spec's slo.tpot")
    parser.add_argument(
        "--percentile", type=float, metavar="P", help=f"instead of the spec's; {PERCENTILE:g} without one"
    )
    parser.add_argument("--min-replicas", type=option_values.whole, metavar="N")
    parser.add_argument("--max-replicas", type=option_values.whole, metavar="N")
    parser.add_argument(
        "--gpus-per-replica", type=option_values.whole, metavar="N", help="instead of the plan's; else 1"
    )
    parser.add_argument(
        "--unscored-seconds",
        type=float,
        metavar="S",
        help=f"not judged at the start; {UNSCORED_S:g}, or 0 for a trace that is no longer",
    )
    parser.add_argument("--seed", type=int, default=1, help="of offsets and cold starts")
    parser.add_argument(
        "--policy", action="append", metavar="NAME[:VALUE]",
        help=f"{', '.join(POLICIES)}; VALUE is a target, replicas of fixed, or the share that clairvoyant "
        "attains; may be given again, to compare",
    )  # fmt: skip
    parser.add_argument("-o", "--output", choices=("text", "json"), help="text, unless --html is given alone")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page with pictures")


def run(args: argparse.Namespace) -> int:
    """Read, replay, print; return the exit code."""
    try:
        unit = _Unit(*_model(args.replica_model)) if args.replica_model else _planned(args)
        trace = _trace(args.trace, args.trace_scale, args.seed)
        args.unscored_seconds = _unscored_s(args.unscored_seconds, trace)
        plan = _plan(args, unit, trace)
        names = list(dict.fromkeys(args.policy or ["shardwright"]))
        policies = [_policy(name, plan) for name in names]
        runs = [_run(args, plan, trace, *one) for one in zip(names, policies, strict=True)]
        if args.html is not None:
            simulation.write_page(args.html, runs, plan)
    except InputError as error:
        complain("simulate", error)
        return BAD_INPUT
    if args.output == "json":
        print(simulation.as_json(runs))
    elif args.output == "text" or args.html is None:
        print(simulation.as_text(runs))
    return REPLAYED


def _run(args: argparse.Namespace, plan: ScalingPlan, trace: Trace, name: str, policy: Policy | None) -> Run:
    """Replay one rule; without one, look for the clairvoyant's schedule first."""
    served = capacity(plan.model, plan.input_tokens, plan.output_tokens, plan.tpot_s)
    rate = len(trace.arrival_s) / max(1.0, trace.end_s)
    first = ceil(rate / served.rate_per_s / 0.9) if served.rate_per_s else 1
    if isinstance(policy, rivals.Fixed):
        first = policy.replicas
    world = World(
        model=plan.model,
        ttft_s=plan.ttft_s,
        tpot_s=plan.tpot_s,
        cold_start_s=plan.cold_start_s,
        min_replicas=plan.min_replicas,
        max_replicas=plan.most,
        first_replicas=max(plan.min_replicas, min(plan.most, first)),
        unscored_s=args.unscored_seconds,
        seed=args.seed,
    )
    if policy is None:
        share = _number(name.partition(":")[2]) or plan.percentile / 100
        need, _ = clairvoyant.search(trace, world, share, TRIM_SLOTS)
        outcome, _ = clairvoyant.run(trace, world, need)
    else:
        outcome = replay(trace, world, policy)
    return Run(name, outcome, plan.gpus_per_replica)


class _Unit(NamedTuple):
    """One replica."""

    model: ReplicaModel
    cold_start_s: float
    gpus: int = 1


def _planned(args: argparse.Namespace) -> _Unit:
    """Return a replica as the service's plan predicts it. Raises InputError."""
    if args.filename is None:
        raise InputError("--replica-model: is needed without -f")
    found = decide(args)
    spec, decision = found.inputs.service.spec, found.decision
    if isinstance(decision, NoPlan):
        raise InputError(f"there is no plan to take a replica from: {decision.message}")
    model = replica_model(decision, resolve(spec), found.request.engine)
    if model is None:
        raise InputError("--replica-model: is needed, since no speed is predicted on these GPUs")
    cold_start_s = startup_budget(decision, source_type(spec)).engine_s
    return _Unit(model, float(cold_start_s), decision.gpus_per_replica)


def _model(path: str) -> tuple[ReplicaModel, float]:
    where = name_of(path)
    try:
        found = parse_json(read_text(path))
    except DocumentError as error:
        raise of_file(path, error) from error
    keys = {*KEYS, COLD_START}
    if not isinstance(found, dict) or set(found) != keys:
        raise InputError(f"{where}: must be one object with exactly the keys {', '.join(sorted(keys))}")
    for key, value in found.items():
        least = 1 if key in WHOLE else 0
        number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not number or value < least or value > 1e9 or (key in WHOLE and value != int(value)):
            what = "a whole number from 1" if key in WHOLE else "a number from 0"
            raise InputError(f"{where}: {key} must be {what} to 1e9, not {value!r}")
    if not found["stepMs"]:
        raise InputError(f"{where}: stepMs must be above 0")
    terms = {
        name: int(found[key]) if key in WHOLE else found[key] * unit for key, (name, unit) in KEYS.items()
    }
    return ReplicaModel(**terms), float(found[COLD_START])


def _trace(path: str, copies: int, seed: int) -> Trace:
    if not 1 <= copies <= 100:
        raise InputError(f"--trace-scale: must be from 1 to 100, not {copies}")
    trace = read_trace(path)
    try:
        return overlaid(trace, copies, seed)
    except ValueError as error:
        raise of_file(path, error) from error


def _unscored_s(given: float | None, trace: Trace) -> float:
    """Return how much of the start is not judged; some of the trace always is."""
    if given is None:
        return UNSCORED_S if trace.end_s > UNSCORED_S else 0.0
    if not 0 <= given <= trace.end_s:
        raise InputError(
            f"--unscored-seconds: must be from 0 to {trace.end_s:g}, where the last request arrives, or none "
            f"would be judged; not {given:g}"
        )
    return given


def _plan(args: argparse.Namespace, unit: _Unit, trace: Trace) -> ScalingPlan:
    ttft_ms, tpot_ms, percentile = args.ttft_ms, args.tpot_ms, args.percentile
    low, high, gpus = args.min_replicas, args.max_replicas, MOST_REPLICAS
    if args.filename is not None:
        spec = read_service(args.filename).service.spec
        resolved = resolve(spec)
        if resolved.scale.idle_seconds is not None:
            raise InputError(
                f"{args.filename}: spec.scaling.scaleToZero: a replay keeps at least one replica, so that "
                "its hours and waits would not be the service's: leave scaleToZero out of the file"
            )
        if spec.scaling and spec.scaling.schedules:
            tell([f"{args.filename}: spec.scaling.schedules: not replayed: a trace does not say its hours"])
        targets = resolved.targets
        ttft_ms = targets.ttft.milliseconds if ttft_ms is None else ttft_ms
        tpot_ms = targets.tpot.milliseconds if tpot_ms is None else tpot_ms
        if percentile is None:
            percentile = float(min(targets.ttft.percentile, targets.tpot.percentile))
        low = low if low is not None else resolved.scale.min_replicas
        high = high if high is not None else resolved.scale.max_replicas
        gpus = spec.pool.max_gpus
    for option, value in (("--ttft-ms", ttft_ms), ("--tpot-ms", tpot_ms)):
        if value is None or not (isfinite(value) and value > 0):
            raise InputError(f"{option}: is needed without -f, and above 0")
    requests = len(trace.arrival_s)
    try:
        return ScalingPlan(
            model=unit.model,
            ttft_s=ttft_ms / 1000,
            tpot_s=tpot_ms / 1000,
            percentile=PERCENTILE if percentile is None else percentile,
            input_tokens=sum(trace.input_tokens) / requests,
            output_tokens=sum(trace.output_tokens) / requests,
            min_replicas=1 if low is None else max(1, low),
            max_replicas=min(MOST_REPLICAS, high or MOST_REPLICAS),
            gpus_per_replica=args.gpus_per_replica or unit.gpus,
            max_gpus=gpus,
            cold_start_s=unit.cold_start_s,
        )
    except ValueError as error:
        raise InputError(str(error)) from error


def _policy(text: str, plan: ScalingPlan) -> Policy | None:
    """Return the rule that an option names; None for the clairvoyant, which is no rule."""
    name, _, value = text.partition(":")
    number = _number(value)
    if value and name in {"shardwright", "llm-d", "wva"}:
        raise InputError(f"--policy: {name} takes no value")
    rules: dict[str, Callable[[float | None], Policy | None]] = {
        "clairvoyant": lambda _: None,
        "shardwright": lambda _: Own(plan),
        "llm-d": lambda _: rivals.llmd_default(),
        "wva": lambda _: rivals.wva_v2(plan.model),
        "fixed": lambda n: rivals.Fixed(text, replicas=max(1, int(n or plan.min_replicas))),
        "hpa-in-flight": lambda n: rivals.hpa_in_flight(n or 8),
        "hpa-kv": lambda n: rivals.hpa_kv(n or 0.6),
        "keda-waiting": lambda n: rivals.keda_waiting(n or 5),
        "knative": lambda n: rivals.Kpa(text, period_s=5.0, target=n or 70),
        "ray": lambda n: rivals.Ray(text, target=n or 2),
        "dynamo": lambda n: rivals.Dynamo(text, model=plan.model, tpot_s=plan.tpot_s, rho=n or 1.0),
    }
    if name not in rules or (value and number is None) or (name == "clairvoyant" and number and number >= 1):
        raise InputError(
            f"--policy: must be one of {', '.join(POLICIES)}, with :VALUE above 0 if any, not {text!r}"
        )
    return rules[name](number)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and number > 0 else None
