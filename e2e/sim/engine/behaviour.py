"""What a test asks of a simulated engine besides its command line: its speed, its start, its faults.

It decides defaults, and what vLLM says in its log for each way to fail. It comes as JSON in one variable, which the
node agent sets; a fault can also be asked for while it runs (`control.py`).
"""

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sim.engine.queueing import ReplicaModel

VARIABLE = "SHARDWRIGHT_SIM_ENGINE"
CONTROL_PORT = 9999


class LoadFault(StrEnum):
    """Ways to end before the port is open."""

    OUT_OF_MEMORY = "OutOfMemory"
    NO_KV_CACHE = "NoKVCache"
    HUB_UNAUTHORIZED = "HubUnauthorized"
    HUB_RATE_LIMITED = "HubRateLimited"


class Fault(StrEnum):
    """Ways to fail while serving."""

    ENGINE_DEATH = "EngineDeath"
    """The engine's process ends: /health 503 within 0.5 s, the server ends after some 5 s with code 0."""
    XID = "XID"
    """The same after an error of the GPU, named in the log, with code 1."""
    HANG = "Hang"
    """No step ends any more; /health stays 200."""
    RECOVERY = "Recovery"
    """No fault: it steps again, and shows figures."""
    NAN_METRICS = "NaNMetrics"
    """Every figure of /metrics is NaN."""
    EXIT = "Exit"
    """The process ends at once, with code 1 and no word."""


_HUB = "https://huggingface.co/api/models/MODEL"
LOAD_LOG: dict[LoadFault, str] = {
    LoadFault.OUT_OF_MEMORY: "(EngineCore pid=77) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. "
    "GPU 0 has a total capacity of 79.19 GiB of which 211.06 MiB is free.",
    LoadFault.NO_KV_CACHE: "(EngineCore pid=77) ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
    LoadFault.HUB_UNAUTHORIZED: f"huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for "
    f"url {_HUB}. Access to model MODEL is restricted.",
    LoadFault.HUB_RATE_LIMITED: f"huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: {_HUB}",
}
ENGINE_FAILED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
XID_LOG = (
    "(EngineCore pid=77) torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "NVRM: Xid (PCI:0000:3b:00): 48, pid=77, name=VLLM::EngineCor, DBE (double bit error)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One engine's. All seconds are those of the engine: `speed` makes them, and each step, that much shorter."""

    model: ReplicaModel = dataclasses.field(default_factory=ReplicaModel)
    speed: float = 1.0
    start_s: float = 30.0
    teardown_s: float = 3.0
    """After the drain, before the process ends."""
    load_fault: LoadFault | None = None
    faults: tuple[Fault, ...] = ()
    """There from the first request on."""
    answers: str = ""
    """Anything here changes all answers, as a broken kernel would."""
    control_port: int = CONTROL_PORT
    natural_ends: bool = True
    """Whether an answer may end before `max_tokens`."""


def from_json(text: str) -> Behaviour:
    """Read it; an unknown key is a mistake of the test and raises."""
    given: dict[str, Any] = json.loads(text or "{}")
    model = ReplicaModel(**given.pop("model", {}))
    fault = given.pop("load_fault", None)
    faults = tuple(Fault(name) for name in given.pop("faults", ()))
    return Behaviour(model=model, load_fault=LoadFault(fault) if fault else None, faults=faults, **given)
