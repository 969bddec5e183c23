"""Whether targets are kept at their percentiles: counted, never flickering, never from what is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.diagnose.targets import MIN_REQUESTS, NO_VERDICTS, Verdicts, judge
from shardwright.planner.growth import Growth
from shardwright.planner.load import TPOT, TTFT

SPEC = LLMServiceSpec.model_validate(
    {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "pool": {"maxGPUs": 8},
        "slo": {
            "ttft": {"milliseconds": 800, "percentile": 95},
            "tpot": {"milliseconds": 40, "percentile": 50},
        },
    }
)
RESOLVED = resolve(SPEC)
FIRST, TOKENS = "TTFT P95 800 ms", "TPOT P50 40 ms"
BOTH = frozenset({TTFT, TPOT})


def grown(requests=1000.0, late=0.0, slow=0.0, **more):
    values = {
        "ttft_count": requests,
        "ttft_within": requests - late,
        "tpot_count": requests,
        "tpot_within": requests - slow,
    }
    return Growth(seconds=900.0, **values | more)


def verdicts(*each, before=NO_VERDICTS, stated=BOTH):
    return judge(RESOLVED, stated, each, before)


def test_each_target_is_judged_at_its_own_percentile():
    assert verdicts(grown()) == Verdicts(kept=(FIRST, TOKENS))
    assert verdicts(grown(late=50, slow=500)) == Verdicts(kept=(FIRST, TOKENS))
    assert verdicts(grown(late=200, slow=200)) == Verdicts(kept=(TOKENS,), missed=(FIRST,))
    assert verdicts(grown(slow=700)) == Verdicts(kept=(FIRST,), missed=(TOKENS,))


def test_the_requests_of_all_engines_are_one_share():
    assert verdicts(grown(late=200), grown(9000.0)) == Verdicts(kept=(FIRST, TOKENS))
    assert verdicts(grown(0.0), grown(late=200)).missed == (FIRST,)


def test_only_stated_targets_are_judged():
    assert verdicts(grown(late=999, slow=999), stated=frozenset({TPOT})) == Verdicts(missed=(TOKENS,))
    assert verdicts(grown(), stated=frozenset()) == NO_VERDICTS


@pytest.mark.parametrize(
    "nothing",
    [(), (Growth(seconds=60.0),), (grown(MIN_REQUESTS - 1, late=50),), (grown(0.0),)],
    ids=["no engine", "no histogram", "few requests", "no request"],
)
@pytest.mark.parametrize("before", [NO_VERDICTS, Verdicts(missed=(FIRST,)), Verdicts(kept=(FIRST, TOKENS))])
def test_what_is_not_known_leaves_what_was_said(nothing, before):
    assert verdicts(*nothing, before=before) == before


def test_what_was_said_of_another_target_does_not_stand():
    assert verdicts(before=Verdicts(missed=("TTFT P95 500 ms",))) == NO_VERDICTS


counts = st.integers(0, 3000)


@given(
    requests=counts,
    late=counts,
    before=st.sampled_from([NO_VERDICTS, Verdicts(kept=(FIRST,)), Verdicts(missed=(FIRST,))]),
)
def test_a_verdict_stands_when_the_same_is_seen_again_and_more_late_ones_never_mend_it(
    requests, late, before
):
    seen = verdicts(grown(float(requests), late=float(min(late, requests))), before=before, stated={TTFT})
    again = verdicts(grown(float(requests), late=float(min(late, requests))), before=seen, stated={TTFT})
    assert again == seen
    worse = verdicts(grown(float(requests), late=float(requests)), before=seen, stated={TTFT})
    assert not (seen.missed and worse.kept)
