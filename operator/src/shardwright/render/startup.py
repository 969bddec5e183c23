"""The start-up budget: how long one engine may take from container start to its first 200 on /health.

Decides one number for each plan, computed once and frozen in the revision; the start-up probe, the engine's
own ready timeout and the Deployment's progress deadline all come from it, so that no two timers disagree. It
is an upper bound with conservative rates, not a prediction: a budget that is too short kills a healthy engine
while it loads.
"""

from dataclasses import dataclass
from typing import Final

from shardwright.planner.types import GIB, Plan

MIB: Final = 1 << 20

LOAD_BYTES_S: Final = {"Hub": 50 * MIB, "PVC": 150 * MIB, "URI": 150 * MIB}
"""Bytes a second that a start may count on, by source. Our choice, deliberately low: a hub download shares
the site's uplink and is rate limited (50 MiB/s is 0.4 Gbit/s), a claim is often a network file system read by
several pods at once, and an object store streams at about the same rate. A shorter budget gains nothing, as
the probe succeeds as soon as the engine answers."""

ENGINE_INIT_S: Final = 300
"""Imports, CUDA context, torch.compile and warm-up on one GPU without a compile cache. Our choice: vLLM's own
default for the whole start is 600 s (VLLM_ENGINE_READY_TIMEOUT_S), which loads of large models exceed."""
PER_RANK_S: Final = 15
"""Each further rank joins the process group and captures its own graphs."""
IMAGE_PULL_S: Final = 900
"""The vLLM image has about 10 GB; at the hub rate above, 200 s, and nodes unpack it too. It happens before
the container starts, so only the progress deadline counts it."""
MINIMUM_S: Final = 600
PROBE_PERIOD_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupBudget:
    """Seconds of one start."""

    load_bytes: int
    engine_s: int
    """From container start to the first answer."""
    download_s: int = 0
    """The share of it in which weights come from a hub."""

    @property
    def fetch_s(self) -> int:
        """How long a Job may take that does nothing but download, the pull of its image included."""
        return max(MINIMUM_S, self.download_s) + IMAGE_PULL_S

    @property
    def probe_failures(self) -> int:
        """`failureThreshold` of the start-up probe."""
        return -(-self.engine_s // PROBE_PERIOD_S)

    @property
    def progress_deadline_s(self) -> int:
        """`progressDeadlineSeconds` of the Deployment: image pull included."""
        return self.engine_s + IMAGE_PULL_S


def startup_budget(plan: Plan, source: str) -> StartupBudget:
    """Return the budget of a start of `plan` whose weights come from `source` (Hub, PVC or URI).

    Bytes are the checkpoint's when known, else the bill's weights of all GPUs of the replica.
    """
    known = plan.model.architecture.checkpoint_bytes
    ranks = plan.parallelism.gpus
    load_bytes = known or int(plan.estimate.weights_gib_per_gpu * GIB * ranks)
    load_s = -(-load_bytes // LOAD_BYTES_S[source])
    download_s = load_s if source == "Hub" else 0
    if source == "Hub":  # downloaded to the cache, then read back from it
        load_s += -(-load_bytes // LOAD_BYTES_S["PVC"])
    total = max(MINIMUM_S, ENGINE_INIT_S + PER_RANK_S * (ranks - 1) + load_s)
    engine_s = -(-total // PROBE_PERIOD_S) * PROBE_PERIOD_S
    return StartupBudget(load_bytes=load_bytes, engine_s=engine_s, download_s=download_s)
