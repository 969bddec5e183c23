"""Where the tests' Prometheus comes from, and what is said when there is none."""

import pytest

from harness import prometheus
from harness.binaries import BuildError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(path, text="exit 0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_one_on_path_comes_first(cache):
    found = program(cache / "bin" / "prometheus")
    assert prometheus.ensure() == found


def test_what_is_in_the_cache_is_not_fetched(cache):
    kept = program(prometheus._target())
    assert prometheus.ensure() == kept


def test_without_apt_the_way_out_is_named(cache):
    with pytest.raises(BuildError, match="install Prometheus so that `prometheus` is on PATH"):
        prometheus.ensure()


def test_a_package_that_apt_does_not_find_is_told_and_leaves_nothing(cache):
    program(cache / "bin" / "apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    program(cache / "bin" / "dpkg-deb")
    with pytest.raises(BuildError, match=r"Unable to locate package.*on PATH"):
        prometheus.ensure()
    assert not list((cache / "cache" / "bin").iterdir())
