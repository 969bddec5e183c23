"""How requests reach the engines: whether through a router, by which of its policies, and how many wait.

Decides from the spec and from the command line of the engines that run. Never the router's pod.
"""

from collections.abc import Sequence
from typing import Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.planner.engine_args import parse
from shardwright.planner.types import Plan

TELLS_TOKENS: Final = "--enable-scale-out"
"""Lets an engine say how many tokens a prompt has (`/render`): else `kv_aware` takes each for nothing."""
_SILENT: Final = "--no-enable-scale-out"
BOUNDS_QUEUE: Final = "--max-num-queued-reqs"
"""Of the requests that run and wait in all ranks of one API server, as observed: more get 503."""
_BOUNDS: Final = frozenset({BOUNDS_QUEUE, "--max-num-queued-tokens"})
FLAGS_SINCE: Final = (0, 32, 0)
"""Both flags are in the lists of 0.32 and 0.33; earlier versions were not read."""
_NAMES: Final = {"CacheAware": "cache_aware", "RoundRobin": "round_robin"}


def wants_router(spec: LLMServiceSpec) -> bool:
    """Whether a router stands before the engines."""
    return spec.routing is not None and spec.routing.type == "Router"


def wants_gateway(spec: LLMServiceSpec) -> bool:
    """Whether an existing Gateway leads to the service."""
    return spec.routing is not None and spec.routing.type == "Gateway"


def check(spec: LLMServiceSpec) -> tuple[Problem, ...]:
    """Say what a Service alone cannot do, where a spec asks for that."""
    if spec.routing is None or spec.routing.type != "Service":
        return ()
    message = (
        "the Service balances connections, not requests: a client that keeps one sees no new replica, and "
        "gets a 500 or a reset from an engine that drains; use new connections, a gateway of yours, or type: "
        "Router"
    )
    return (Problem(reason=Reason.VALID, field="spec.routing.type", message=message, blocking=False),)


def by_tokens(spec: LLMServiceSpec) -> bool:
    """Whether the router is to go by the tokens that engines have before them."""
    policy = (spec.routing and spec.routing.policy) or "Auto"
    shared = spec.workload is not None and bool(spec.workload.shared_prefix_tokens)
    return wants_router(spec) and (policy == "LeastLoad" or (policy == "Auto" and not shared))


def policy(spec: LLMServiceSpec, engine: Sequence[str]) -> str:
    """Return the router's policy before engines with this command line.

    Measured (benchmarks/README.md): `kv_aware` alone sees tokens, and needs the engines to count them.
    `cache_aware` keeps a prefix on one engine, and is the best of the others that vllm-router 0.1.17 starts
    without engines: `power_of_two` wants two of them in its command line (e2e/test_endpoints.py).
    """
    wanted = (spec.routing and spec.routing.policy) or "Auto"
    if wanted in _NAMES:
        return _NAMES[wanted]
    said = [word for word in _flags(engine) if word in {TELLS_TOKENS, _SILENT}]
    counted = by_tokens(spec) and said and said[-1] == TELLS_TOKENS
    return "kv_aware" if counted else _NAMES["CacheAware"]


def engine_flags(spec: LLMServiceSpec, plan: Plan, version: tuple[int, ...]) -> list[str]:
    """Return what an engine must be told of routing; nothing of what the user has spoken of."""
    if version < FLAGS_SINCE:
        return []
    theirs = _flags((spec.engine.args if spec.engine else None) or [])
    spoken = TELLS_TOKENS in theirs or _SILENT in theirs
    found = [TELLS_TOKENS] if by_tokens(spec) and not spoken else []
    waiting = spec.routing.max_queued_requests if spec.routing else None
    if waiting is not None and BOUNDS_QUEUE not in theirs:
        running = plan.limits.max_num_seqs * plan.parallelism.data
        found.append(f"{BOUNDS_QUEUE}={running + waiting}")
    return found


def refuses(engine: Sequence[str]) -> bool:
    """Whether an engine with this command line refuses requests while nothing is wrong with it."""
    return not _BOUNDS.isdisjoint(_flags(engine))


def _flags(args: Sequence[str]) -> list[str]:
    """Return the flags of a command line in their order, however they are spelt."""
    return [argument.written for argument in parse(args).arguments]
