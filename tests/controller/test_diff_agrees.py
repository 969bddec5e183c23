"""What `shardwright diff` says beforehand is what the operator does: random changes, put to both."""

import asyncio
import random
from argparse import Namespace

import pytest
import yaml

from shardwright.cli.diff_input import Document, LiveService, applied_over, before_of_live
from shardwright.cli.diff_service import compare
from shardwright.cli.pool_options import Nodes
from shardwright.cli.revisions import Live, Revision
from shardwright.render.approval import newest_first

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
KEY = ("team", "chat")
BASE = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192}, "pool": {"maxGPUs": 16},
    "scaling": {"minReplicas": 1, "maxReplicas": 6},
}  # fmt: skip
EDITS = [
    {},
    {"scaling": {"minReplicas": 3, "maxReplicas": 6}},
    {"scaling": {"mode": "External"}, "replicas": 2},
    {"scaling": {"mode": "External"}, "replicas": 0},
    {"scaling": {"minReplicas": 1}},
    {"workload": {"requestsPerMinute": 400}},
    {"workload": {"requestsPerMinute": 900}},
    {"workload": {"concurrency": 6}},
    {"pool": {"maxGPUs": 2}},
    {"pool": {"maxGPUs": 32}},
    {"parallelism": {"tensor": 2}, "pool": {"maxGPUs": 16, "interconnect": {"policy": "Any"}}},
    {"engine": {"env": [{"name": "A", "value": "b"}]}},
    {"engine": {"maxNumSeqs": 33}},
    {"engine": {"args": ["--no-such-flag"]}},
    {"drain": {"maxSeconds": 30}},
    {"routing": {"type": "Service"}},
    {"slo": {"ttft": {"percentile": 95, "milliseconds": 3000}}},
    {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 200_000}},
    {"model": {"id": "Qwen/Qwen3-32B", "maxContextTokens": 8192}},
]


async def settle(fake):
    for _ in range(8):
        await asyncio.sleep(5)
        fake.end_pods()
        fake.run_pods("n1")
    await asyncio.sleep(5)


def live(fake):
    """The service as the command line would read it."""
    found = [
        Revision(
            revision=name.rpartition("-")[2],
            number=obj["revision"],
            summary=obj["data"]["report"]["summary"],
            template_digest=obj["data"]["digest"],
            data=obj["data"],
        )
        for (kind, _, name), obj in fake.objects.items()
        if kind == "ControllerRevision"
    ]
    raw = {"apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService"} | fake.raw["chat"]
    return Live(service=raw, revisions=tuple(newest_first(found)))


def workloads(fake):
    """Replicas and template of each workload."""
    return {
        name.rpartition("-")[2]: (obj["spec"]["replicas"], obj["spec"]["template"])
        for (kind, _, name), obj in fake.objects.items()
        if kind == "Deployment"
    }


def replicas(runs):
    return {revision: count for revision, (count, _) in runs.items() if count}


def happened(before, after):
    """What became of the pods."""
    was, now = replicas(before), replicas(after)
    if not was or not now:
        return "Start" if now and not was else "Stop" if was and not now else "Stay"
    if set(was) != set(now):
        return "Restart"
    assert all(before[name][1] == after[name][1] for name in was)
    return "Stay" if was == now else "Scale"


def manifest(spec):
    return {
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService",
        "metadata": {"name": "chat", "namespace": "team"}, "spec": spec,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(16))
async def test_the_operator_does_what_was_said(fake, tmp_path, seed):
    choose = random.Random(seed)
    for index in range(8):
        fake.node(f"n{index}", gpus=8)
    (tmp_path / "nodes.yaml").write_text(
        yaml.safe_dump({"kind": "List", "items": [{"kind": "Node", **n} for n in fake.nodes.values()]})
    )
    nodes = Nodes(
        Namespace(gpu=None, nodes=str(tmp_path / "nodes.yaml"), cluster=False, calibration=None, prices=None)
    )
    fake.put("chat", **BASE)
    await settle(fake)
    seen = set()
    for _ in range(9):
        spec = BASE | choose.choice(EDITS)
        if choose.random() < 0.4:
            spec |= {"planPolicy": choose.choice(["Manual", "Auto", "OnSpecChange"])}
        if choose.random() < 0.4:
            spec |= {
                "approvedRevision": choose.choice([*(r.revision for r in live(fake).revisions), "00000000"])
            }
        found = live(fake)
        document = applied_over(Document(raw=manifest(spec), config_maps=()), LiveService(found=found))
        said = compare(KEY, before_of_live(found), document, nodes, live=True)
        before = workloads(fake)
        fake.put("chat", **{"scaling": None, **spec})
        await settle(fake)
        after, status = workloads(fake), fake.statuses["chat"]
        told = {c["type"]: c for c in status["conditions"]}
        context = f"{spec}\n{said.summary}\n{replicas(before)}\n{replicas(after)}"
        assert said.pods == happened(before, after), context
        assert (said.before.revision if said.before else None) in {None, *before}, context
        if said.after is not None and said.after.replicas:
            assert replicas(after) == {said.after.revision: said.after.replicas}, context
        else:
            assert replicas(after) == {}, context
        proposal = status.get("proposal")
        assert (said.waits.revision if said.waits else None) == (
            proposal["revision"] if proposal else None
        ), context
        if said.waits:
            assert said.waits.replicas == proposal["replicas"], context
            assert said.waits_phrases[-1] == proposal["changes"][-1], context
        refused = next(
            (told[kind]["reason"] for kind in ("Accepted", "Planned") if told[kind]["status"] == "False"),
            None,
        )
        assert (said.refused.reason if said.refused else None) == refused, context
        seen.add(said.pods)
    assert len(seen) > 1
