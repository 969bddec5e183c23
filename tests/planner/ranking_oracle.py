"""How arrangements that fit are ranked, written a second time from its statement: who wins, and what is said of the rest.

The statement: the full context first; then, where a load or a target is stated, what is predicted; under a load, what the
pool's nodes hold; what has a price; one GPU and ranks in an island before stages before ranks without links (where something
is stated and speeds are predicted, price decides between all but the last). Degrees that are no power of two step back. Then
the price of all replicas (their GPUs where none of them has one), 1.3 times for what no measured row covers; where nothing is
stated, within 5 % is the same. What is even goes by
the profile's targets, fewer GPUs, measured rows, the model's own KV format, no expert parallelism, links, fewer stages, room
for load, fewer ranks with own attention, the smaller GPU, names. Specs that want the fastest, or to survive the loss of a node, are not covered.
"""

from dataclasses import dataclass

from planner.oracles import cost
from shardwright.planner.types import Plan, kv_mark

TIE, GAIN = 1.05, 1.3
POWERS = {1, 2, 4, 8, 16, 32, 64}


@dataclass(frozen=True, slots=True)
class Stated:
    """What of a spec and of all that fits decides how it is compared."""

    asked: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """An arrangement that fits, as it is when it stands alone."""

    plan: Plan
    question: int
    """0 one GPU, 1 ranks in an island (or anywhere under Any), 2 stages, 3 ranks without links; 0 where price decides."""
    clamped: bool
    held: int
    """Replicas that the pool's nodes hold."""
    total: float
    """What all replicas cost."""

    @property
    def split(self):
        return self.plan.parallelism

    @property
    def name(self):
        return f"{self.split}{kv_mark(self.plan.limits.kv_cache_dtype)}"

    @property
    def same(self):
        """Checkpoint and product."""
        return self.plan.model.model_id, self.plan.product.label

    @property
    def context(self):
        return self.plan.limits.max_model_len

    @property
    def share(self):
        return min(1.0, self.held / self.plan.replicas)

    @property
    def priced(self):
        return self.plan.product.price_per_gpu_hour is not None

    @property
    def narrow(self):
        return self.plan.limits.kv_cache_dtype != "auto"

    @property
    def unvalidated(self):
        plain = self.plan.estimate.covered and self.split.pipeline == self.split.data == 1 and not self.narrow
        return not plain or bool(self.plan.speed and self.plan.speed.gaps)

    @property
    def unmeasured(self):
        return self.unvalidated or self.split.expert

    @property
    def judged(self):
        return self.total * (GAIN if self.unmeasured else 1.0)

    @property
    def predicted(self):
        return self.plan.speed is not None

    @property
    def evens(self):
        """What sets apart arrangements that cost the same, in order, each with the words for the better one."""
        gpu, split, speed = self.plan.product, self.split, self.plan.speed
        return (
            (bool(speed and speed.missed), "{} keeps the targets of the workload's profile"),
            (split.gpus, "{} is the smaller failure domain"),
            (self.unvalidated, "measured rows cover {}"),
            (self.narrow, "the KV cache of {} stays in the model's own format"),
            (split.expert, "nothing predicts that expert parallelism beats {}"),
            (not self.plan.within_island, "the ranks of {} have links"),
            (split.pipeline, "{} has fewer pipeline stages"),
            (-round(speed.most * self.plan.replicas, 6) if speed else 0.0, "{} has room for more load"),
            (split.data, "{} has fewer ranks with attention of their own"),
            (gpu.memory_mib, "{} leaves the larger GPU free"),
            ((gpu.label, self.plan.model.model_id), "{} comes first by name"),
        )

    @property
    def order(self):
        return tuple(value for value, _ in self.evens)


def standing(plan, held, policy, stated, spec):
    """Return the standing of a plan that was made with nothing beside it, and that the nodes hold `held` times."""
    split = plan.parallelism
    step = (
        0 if split.gpus == 1 else 1 if split.pipeline == 1 and (plan.within_island or policy == "Any") else 2
    )
    if step == 2 and not plan.within_island:
        step = 3
    if stated.asked and plan.speed is not None and step != 3:
        step = 0
    clamped = spec.model.max_context_tokens is not None and plan.context_clamped_from is not None
    return Standing(plan, step, clamped, held, cost(plan.product, split.gpus) * plan.replicas)


def winner(fits, stated):
    """Return who wins."""
    longest = max(f.context for f in fits)
    left = [f for f in fits if not f.clamped] or [f for f in fits if f.context == longest]
    if stated.asked:
        left = [f for f in left if f.predicted] or left
    left = [f for f in left if f.share == max(o.share for o in left)]
    left = [f for f in left if f.priced] or left
    left = [f for f in left if f.question == min(o.question for o in left)]
    left = [f for f in left if not any(steps_back(f, o) for o in left)]
    limit = min(f.judged for f in left) * (1 + 1e-9 if stated.asked else TIE)
    return min((f for f in left if f.judged <= limit), key=lambda f: f.order)


def steps_back(one, other):
    """Whether a degree that is no power of two steps back for one that is, on its product and inside an island."""
    inside = one.split.pipeline == 1 and one.question < 2
    return (
        one.same == other.same and inside and one.split.tensor not in POWERS and other.split.tensor in POWERS
    )


def verdict(loser, rival, stated):
    """Return the reason, and the words of its sentence (| for words that are not judged), for what lost to `rival`."""
    name = rival.name if rival.same == loser.same else f"{rival.name} on {rival.plan.product.short_name}"
    if loser.same[0] != rival.same[0]:
        name = f"{rival.same[0]} with {name}"
    if loser.clamped and loser.context < rival.context:
        holds, asked = rival.context if rival.clamped else "all", loser.plan.context_clamped_from
        return (
            "KVTooSmall",
            f"it holds only {loser.context} of {asked} tokens of context; {name} holds {holds}",
        )
    if stated.asked and rival.predicted and not loser.predicted:
        return "RankedLower", f"it fits, but its speed is not predicted (|), and that of {name} is"
    if loser.share < rival.share:
        all_of_it = "all" if rival.share == 1 else f"{rival.held} of {rival.plan.replicas}"
        takes = f"{loser.plan.replicas} replicas of it are wanted"
        held = f"the pool's nodes hold {loser.held}; of {name} they hold {all_of_it}"
        return "PoolTooSmall", f"it fits, but {takes} and {held}"
    if rival.priced and not loser.priced:
        gpu = loser.plan.product.short_name
        known = f"no price of {gpu} is known, and that of {name} is: state one of {gpu} to compare"
        return "PriceUnknown", f"it fits, but {known}"
    if loser.question > rival.question:
        return _later(loser, rival, name, stated)
    if steps_back(loser, rival):
        return "RankedLower", f"it fits, but powers of two rank first, and {name} fits too"
    return _by_price(loser, rival, name, stated)


def _more(loser, rival, name):
    own = rival.same == loser.same and loser.split.gpus > rival.split.gpus
    return (
        own and f"it fits, but takes {gpus(loser.split.gpus)} a replica where {name} takes {rival.split.gpus}"
    )


def _later(loser, rival, name, stated):
    """What an earlier question than its own is answered with."""
    ours, theirs = loser.split, rival.split
    if more := _more(loser, rival, name):
        return "LargerThanNeeded", more
    if not stated.asked and theirs.gpus == 1:
        return (
            "LargerThanNeeded",
            f"it fits, but is split over {gpus(ours.gpus)} where one GPU is enough: {name}",
        )
    if loser.plan.within_island:
        return "Unvalidated", f"it fits, but stages are for what no NVLink island holds, and {name} holds it"
    links = f"those of {name} have links" if theirs.ranks > 1 else f"{name} needs no link"
    ours_cost, theirs_cost = (text_of(f) for f in (loser, rival))
    words = (
        f"it fits for {ours_cost}, but its {ours.ranks} ranks would talk over PCIe; {links} ({theirs_cost})"
    )
    return "BeyondIsland", words


def _by_price(loser, rival, name, stated):
    """What costs more, or not enough less, or is even in all but one."""
    costs = [text_of(f) for f in (loser, rival)]
    tie = 1 + 1e-9 if stated.asked else TIE
    beyond = loser.judged > rival.judged * tie or loser.order < rival.order
    if beyond and loser.total > rival.total:
        if more := _more(loser, rival, name):
            return "LargerThanNeeded", more + (f": {costs[0]} instead of {costs[1]}" if stated.asked else "")
        return "CostsMore", f"it fits, but takes {costs[0]} where {name} takes {costs[1]}"
    if beyond and loser.unmeasured:
        have = f"it would have to be 1.3 times cheaper than {name} ({costs[1]})"
        return "Unvalidated", f"it fits for {costs[0]}, but no measured row covers it (|): {have}"
    apart = zip(loser.evens, rival.evens, strict=True)
    words = next((mine[1] for mine, its in apart if mine[0] > its[0]), "{} comes first by name")
    return "RankedLower", f"it fits at about the same cost, but {words.format(name)}"


def text_of(found):
    """A cost as sentences write it."""
    number = f"{found.total:.2f} an hour" if found.priced else gpus(round(found.total))
    return number if found.plan.replicas == 1 else f"{number} for {found.plan.replicas} replicas"


def gpus(number):
    return f"{number} GPU" if number == 1 else f"{number} GPUs"
