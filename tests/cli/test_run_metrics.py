"""Options about the engines' metrics: what they give, and which combinations are refused by name."""

import argparse

import pytest

from shardwright.cli import run, run_metrics
from shardwright.metrics.login import EngineMetrics


def read(*arguments):
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    return run_metrics.read(parser.parse_args(["run", *arguments]))


def test_without_any_option_the_engines_are_asked():
    assert read() == EngineMetrics()
    assert read().prometheus is None
    assert read().store is None
    assert read("--engine-metrics", "off") is None


def test_a_url_is_enough():
    found = read("--prometheus-url", "http://prometheus:9090", "--calibration-store", "ops/kept")
    assert found.prometheus.url == "http://prometheus:9090"
    assert found.store == ("ops", "kept")


URL = ("--prometheus-url", "http://prometheus:9090")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prometheus-tenant", "a"), "--prometheus-tenant needs --prometheus-url"),
        (("--prometheus-stale", "20"), "--prometheus-stale needs --prometheus-url"),
        (("--engine-metrics", "off", *URL), "--engine-metrics off reads nothing"),
        (("--engine-metrics", "off", "--calibration-store", "a/b"), "--engine-metrics off reads nothing"),
        (("--engine-metrics-interval", "0"), "--engine-metrics-interval: write 1 or more"),
        (("--engine-metrics-interval", "nan"), "--engine-metrics-interval: write 1 or more"),
        ((*URL, "--prometheus-stale", "0"), "--prometheus-stale"),
        ((*URL, "--prometheus-username", "me"), "go together"),
        (("--prometheus-url", "http://me:hunter2@prometheus"), "--prometheus-password-file"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, said, capsys):
    with pytest.raises(ValueError, match=said):
        read(*arguments)
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    assert run.run(parser.parse_args(["run", *arguments])) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "hunter2" not in told


@pytest.mark.parametrize("value", ["kept", "a/b/c", "/kept", "ops/"])
def test_a_store_is_a_namespace_and_a_name(value, capsys):
    with pytest.raises(SystemExit):
        read("--calibration-store", value)
    assert "write NAMESPACE/NAME" in capsys.readouterr().err
