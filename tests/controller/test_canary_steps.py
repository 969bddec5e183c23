"""A canary's steps: how many replicas, and that none ends on time alone."""

from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.serving import CanaryStep
from shardwright.controller.canary import At, advance, goal
from shardwright.diagnose.canary import Verdict

STEPS = [CanaryStep(percent=10, minutes=5), CanaryStep(percent=50, minutes=10)]


def test_a_step_takes_its_share_of_the_replicas_and_at_least_one():
    assert [goal(STEPS, At(step, 0), 8) for step in range(3)] == [1, 4, 8]
    assert [goal(STEPS, At(step, 0), 1) for step in range(3)] == [1, 1, 1]
    assert goal(STEPS, At(0, 0), 0) == 0


def test_a_step_ends_when_its_time_is_over_and_the_judge_is_content():
    at = At(0, 0)
    for verdict, now_s, step in [
        (Verdict.AS_GOOD, 299, 0),
        (Verdict.NOT_KNOWN, 9999, 0),
        (Verdict.WORSE, 9999, 0),
        (Verdict.AS_GOOD, 300, 1),
    ]:
        assert advance(STEPS, at, ready=1, desired=8, verdict=verdict, now_s=now_s).step == step
    assert advance(STEPS, at, ready=0, desired=8, verdict=Verdict.AS_GOOD, now_s=300) == At(0, 300)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(list(Verdict)), st.integers(0, 900)), max_size=30)
)
def test_steps_only_go_up_one_at_a_time(looks):
    at, now_s = At(0, 0), 0
    for ready, verdict, more in looks:
        now_s += more
        after = advance(STEPS, at, ready=ready, desired=8, verdict=verdict, now_s=now_s)
        assert after.step - at.step in {0, 1}
        assert after.step == at.step or verdict is Verdict.AS_GOOD
        assert goal(STEPS, after, 8) >= goal(STEPS, at, 8)
        at = after
