"""The autoscaler itself as a policy of a replay: the same `tick` that the live loop drives."""

from dataclasses import dataclass, field, replace

from shardwright.autoscaler.law import longest_prompt_tokens, tick
from shardwright.autoscaler.replay.fleet import Snapshot
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Decision, State
from shardwright.planner.signals import reading


def signals_of(seen: Snapshot) -> FleetSignals:
    """Return a snapshot as the live loop would tell it."""
    shares = seen.kv_shares
    return FleetSignals(
        interval_s=seen.interval_s,
        ready=seen.ready,
        starting=seen.starting,
        draining=seen.draining,
        reporting=seen.ready,
        arrived=reading(seen.arrived),
        running=reading(seen.running),
        waiting=reading(seen.waiting),
        kv_share=reading(sum(shares) / len(shares) if shares else 0.0),
        first_tokens=reading(seen.first),
        late_first_tokens=reading(seen.late),
        long_first_tokens=reading(seen.long),
        finished=reading(seen.finished),
        slow_finished=reading(seen.slow),
        input_tokens=reading(seen.input_tokens),
        output_tokens=reading(seen.output_tokens),
        tokens=reading(seen.tokens),
        token_s=reading(seen.token_s),
    )


@dataclass(slots=True)
class Own:
    """The autoscaler under a plan."""

    plan: ScalingPlan
    name: str = "shardwright"
    period_s: float = 15.0
    state: State = field(default_factory=State)
    decision: Decision | None = None

    @property
    def limit_tokens(self) -> int:
        """As the plan says, corrected by what was seen."""
        return longest_prompt_tokens(self.state, self.plan)

    def decide(self, seen: Snapshot) -> int:
        """Tick once."""
        self.state, desired, self.decision = tick(self.state, signals_of(seen), self.plan, seen.now_s)
        return desired


class FeedForward(Own):
    """The autoscaler without what misses teach it: the model's demand, floor and spare alone."""

    def __init__(self, plan: ScalingPlan) -> None:
        super().__init__(plan, name="feed-forward")

    def decide(self, seen: Snapshot) -> int:
        """Tick once, and forget the headroom."""
        desired = super().decide(seen)
        self.state = replace(self.state, headroom=1.0)
        return desired
