"""The judge of a canary: sure before it says worse, never a pass on what is not known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.diagnose.canary import MIN_PROMPTS, Answer, Served, Share, Verdict, judge

FIGURES = ["slow_first_tokens", "slow_tokens", "errors"]
shares = st.builds(lambda of, part: Share(round(of * part), of), st.integers(0, 5000), st.floats(0, 1))


def served(of=1000, **shares):
    return Served(**({name: Share(round(0.03 * of), of) for name in FIGURES} | shares))


def test_the_same_is_as_good():
    assert judge(served(), served()).verdict is Verdict.AS_GOOD


@pytest.mark.parametrize("figure", FIGURES)
def test_one_figure_that_is_plainly_worse_is_enough_and_is_named(figure):
    found = judge(served(), served(**{figure: Share(200, 1000)}))
    assert found.verdict is Verdict.WORSE
    assert {"slow_first_tokens": "TTFT", "slow_tokens": "TPOT", "errors": "errors"}[figure] in found.message


def test_what_breaks_everything_is_told_before_there_are_enough_requests():
    assert judge(served(200), served(errors=Share(20, 20))).verdict is Verdict.WORSE


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("known", [None, Share(0, 0), Share(2, 99)])
def test_what_is_not_known_is_neither_a_pass_nor_a_failure(figure, known):
    for old, new in [(served(), served(**{figure: known})), (served(**{figure: known}), served())]:
        found = judge(old, new)
        assert found.verdict is Verdict.NOT_KNOWN
        assert ("Not reported" if known is None else "Too few") in found.message
    assert judge(served(99), served(99), min_samples=99).verdict is Verdict.AS_GOOD


def test_answers_that_begin_otherwise_are_found_and_late_differences_are_not():
    text = "The capital of France is Paris, a city on the Seine with many bridges"
    late = text.replace("bridges", "museums")
    same, other = Answer(text, late), Answer(text, "<|im_start|> " + text)
    assert judge(served(), served(), [same] * MIN_PROMPTS).verdict is Verdict.AS_GOOD
    assert judge(served(), served(), [same] * 2 + [other] * 6).verdict is Verdict.WORSE
    assert judge(served(), served(), [other] * (MIN_PROMPTS - 1)).verdict is Verdict.NOT_KNOWN
    assert judge(served(), served(), [Answer(text, "")] * MIN_PROMPTS).verdict is Verdict.WORSE


@given(st.tuples(shares, shares, shares))
def test_nobody_is_worse_than_himself(three):
    one = Served(slow_first_tokens=three[0], slow_tokens=three[1], errors=three[2])
    assert judge(one, one).verdict is not Verdict.WORSE


@given(shares, shares, st.integers(0, 500))
def test_more_failures_never_make_it_better(old, new, more):
    def verdict(errors):
        return judge(served(errors=old), served(errors=errors)).verdict

    if verdict(new) is Verdict.WORSE and new.of:
        assert verdict(Share(min(new.of, new.count + more), new.of)) is Verdict.WORSE


@given(shares)
def test_bounds_hold_the_share(share):
    low, high = share.bounds()
    assert 0 <= low <= high <= 1
    if share.of:
        assert low - 1e-9 <= share.count / share.of <= high + 1e-9


def test_equal_revisions_are_seldom_taken_for_worse_however_often_one_looks():
    """2000 canaries of equal revisions, each looked at ten times while requests come in."""
    rng, wrong = random.Random(1), 0
    for _ in range(2000):
        counts = [0, 0]
        for look in range(1, 11):
            for side in (0, 1):
                counts[side] += sum(rng.random() < 0.05 for _ in range(20))
            old, new = (served(errors=Share(c, 20 * look)) for c in counts)
            if judge(old, new).verdict is Verdict.WORSE:
                wrong += 1
                break
    assert wrong <= 2
