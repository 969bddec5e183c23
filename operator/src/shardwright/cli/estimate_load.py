"""The load that a latency is asked for: lengths, requests in flight or each second, and the ranks' wires.

Decides which load options belong together and whether ranks talk over NVLink. Never decides a latency.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from shardwright.catalog.fields import kind
from shardwright.catalog.types import BRIDGED, GPUProduct
from shardwright.cli.option_values import OptionError, amount
from shardwright.planner.kv import is_fp8
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.types import MemoryRequest, Parallelism

MOST_TOKENS = 1 << 30
MOST_REQUESTS = 1_000_000
LEAST_RATE = 0.0001
NVLINK, PCIE = "nvlink", "pcie"
_EXAMPLE = "such as input_tokens 1024, output_tokens 128 and concurrency 16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one replica serves. Exactly one of `concurrency` and `rate` is given."""

    input_tokens: float
    """Of one request, the shared prefix included."""
    output_tokens: float
    shared_prefix_tokens: float = 0.0
    concurrency: float | None = None
    """Requests in flight."""
    rate: float | None = None
    """Requests that arrive each second."""
    interconnect: str | None = None
    """"nvlink" or "pcie"; None: what the product and the arrangement say."""

    def __str__(self) -> str:
        arrival = (
            f"{self.concurrency:.10g} in flight" if self.rate is None else f"{self.rate:.10g} requests/s"
        )
        found = (f", {self.shared_prefix_tokens:.10g} of the input cached") * bool(self.shared_prefix_tokens)
        return f"{arrival}, {self.input_tokens:.10g} input + {self.output_tokens:.10g} output tokens{found}"


LOAD_OPTIONS = tuple(field.name for field in fields(Load))


def load_of(values: Mapping[str, object]) -> Load | None:
    """Return the load; None when no option of it is given. Raises OptionError naming what is wrong."""
    given = [name for name in LOAD_OPTIONS if name in values]
    if not given:
        return None
    for name in ("input_tokens", "output_tokens"):
        if name not in values:
            raise OptionError(f"{name}: is missing beside {given[0]}: a latency needs a load, {_EXAMPLE}")
    if ("concurrency" in values) == ("rate" in values):
        raise OptionError("concurrency, rate: give exactly one, requests in flight or requests each second")
    prompt = amount(values, "input_tokens", 1, MOST_TOKENS) or 1.0
    prefix = amount(values, "shared_prefix_tokens", 0, MOST_TOKENS) or 0.0
    if prefix >= prompt:
        raise OptionError(
            f"shared_prefix_tokens: is part of the input: write less than input_tokens ({prompt:.10g}), "
            f"not {prefix:.10g}"
        )
    return Load(
        input_tokens=prompt,
        output_tokens=amount(values, "output_tokens", 1, MOST_TOKENS) or 1.0,
        shared_prefix_tokens=prefix,
        concurrency=amount(values, "concurrency", 1, MOST_REQUESTS),
        rate=amount(values, "rate", LEAST_RATE, MOST_REQUESTS),
        interconnect=_interconnect(values),
    )


def link(load: Load, gpu: GPUProduct, split: Parallelism) -> tuple[bool, str]:
    """Return whether the ranks of a stage talk over NVLink (or XGMI), and a sentence when that is not plain.

    Raises OptionError when NVLink is asked for where there is none.
    """
    ranks = split.tensor * split.data
    if ranks == 1:
        return True, ""
    if load.interconnect == NVLINK:
        most = BRIDGED.get(gpu.interconnect, gpu.island_gpus)
        if ranks > most:
            reach = f"links at most {most} GPUs" if most > 1 else "has no NVLink"
            raise OptionError(f"interconnect: {gpu.short_name} {reach}, and {split} needs {ranks}: use pcie")
        return True, ""
    if load.interconnect == PCIE:
        return False, ""
    if ranks <= gpu.island_gpus:
        return True, ""
    if ranks <= BRIDGED.get(gpu.interconnect, 1):
        return False, (
            f"NVLink bridges of {gpu.short_name} are fitted by choice: the ranks are taken over PCIe; "
            "give --interconnect nvlink when they are there."
        )
    if gpu.island_gpus > 1:
        return False, (
            f"{ranks} ranks are more than the {gpu.island_gpus} GPUs that are linked: taken over PCIe; "
            "a network between nodes is slower and not modelled."
        )
    return False, f"The {ranks} ranks talk over PCIe: nothing else links so many {gpu.short_name}."


def performance_request(memory: MemoryRequest, load: Load, kv_tokens: int | None) -> PerformanceRequest:
    """Return the question to the latency model. `kv_tokens` of one engine rank; None: not limited."""
    return PerformanceRequest(
        architecture=memory.architecture,
        gpu=memory.gpu,
        engine=memory.engine,
        parallelism=memory.parallelism,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        shared_prefix_tokens=load.shared_prefix_tokens,
        concurrency=load.concurrency,
        rate_per_s=load.rate,
        max_num_seqs=memory.limits.max_num_seqs,
        max_num_batched_tokens=memory.limits.max_num_batched_tokens,
        kv_capacity_tokens=kv_tokens,
        fp8_kv=is_fp8(memory.limits),
        nvlink=link(load, memory.gpu, memory.parallelism)[0],
    )


def _interconnect(values: Mapping[str, object]) -> str | None:
    value = values.get("interconnect")
    if value is None:
        return None
    name = str(value).strip().lower()
    if name not in {NVLINK, PCIE}:
        raise OptionError(f"interconnect: must be {NVLINK} or {PCIE}, not {kind(value)}")
    return name
