"""What is told of a calibration: at once when a verdict changes, else seldom; never from nothing, never flickering."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from diagnose.test_conditions import LATER, NOW, facts
from shardwright.api.reasons import CalibrationReason, ConditionType
from shardwright.api.status import CalibrationStatus
from shardwright.diagnose.calibration import REST_S, is_news, not_read, told
from shardwright.diagnose.conditions import conditions
from shardwright.diagnose.events import events
from shardwright.diagnose.facts import MetricsFacts
from shardwright.diagnose.status import status
from shardwright.planner.calibration import Comparison, Figure, Load, Measured, Unmeasured

REVISION = "aaaaaaaa"
FEW, AWAY = CalibrationReason.TOO_FEW_REQUESTS, CalibrationReason.NOT_READ


def comparison(load=None, **ratios):
    """Ratios by figure; a reason stands for a figure that is not known."""
    figures = []
    for figure in Figure:
        given_ = ratios.get(figure.name.lower(), FEW)
        figures.append(
            Unmeasured(figure=figure, why=given_)
            if isinstance(given_, CalibrationReason)
            else Measured(figure=figure, measured=100.0 * given_, predicted=100.0, samples=60)
        )
    return Comparison(figures=tuple(figures), load=load)


def tell(found, before=None, revision=REVISION, now=NOW):
    return told(found, revision=revision, source="Prometheus", now=now, before=before)


def by_name(status_: CalibrationStatus):
    return {figure.name: figure for figure in status_.figures}


def test_nothing_measured_is_nothing_told():
    assert tell(comparison()) is None
    assert not is_news(None, None, 1e9)


def test_each_figure_is_told_with_its_verdict_and_samples():
    found = by_name(tell(comparison(kv_tokens=1.04, ttft=1.5, tpot=0.7)))
    assert [(f.reason, f.ratio) for f in found.values()] == [
        ("AsPredicted", "1.04"),
        ("TooFewRequests", None),
        ("AbovePrediction", "1.50"),
        ("BelowPrediction", "0.70"),
    ]
    assert found["TTFT"].samples == 60
    assert (found["KVTokens"].measured, found["KVTokens"].predicted) == ("104", "100")


def test_a_quiet_night_changes_nothing():
    load = Load(requests_per_s=1.0, input_tokens=500.0, output_tokens=100.0, engines=1)
    day = tell(comparison(ttft=1.5, load=load))
    night = tell(comparison(), before=day, now=LATER)
    assert by_name(night) == by_name(day)
    assert night.outside == ["TTFT"]
    assert night.requests_per_minute_per_replica == "60.00"
    assert not is_news(day, night, 1e9)


def test_metrics_that_cannot_be_read_show_no_ratio_and_change_no_verdict():
    day = tell(comparison(kv_tokens=1.0, ttft=1.5))
    away = not_read(day, LATER)
    assert is_news(day, away, 0.0)
    assert not is_news(away, not_read(away, LATER), 1e9)
    assert {figure.reason for figure in away.figures} == {"NotRead"}
    assert not any(figure.ratio or figure.measured or figure.samples for figure in away.figures)
    assert away.outside == day.outside == ["TTFT"]
    back = tell(comparison(kv_tokens=1.0), before=away)
    assert by_name(back)["KVTokens"].ratio == "1.00"
    assert by_name(back)["TTFT"].ratio is None
    assert back.outside == ["TTFT"], "nothing was measured that says otherwise"


def test_another_revision_begins_anew():
    day = tell(comparison(ttft=1.5))
    assert tell(comparison(), before=day, revision="bbbbbbbb") is None
    other = tell(comparison(kv_tokens=1.0), before=day, revision="bbbbbbbb")
    assert other.outside is None
    assert is_news(day, other, 0.0)


def test_a_border_does_not_flicker():
    seen, writes, before = [1.20, 1.26, 1.24, 1.26, 1.2, 1.27, 1.17, 1.2, 1.24], [], None
    for ratio in seen:
        after = tell(comparison(ttft=ratio), before=before)
        if is_news(before, after, 0.0):
            writes.append(ratio)
            before = after
    assert writes == [1.20, 1.26, 1.17]


def test_figures_that_move_are_told_after_a_rest_and_only_when_they_move_far():
    before = tell(comparison(kv_tokens=0.9, ttft=1.0))
    for ratio, since_s, news in ((1.19, 1e9, False), (1.21, REST_S - 1, False), (1.21, REST_S, True)):
        assert is_news(before, tell(comparison(kv_tokens=0.9, ttft=ratio), before=before), since_s) is news


@given(
    st.lists(
        st.one_of(st.none(), st.floats(0.1, 10), st.sampled_from([FEW, CalibrationReason.NOT_REPORTED])),
        min_size=1,
        max_size=60,
    )
)
def test_writes_are_few_whatever_comes(ratios):
    """At one look every 15 s: at most one write in 5 minutes, but for verdicts; and never two equal ones."""
    before, last = None, -1e9
    for step, ratio in enumerate(ratios):
        now_s = 15.0 * step
        if ratio is None:
            after = not_read(before, NOW) if before else None
        else:
            after = tell(comparison(kv_tokens=1.0, ttft=ratio), before=before)
        if not is_news(before, after, now_s - last):
            continue
        assert after is not None
        if before is not None:
            same = [f.reason for f in before.figures] == [f.reason for f in after.figures]
            if same and before.outside == after.outside:
                assert now_s - last >= REST_S
            assert after.model_copy(update={"measured_at": before.measured_at}) != before
        before, last = after, now_s


def condition(found, kind):
    return next(c for c in found if c.type == kind)


def with_metrics(**metrics):
    return facts(metrics=MetricsFacts(**metrics))


def test_a_ratio_outside_is_told_once_and_without_figures_that_move():
    off = conditions(with_metrics(calibration=tell(comparison(ttft=1.5, kv_tokens=0.5))))
    planned = condition(off, ConditionType.PLANNED)
    assert (planned.status, planned.reason) == ("True", "PredictionOff")
    assert "KVTokens and TTFT" in planned.message
    worse = conditions(with_metrics(calibration=tell(comparison(ttft=2.5, kv_tokens=0.4))))
    assert condition(worse, ConditionType.PLANNED).message == planned.message
    assert [e.reason for e in events(conditions(facts()), off)] == ["PredictionOff"]
    assert not events(off, worse)


def test_a_ratio_inside_or_of_another_plan_says_nothing():
    for calibration in (tell(comparison(ttft=1.2)), tell(comparison(ttft=9.0), revision="bbbbbbbb")):
        found = conditions(with_metrics(calibration=calibration))
        assert condition(found, ConditionType.PLANNED).reason == "Planned"


def test_metrics_that_cannot_be_read_are_a_condition_and_touch_no_other():
    usual, away = conditions(facts()), conditions(with_metrics(failure="Prometheus cannot be reached"))
    slo = condition(away, ConditionType.SLO_MET)
    assert (slo.status, slo.reason) == ("Unknown", "MetricsUnavailable")
    assert "cannot be reached" in slo.message
    others = [c for c in away if c.type != ConditionType.SLO_MET]
    assert others == [c for c in usual if c.type != ConditionType.SLO_MET]
    silent = conditions(with_metrics(not_scraped=True))
    assert condition(silent, ConditionType.SLO_MET).reason == "EnginesNotScraped"


def test_without_engines_there_are_no_metrics_to_miss():
    none = replace(with_metrics(failure="away"), workloads=())
    assert condition(conditions(none), ConditionType.SLO_MET).reason == "NotMeasured"


def test_the_status_shows_it_as_the_resource_has_it():
    shown = status(with_metrics(calibration=tell(comparison(ttft=1.5))))["calibration"]
    assert shown["figures"][2] == {
        "name": "TTFT",
        "reason": "AbovePrediction",
        "ratio": "1.50",
        "measured": "150.00",
        "predicted": "100.00",
        "samples": 60,
    }
    assert "calibration" not in status(facts())
