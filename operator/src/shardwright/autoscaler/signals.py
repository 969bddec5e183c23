"""What one tick is told of a fleet, and what it may decide within.

Decides the shape of inputs. What the engines say is a reading in three states; what the API server says of
pods is a number, for it is always known.
"""

from dataclasses import dataclass

from shardwright.autoscaler.replica import ReplicaModel
from shardwright.planner.signals import ABSENT, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSignals:
    """The fleet now, and what its engines counted since the last tick. Sums are over pods that exist."""

    interval_s: float
    """Seconds that the counts cover; above zero."""
    ready: int
    starting: int
    """Pods that have a node and do not serve yet."""
    draining: int = 0
    """Pods that leave."""
    unschedulable: int = 0
    """Pods for which the scheduler found no node."""
    reporting: int = 0
    """Ready pods whose figures are in the sums. Fewer than are ready: the sums are a lower bound."""
    renewed: bool = True
    """All of these are of this tick: a source may answer with what it read before."""
    arrived: Reading = ABSENT
    """Requests: those that ended or were refused, and the change of those in flight."""
    refused: float = 0.0
    """Of those, refused by the bounds of the engines' queues: at least so many. They got no first token, and
    are misses that more replicas would mend."""
    running: Reading = ABSENT
    waiting: Reading = ABSENT
    kv_share: Reading = ABSENT
    """Mean share of the KV cache in use on ready pods."""
    first_tokens: Reading = ABSENT
    late_first_tokens: Reading = ABSENT
    """Of those, after the TTFT target."""
    long_first_tokens: Reading = ABSENT
    """Of those, with a prompt longer than `law.longest_prompt_tokens`."""
    finished: Reading = ABSENT
    slow_finished: Reading = ABSENT
    """Of those, with a mean time per token over the TPOT target."""
    input_tokens: Reading = ABSENT
    """Prompt tokens of the requests that got a first token."""
    output_tokens: Reading = ABSENT
    """Tokens of the requests that ended."""
    tokens: Reading = ABSENT
    """Tokens but the first of each request (`inter_token_latency_seconds_count`)."""
    token_s: Reading = ABSENT
    """Seconds before each of them (`inter_token_latency_seconds_sum`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    """What the plan and the spec say."""

    model: ReplicaModel
    """As the planner predicts it."""
    ttft_s: float
    tpot_s: float
    percentile: float
    """Of requests that meet both targets; the only knob. Above 0, below 100."""
    input_tokens: float
    """Mean lengths that were planned for, used until some are seen."""
    output_tokens: float
    min_replicas: int
    max_replicas: int
    gpus_per_replica: int = 1
    max_gpus: int = 1 << 30
    cold_start_s: float = 120.0
    """The start-up budget: for how long a starting pod is supply to wait for."""
    idle_s: float | None = None
    """For how long the last replica must have had no request before none runs; None: it always runs."""
    wakeable: bool = True
    """Requests that come while none runs are held, and would be heard of."""

    def __post_init__(self) -> None:
        """Refuse what no size satisfies. Raises ValueError naming the field."""
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"scaling.minReplicas {self.min_replicas} is above scaling.maxReplicas {self.max_replicas}: "
                "lower the one or raise the other"
            )
        if self.gpus_per_replica > self.max_gpus:
            raise ValueError(
                f"pool.maxGPUs {self.max_gpus} does not hold one replica of {self.gpus_per_replica} GPUs: "
                "raise it"
            )
        if not 0 < self.percentile < 100:
            raise ValueError(f"slo percentile {self.percentile} is not between 0 and 100")

    @property
    def allowed_share(self) -> float:
        """The share of requests that may miss."""
        return 1 - self.percentile / 100

    @property
    def most(self) -> int:
        """Replicas that maximum and budget allow."""
        return min(self.max_replicas, self.max_gpus // self.gpus_per_replica)
