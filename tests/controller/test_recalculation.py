"""Plans whose engines are not as predicted: what is proposed, what Auto puts in force, and what nothing moves."""

import asyncio

import pytest

from controller.test_approvals import proposal, records, running
from controller.test_calibrator import EVERY_S, KEY, Kept, Scripted, memory_of, rfc3339
from harness import nodes
from planner.plan_support import LLAMA_8B
from shardwright.controller.calibration import Calibrator
from shardwright.controller.calibration_store import REST_S
from shardwright.controller.parts import clock
from shardwright.controller.recalculation import SETTLED_S
from shardwright.metrics.exposition import Exposition
from shardwright.planner.growth import COUNTERS
from shardwright.planner.signals import Readings, Signal, reading
from shardwright.render.approval import CALIBRATED, PROPOSED
from topology.cluster_objects import pod

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
H100 = "NVIDIA-H100-80GB-HBM3"
HOUR_S = 3600.0
SPEC = {
    "workload": {"requestsPerMinute": 60},
    "slo": {"tpot": {"percentile": 95, "milliseconds": 11}},
    "scaling": {"minReplicas": 1, "maxReplicas": 8},
}
"""One H100 as predicted; TP2 when the time between tokens is half as long again."""


class Engines(Scripted):
    """Engines whose times are what was predicted of them, times what the test says."""

    def __init__(self, fake):
        super().__init__()
        self.fake, self.times, self.task = fake, 1.0, None
        self._sums, self._at = [0.0, 0.0], 0.0

    def follow(self):
        """Beside whatever operator runs."""
        self.task = asyncio.create_task(self._tick())

    async def _tick(self):
        while True:
            await asyncio.sleep(EVERY_S)
            await self.fake.parts.calibrator.tick()

    def _predicted(self):
        """Means in seconds that are 1.0 times the prediction, by what was told of the revision so far."""
        told = (self.fake.statuses["chat"].get("calibration") or {}).get("figures", ())
        found = {f["name"]: float(f["predicted"]) / 1000 for f in told if f.get("predicted")}
        return found.get("TTFT", 0.03), found.get("TPOT", 0.0075)

    async def read(self, targets):
        if self.silent:
            return Readings()
        now, (ttft_s, tpot_s) = clock(), self._predicted()
        grown = (now - self._at) * self.requests_per_s
        self._sums = [self._sums[0] + grown * ttft_s, self._sums[1] + grown * tpot_s * self.times]
        self._at, requests = now, now * self.requests_per_s
        sums = (self._sums[0], requests, self._sums[1], requests)
        values = (*sums, requests * 900, requests * 200, 0.0, requests, requests)
        each = dict(zip(COUNTERS, values, strict=True)) | {Signal.SAMPLED: 1e9 + now, Signal.STARTED: 1.0}
        pods = [target.pod for target in targets]
        return Readings(by_signal={signal: {p: reading(v) for p in pods} for signal, v in each.items()})


async def wire(fake, engines, kept):
    """Give the operator that runs a calibrator with a store."""
    parts = fake.parts
    parts.calibrator = Calibrator(
        store=parts.store, planning=parts.planning, queue=parts.queue, source=engines, metrics=Exposition(),
        clock=clock, timestamp=rfc3339, interval_s=EVERY_S, memory=memory_of(kept),
    )  # fmt: skip
    parts.reconciler.reporter.engine_metrics = parts.calibrator.facts_of
    await parts.calibrator.memory.load()
    parts.remember()


@pytest.fixture
async def engines(fake):
    found = Engines(fake)
    found.kept = Kept()
    await wire(fake, found, found.kept)
    yield found
    if found.task is not None:
        found.task.cancel()


async def serving(fake, engines, **spec):
    node = nodes.gpu_node("n1", H100, gpus=8)
    node["metadata"]["resourceVersion"] = "1"
    node["spec"].pop("taints", None)
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    fake.nodes["n1"] = node
    fake.parts.store.set_node(node)
    fake.put("chat", **SPEC, **spec)
    await pods_follow(fake)
    engines.follow()
    await asyncio.sleep(2 * REST_S)  # what is predicted at this load is told
    assert fake.statuses["chat"]["plan"]["summary"] == "H100 TP1 ×1"
    return running(fake)[0]


async def pods_follow(fake, rounds=3):
    for _ in range(rounds):
        await asyncio.sleep(5)
        fake.end_pods()
        fake.run_pods("n1")
    await asyncio.sleep(5)


async def restart(fake, engines):
    await fake.restart()
    await wire(fake, engines, engines.kept)


async def hours(fake, number):
    for _ in range(int(number * 12)):
        await asyncio.sleep(REST_S)
        fake.end_pods()
        fake.run_pods("n1")


def children(fake):
    return [entry for entry in fake.log if entry.startswith(("apply Deployment", "delete"))]


def tensor(fake):
    return {obj["data"]["report"]["revision"]: obj["data"]["report"]["tensor"] for (kind, _, _), obj in fake.objects.items() if kind == "ControllerRevision"}  # fmt: skip


@pytest.mark.parametrize("policy", ["OnSpecChange", "Manual", "Auto"])
async def test_what_is_off_leads_to_a_proposal_that_moves_nothing(fake, engines, policy):
    old = await serving(fake, engines)
    fake.put("chat", **SPEC, planPolicy=policy)
    await asyncio.sleep(5)
    before = children(fake)
    engines.times = 1.5
    await asyncio.sleep(0.6 * HOUR_S)
    assert running(fake) == [old]
    assert children(fake) == before
    found = proposal(fake)
    new = found["revision"]
    assert (found["cause"], found["summary"]) == ("Calibration", "H100 TP2 ×1")
    assert found["changes"][0] == "TP1→TP2"
    assert found["changes"][-1] == "pods restart"
    assert not any("predicted" in change for change in found["changes"]), "the figures of one count with more"
    assert records(fake) == {old: 1, new: PROPOSED}
    recorded = fake.objects["ControllerRevision", "team", f"chat-{new}"]["data"]
    assert recorded["digest"].endswith(CALIBRATED)
    assert fake.condition("chat", "Planned") == ("True", "PredictionOff")
    told = fake.message("chat", "Planned")
    assert f"revision {old} stays in force" in told
    if policy == "Auto":
        assert "measured for an hour without a pause" in told
    else:
        assert f"shardwright approve chat -n team --revision {new}" in told
    assert fake.condition("chat", "Ready") == ("True", "Serving")
    assert fake.condition("chat", "Stalled")[0] == "False"
    engines.times = 1.0
    await asyncio.sleep(0.4 * HOUR_S)
    assert fake.condition("chat", "Planned") == ("True", "Planned")
    assert proposal(fake) is None
    assert records(fake) == {old: 1}
    assert [c for c in children(fake) if "ControllerRevision" not in c] == before


@pytest.mark.parametrize("policy", ["OnSpecChange", "Manual"])
async def test_without_auto_nothing_moves_however_long_it_takes_and_nothing_is_written(fake, engines, policy):
    old = await serving(fake, engines)
    fake.put("chat", **SPEC, planPolicy=policy)
    engines.times = 1.5
    await asyncio.sleep(HOUR_S)
    before, asked, decide = fake.writes(), [], fake.parts.planning.decide
    fake.parts.planning.decide = lambda *args: asked.append(args) or decide(*args)
    await asyncio.sleep(24 * HOUR_S)
    assert fake.writes() == before
    assert running(fake) == [old]
    assert asked == [], "the same measurement is not planned for again"


@pytest.mark.parametrize("policy", ["OnSpecChange", "Manual", "Auto"])
async def test_what_is_approved_runs_as_it_was_recorded_and_stays(fake, engines, policy):
    old = await serving(fake, engines)
    fake.put("chat", **SPEC, planPolicy=policy)
    engines.times = 1.5
    await asyncio.sleep(0.6 * HOUR_S)
    new = proposal(fake)["revision"]
    data = fake.objects["ControllerRevision", "team", f"chat-{new}"]["data"]
    engines.times = 1.0  # the new plan counts with what was measured
    fake.put("chat", **SPEC, planPolicy=policy, approvedRevision=new)
    await pods_follow(fake)
    assert running(fake) == [new]
    assert fake.objects["ControllerRevision", "team", f"chat-{new}"]["data"] == data
    assert records(fake) == {old: 1, new: 2}
    assert fake.condition("chat", "Planned")[1] != "RevisionPinned"
    assert proposal(fake) is None
    fake.put("chat", **SPEC, planPolicy=policy)  # cleared
    await hours(fake, 3)
    assert running(fake) == [new]
    assert fake.condition("chat", "Ready") == ("True", "Serving")
    await restart(fake, engines)
    await hours(fake, 3)
    assert running(fake) == [new]
    assert records(fake) == {old: 1, new: 2}


class TestAuto:
    async def test_it_acts_after_an_hour_once(self, fake, engines):
        old = await serving(fake, engines, planPolicy="Auto")
        engines.times, since = 1.5, clock()
        while running(fake) == [old]:
            await asyncio.sleep(60)
            assert clock() - since < 3 * HOUR_S
        assert SETTLED_S <= clock() - since < 2 * HOUR_S
        engines.times = 1.0
        await pods_follow(fake)
        [new] = running(fake)
        assert records(fake) == {old: 1, new: 2}
        assert tensor(fake) == {old: 1, new: 2}
        assert fake.condition("chat", "Ready") == ("True", "Serving")
        assert proposal(fake) is None
        before = [c for c in fake.writes() if "status" not in c]
        await hours(fake, 12)
        assert [c for c in fake.writes() if "status" not in c] == before

    async def test_a_pause_starts_the_hour_again(self, fake, engines):
        old = await serving(fake, engines, planPolicy="Auto")
        for _ in range(6):
            engines.times = 1.5
            await hours(fake, 1)
            engines.times = 1.0
            await hours(fake, 0.5)
        assert running(fake) == [old]

    async def test_it_goes_back_to_nothing_that_was_in_force(self, fake, engines):
        """TP1 is slower than predicted and TP2 faster, so that each makes the other one look better."""
        old = await serving(fake, engines, planPolicy="Auto")
        engines.times = 1.5
        while running(fake) == [old]:
            await hours(fake, 0.25)
        await pods_follow(fake)
        [new] = running(fake)
        engines.times = 0.4
        await hours(fake, 24)
        assert running(fake) == [new]
        assert proposal(fake)["revision"] == old
        assert "planPolicy Auto goes back to nothing that was in force" in fake.message("chat", "Planned")

    async def test_restarts_move_nothing(self, fake, engines):
        """An upgrade is one: what it reads of the store and of the status is no measurement of its own."""
        old = await serving(fake, engines, planPolicy="Auto")
        engines.times = 1.5
        await hours(fake, 0.8)
        [(new, _)] = [(r, n) for r, n in records(fake).items() if n == PROPOSED]
        for _ in range(8):
            await restart(fake, engines)
            await asyncio.sleep(5)
            assert records(fake) == {old: 1, new: PROPOSED}
            await hours(fake, 0.75)
        engines.silent = True
        await restart(fake, engines)
        before = fake.writes()
        await hours(fake, 24)
        assert running(fake) == [old]
        assert [c for c in fake.writes() if "status" not in c] == [c for c in before if "status" not in c]

    async def test_what_is_approved_by_name_stays(self, fake, engines):
        old = await serving(fake, engines, planPolicy="Auto")
        fake.put("chat", **SPEC, planPolicy="Auto", approvedRevision=old)
        engines.times = 1.5
        await hours(fake, 12)
        assert running(fake) == [old]
        assert "shardwright approve chat -n team --revision" in fake.message("chat", "Planned")

    async def test_it_ends_no_pod_before_another_serves(self, fake, engines):
        """A claim that one node mounts at a time is not given up because of a measurement."""
        fake.foreign("PersistentVolumeClaim", "models", spec={"accessModes": ["ReadWriteOnce"]})
        model = {"id": LLAMA_8B, "maxContextTokens": 8192, "cache": {"type": "PVC", "claimName": "models"}}
        old = await serving(fake, engines, planPolicy="Auto", model=model)
        engines.times = 1.5
        await hours(fake, 6)
        assert running(fake) == [old]
        assert "shardwright approve chat -n team --revision" in fake.message("chat", "Planned")

    async def test_without_room_it_waits(self, fake, engines):
        old = await serving(fake, engines, planPolicy="Auto")
        other = pod("train", "n1", 7)
        key = other["metadata"]["namespace"], "train"
        fake.parts.store.set_pod(other)
        engines.times = 1.5
        for _ in range(36):
            await asyncio.sleep(REST_S)
        assert running(fake) == [old]
        assert fake.condition("chat", "Ready") == ("True", "Serving")
        fake.parts.store.remove_pod(key)
        await asyncio.sleep(2 * REST_S)
        assert running(fake) != [old]


async def test_more_replicas_of_the_same_are_told(fake, engines):
    spec = {
        **SPEC,
        "slo": {"tpot": {"percentile": 95, "milliseconds": 20}},
        "workload": {"requestsPerMinute": 300},
    }
    await serving(fake, engines)
    fake.put("chat", **spec, planPolicy="Auto")
    await pods_follow(fake)
    engines.requests_per_s, engines.times = 5.0, 1.5
    await hours(fake, 3)
    assert fake.condition("chat", "Planned") == ("True", "PredictionOff")
    assert "the load takes 2 replicas of it: write spec.scaling.minReplicas: 2" in fake.message(
        "chat", "Planned"
    )
    assert proposal(fake) is None


async def test_that_nothing_would_keep_the_target_is_told(fake, engines):
    old = await serving(fake, engines, parallelism={"tensor": 1}, planPolicy="Auto")
    engines.times = 1.8
    await hours(fake, 3)
    told = fake.message("chat", "Planned")
    assert (
        "nothing keeps what is stated (SLOOutOfReach" in told
        or "nothing keeps what is stated (LoadTooHigh" in told
    )
    assert running(fake) == [old]
    assert fake.condition("chat", "Ready") == ("True", "Serving")


async def test_a_change_that_leads_to_the_same_pods_is_not_taken_for_the_proposal(fake, engines):
    """Its record has the digest of an earlier spec: that it runs is known from the status only."""
    old = await serving(fake, engines)
    fake.put("chat", **SPEC, pool={"maxGPUs": 7})
    await asyncio.sleep(5)
    engines.times = 1.5
    await asyncio.sleep(0.6 * HOUR_S)
    new = proposal(fake)["revision"]
    for _ in range(3):
        await restart(fake, engines)
        await pods_follow(fake)
        fake.parts.dispatch.undecided.add(KEY)
        fake.parts.queue.add(KEY)
        await pods_follow(fake)
        assert running(fake) == [old]
        assert records(fake) == {old: 1, new: PROPOSED}


async def test_what_is_known_when_it_is_off_is_counted_with_at_once_and_a_restart_tells_the_same(
    fake, engines
):
    """The store may know a model from another service long before this one is measured."""
    await serving(fake, engines)
    engines.times = 1.5
    await asyncio.sleep(0.6 * HOUR_S)
    engines.times = 1.0
    await asyncio.sleep(HOUR_S)
    assert fake.condition("chat", "Planned") == ("True", "Planned")
    engines.times = 1.5
    for _ in range(40):
        await asyncio.sleep(EVERY_S)
        if fake.condition("chat", "Planned")[1] == "PredictionOff":
            break
    await asyncio.sleep(5)
    assert "a plan that counts with it" in fake.message("chat", "Planned") or proposal(fake) is not None
    await asyncio.sleep(2 * REST_S)
    before = fake.writes()
    await restart(fake, engines)
    await asyncio.sleep(EVERY_S / 2)
    assert fake.writes() == before


async def test_without_a_store_the_next_change_is_what_plans_anew(fake, engines):
    await serving(fake, engines)
    fake.parts.calibrator.memory = None
    recalculation = fake.parts.reconciler.admission.recalculation
    fake.parts.planning.corrections = {}
    assert recalculation.off(fake.parts.store.services[KEY], running(fake)[0]) is False
    engines.times = 1.5
    await asyncio.sleep(2 * HOUR_S)
    assert fake.condition("chat", "Planned") == ("True", "PredictionOff")
    assert "this plan stays, and a change of the spec plans anew" in fake.message("chat", "Planned")
    assert proposal(fake) is None
