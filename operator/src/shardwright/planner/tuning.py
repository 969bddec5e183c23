"""With which batch limits an arrangement runs, out of a bounded ladder.

Decides for one arrangement: the usual limits unless others take the load with fewer replicas, keep a target
that the usual ones miss, or keep more of the profile's targets. Never compares arrangements.

What cannot help is not tried: a load that a batch or a cache holds back asks for other sequences or smaller
chunks, a long first token for larger chunks, a long pause for smaller ones. With `Question.exhaustive` all of
the ladder is tried, and the answer must be the same.
"""

from math import inf

from shardwright.planner.filling import Trial, retry
from shardwright.planner.latency import Miss, judge_speed
from shardwright.planner.limits import SEQS, SHORT_TOKENS, TOKENS
from shardwright.planner.load import ITL, load_of, taking, wanted_fields
from shardwright.planner.performance.rate import Limit
from shardwright.planner.question import Fit, Question

_Key = tuple[bool, bool, float, float]


def tuned(question: Question, fit: Fit) -> Fit | Miss:
    """Return the arrangement with its speed under the best limits, or what it misses under them."""
    usual = judge_speed(question, fit)
    if not question.asked or fit.clamped or (isinstance(usual, Fit) and usual.speed is None):
        return usual
    best, ladder = usual, _Ladder(question, fit, usual)
    for tokens in ladder.chunks():
        found = ladder.best_of(tokens, _key(best))
        if found is not None:
            best = found
    return best


def _key(answer: Fit | Miss) -> _Key:
    """Order of the answers of one arrangement.

    What survives the loss of a node where that is asked for, then the fewest replicas, then what is kept of
    the profile. What misses something comes last, the one that is nearest first.
    """
    if isinstance(answer, Miss):
        return True, True, answer.replicas or inf, answer.overshoot
    return False, not answer.survives, answer.replicas, len(answer.speed.missed) if answer.speed else 0


class _Ladder:
    """The limits that one arrangement may have, and its answer under the usual ones."""

    __slots__ = ("_any_seqs", "_fit", "_full", "_pauses", "_question", "_seqs", "_slots", "_tokens", "_usual")

    def __init__(self, question: Question, fit: Fit, usual: Fit | Miss) -> None:
        self._question, self._fit, self._usual = question, fit, usual
        resolved, limits = question.resolved, fit.limits
        self._pauses = ITL in wanted_fields(resolved)
        self._full = Limit.SLOTS in usual.held_back
        # Fewer sequences leave more KV cache, of which nothing is known yet where the usual step is too long.
        self._any_seqs = self._full or (self._pauses and isinstance(usual, Miss))
        self._slots = _slots(fit.limits.max_num_seqs, fit.demand.most_held(fit.kv_room_tokens))
        seqs = () if resolved.max_num_seqs else SEQS
        tokens = () if resolved.max_num_batched_tokens else TOKENS + (SHORT_TOKENS if self._pauses else ())
        self._seqs = _nearest_first(limits.max_num_seqs, seqs)
        self._tokens = _nearest_first(limits.max_num_batched_tokens, tokens)

    def chunks(self) -> list[int]:
        """Return the chunks that may help, the usual one first, then by how far they are from it."""
        if self._question.exhaustive:
            return self._tokens
        if self._settled():
            return []
        own, traffic = self._fit.limits.max_num_batched_tokens, self._question.resolved.traffic
        more = self._full and self._may_save(self._most_slots())
        longest = traffic.input_p95_tokens - traffic.shared_prefix_tokens
        whole = min((t for t in self._tokens if t >= longest), default=max(self._tokens))
        return [
            tokens
            for tokens in self._tokens
            if (more and tokens <= own) or (self._pauses and tokens < own) or own < tokens <= whole
        ]

    def best_of(self, tokens: int, beat: _Key) -> Fit | Miss | None:
        """Return the first of the ladder with this chunk that does best with it, if it beats `beat`.

        More slots never take more replicas, so that the largest number of them says what the chunk can do.
        """
        tried = self._trials(tokens)
        if not tried:
            return None
        if self._question.exhaustive:
            best = min((self._judge(trial) for trial in tried), key=_key)
            return best if _key(best) < beat else None
        roomiest = max(tried, key=_slots_of)
        best = self._judge(roomiest)
        if _key(best) >= beat:
            return None
        for trial in tried[: tried.index(roomiest)]:
            answer = self._judge(trial)
            if _key(answer) == _key(best):
                return answer
        return best

    def _judge(self, trial: Trial) -> Fit | Miss:
        return judge_speed(self._question, trial.fit(None, within=self._fit.within_island))

    def _settled(self) -> bool:
        """Whether no limits can do better: the fewest replicas that may be planned, and nothing missed."""
        if isinstance(self._usual, Miss):
            return self._usual.limit is Limit.TPOT
        missed = self._usual.speed is not None and self._usual.speed.missed
        return self._usual.replicas <= self._question.replicas and self._usual.survives and not missed

    def _trials(self, tokens: int) -> list[Trial]:
        """Return what holds the work with this chunk and each number of sequences that may help."""
        limits, found = self._fit.limits, []
        exhaustive = self._question.exhaustive
        same_speed = tokens <= limits.max_num_batched_tokens and not self._pauses
        for seqs in self._seqs if self._any_seqs or exhaustive else self._seqs[:1]:
            usual = (seqs, tokens) == (limits.max_num_seqs, limits.max_num_batched_tokens)
            if usual or not self._fit.demand.concurrency <= seqs <= tokens:
                continue
            if same_speed and not exhaustive and not self._may_save(seqs):
                continue
            trial = retry(self._question, self._fit, seqs, tokens)
            if trial is None or (same_speed and not exhaustive and not self._may_save(_slots_of(trial))):
                continue
            found.append(trial)
        return found

    def _most_slots(self) -> int:
        """Return the most slots of all limits: the smallest ones leave the most room."""
        trial = retry(self._question, self._fit, min(self._seqs), min(self._tokens))
        return self._slots if trial is None else _slots(max(self._seqs), trial.held)

    def _may_save(self, slots: int) -> bool:
        """Whether so many slots may take fewer replicas: a rate grows no faster than they do."""
        gain, load = slots / self._slots, load_of(self._question.resolved).total
        if gain <= 1 or not load:
            return False
        if isinstance(self._usual, Miss):
            each = self._usual.per_replica
            return not each or taking(load, each * gain) < self._usual.replicas
        speed = self._usual.speed
        assert speed is not None
        return taking(load, speed.most * gain) < taking(load, speed.most)


def _slots(seqs: int, held: int) -> int:
    """Return the requests that run at once in one rank, at most."""
    return min(seqs, max(1, held))


def _slots_of(trial: Trial) -> int:
    return _slots(trial.limits.max_num_seqs, trial.held)


def _nearest_first(own: int, others: tuple[int, ...]) -> list[int]:
    return sorted({own, *others}, key=lambda value: (max(value / own, own / value), value))
