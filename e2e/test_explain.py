"""`shardwright explain` of live objects: what the operator froze, how the service is now, and what is not on record."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller_world import World
from harness.api import Json

pytestmark = pytest.mark.cluster

LOAD = {"requestsPerMinute": 120}
SLO = {"tpot": {"percentile": 95, "milliseconds": 60}}


def explain(world: World, *arguments: str, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "shardwright.cli.main", "explain", *arguments],
        env={**os.environ, "KUBECONFIG": str(world.cluster.kubeconfig)},
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def document(world: World, *arguments: str, given: str = "") -> Json:
    code, out, err = explain(world, *arguments, "-o", "json", given=given)
    assert code in {0, 1}, err
    found: Json = json.loads(out)
    return found


def test_a_live_plan_is_told_as_it_was_frozen(world: World, tmp_path: Path) -> None:
    world.add_node("a")
    service = world.service("chat", slo=SLO)
    service["spec"]["workload"] = LOAD
    world.apply(service)
    world.ready("chat")
    plan = world.get("chat")["status"]["plan"]
    page = tmp_path / "chat.html"
    found = document(world, "chat", "-n", world.namespace, "--html", str(page))
    assert found["source"]["revision"] == plan["revision"]
    assert found["choice"]["summary"] == plan["summary"]
    assert round(found["prediction"]["ttft"]["judgedMs"]) == plan["ttftMilliseconds"]
    assert [c["message"] for c in found["candidates"]] == [c["message"] for c in plan["candidates"]]
    assert found["curves"]["planned"] > 0
    assert found["cost"] == []
    assert any("--cluster" in sentence for sentence in found["source"]["notRecorded"])
    assert json.dumps(found["inputsDigest"]) in page.read_text()

    manifest = world.cluster.kubectl("get", "lsvc", "chat", "-n", world.namespace, "-o", "yaml")
    anew = document(world, "-f", "-", "--cluster", given=manifest)
    assert anew["choice"]["summary"] == plan["summary"]
    assert len(anew["cost"]) == 2
    assert anew["room"]["placed"] == 1


def test_a_live_refusal_and_a_service_that_is_not_there_are_told(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("huge", model={"id": "Qwen/Qwen3-235B-A22B"}))
    world.until("huge", "Planned", "False")
    code, out, err = explain(world, "huge", "-n", world.namespace)
    assert code == 1, err
    assert out.startswith(f"{world.namespace}/huge: no plan, ")
    code, _, err = explain(world, "nobody", "-n", world.namespace)
    assert code == 2
    assert f"{world.namespace}/nobody: " in err
