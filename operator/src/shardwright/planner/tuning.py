"""With which batch limits an arrangement runs, out of a bounded ladder.

Decides for one arrangement: the usual limits unless others take the load with fewer replicas, keep a target
that the usual ones miss, or keep more of the profile's targets. Never compares arrangements.

What cannot help is not tried: a load that a batch or a cache holds back asks for other sequences or smaller
chunks, a long first token for larger chunks, a long pause for smaller ones. With `Question.exhaustive` all
of the ladder is tried, and the answer must be the same.
"""

from collections.abc import Iterator
from math import inf

from shardwright.planner.filling import refill
from shardwright.planner.latency import Miss, judge_speed
from shardwright.planner.limits import SEQS, SHORT_TOKENS, TOKENS
from shardwright.planner.load import ITL, wanted_fields
from shardwright.planner.performance.rate import Limit
from shardwright.planner.question import Fit, Question

_Key = tuple[bool, float, float]


def tuned(question: Question, fit: Fit) -> Fit | Miss:
    """Return the arrangement with its speed under the best limits, or what it misses under them."""
    usual = judge_speed(question, fit)
    if not question.asked or fit.clamped or (isinstance(usual, Fit) and usual.speed is None):
        return usual
    best = usual
    for tokens in _chunks(question, fit, usual):
        found = _of_chunk(question, fit, usual, tokens)
        if found is not None and _key(found) < _key(best):
            best = found
    return best


def _key(answer: Fit | Miss) -> _Key:
    """Order of the answers of one arrangement: the fewest replicas, then what is kept of the profile.

    What misses something comes last, the one that is nearest first.
    """
    if isinstance(answer, Miss):
        return True, answer.replicas or inf, answer.overshoot
    return False, answer.replicas, len(answer.speed.missed) if answer.speed else 0


def _of_chunk(question: Question, fit: Fit, usual: Fit | Miss, tokens: int) -> Fit | Miss | None:
    """Return the first of the ladder with this chunk that does best with it.

    More slots never take more replicas, so that the largest number of them says what the chunk can do.
    """
    held = list(_refilled(question, fit, usual, tokens))
    if not held:
        return None
    if question.exhaustive:
        return min((judge_speed(question, f) for f in held), key=_key)
    roomiest = max(held, key=_slots)
    best = judge_speed(question, roomiest)
    for other in held:
        if other is roomiest:
            break
        answer = judge_speed(question, other)
        if _key(answer) == _key(best):
            return answer
    return best


def _slots(fit: Fit) -> int:
    """Return the requests that run at once in one rank, at most."""
    return min(fit.limits.max_num_seqs, max(1, fit.demand.most_held(fit.kv_room_tokens)))


def _refilled(question: Question, fit: Fit, usual: Fit | Miss, tokens: int) -> Iterator[Fit]:
    """Yield the arrangement with this chunk and each number of sequences, the usual number first."""
    own, pinned = fit.limits.max_num_seqs, question.resolved.max_num_seqs
    ladder = [own] if pinned else sorted({own, *SEQS}, key=lambda s: (_far(s, own), s))
    if not question.exhaustive and Limit.SLOTS not in usual.held_back:
        ladder = [own]
    for seqs in ladder:
        if fit.demand.concurrency <= seqs <= tokens and (seqs, tokens) != (
            own,
            fit.limits.max_num_batched_tokens,
        ):
            found = refill(question, fit, seqs, tokens)
            if found is not None:
                yield found


def _chunks(question: Question, fit: Fit, usual: Fit | Miss) -> list[int]:
    """Return the chunks that may help, the usual one first, then by how far they are from it."""
    own, traffic = fit.limits.max_num_batched_tokens, question.resolved.traffic
    if question.resolved.max_num_batched_tokens:
        return [own]
    pauses = ITL in wanted_fields(question.resolved)
    ladder = sorted({own, *TOKENS, *(SHORT_TOKENS if pauses else ())}, key=lambda t: (_far(t, own), t))
    if question.exhaustive:
        return ladder
    if _settled(question, usual):
        return []
    longest = traffic.input_p95_tokens - traffic.shared_prefix_tokens
    return [t for t in ladder if _may_help(usual, t, own, longest, pauses=pauses)]


def _settled(question: Question, usual: Fit | Miss) -> bool:
    """Whether no limits can do better: the fewest replicas that may be planned, and nothing missed."""
    if isinstance(usual, Miss):
        return usual.limit is Limit.TPOT
    least = max(1, question.replicas)
    return usual.replicas - usual.spare <= least and not _missed(usual)


def _missed(fit: Fit) -> bool:
    return fit.speed is not None and bool(fit.speed.missed)


def _may_help(usual: Fit | Miss, tokens: int, own: int, longest: int, *, pauses: bool) -> bool:
    if tokens == own:
        return Limit.SLOTS in usual.held_back
    if tokens > own:
        return longest > own
    return Limit.SLOTS in usual.held_back or pauses


def _far(value: int, own: int) -> float:
    return max(value / own, own / value)
