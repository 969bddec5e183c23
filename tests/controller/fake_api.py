"""A fake API server with the operator's loop on top: what is written is kept, and what is told can be read."""

import asyncio
import copy
import itertools
import json
from datetime import UTC, datetime

from controller.server_side import Objects
from harness import nodes
from shardwright.api.names import LABEL_MANAGED_BY, MANAGED_BY
from shardwright.cluster import shapes
from shardwright.cluster.api import Applied
from shardwright.cluster.errors import Conflict, Gone, Transient
from shardwright.cluster.kinds import BY_KIND
from shardwright.controller.parts import Parts
from wording import small_after_a_stop

WATCH_S = 0.05
"""How much later than an answer the watch tells the same."""


class Fake:
    """A fake API server: keeps what is applied, knows no scheduler, and fails when told to."""

    def __init__(self) -> None:
        self.server = Objects(loop_now, self._tell)
        self.objects = self.server.live
        self.log: list[str] = []
        self.statuses: dict[str, dict] = {}
        self.versions = self.server.versions
        self.fail: dict[str, Exception] = {}
        """Errors by the beginning of what they answer, however often it is asked."""
        self.faults: dict[int | str, str] = {}
        """Faults by the write that they strike once: its number, from 0 on, or what it is.

        lost: stored, and no answer; late: the same, when the watch has told of it; unsent: neither; resent: sent
        twice and answered once; flying: neither stored nor answered, and the future `flying` gives the write.
        """
        self.flying: asyncio.Future = asyncio.get_running_loop().create_future()
        self.sent = 0
        self.told = itertools.count()
        self.parts: Parts
        self.raw: dict[str, dict] = {}
        self.nodes: dict[str, dict] = {}
        self.pods: dict[tuple[str, str], dict] = {}
        self.applied: list[tuple[str, dict]] = []
        self.told_pods: list[dict] = []
        """Those of Jobs."""
        self.job_s: float | None = 1.0
        """How long a Job takes to do its work; None: it runs until the test ends it."""

    def _check(self, what: str) -> None:
        self.log.append(what)
        for prefix, error in self.fail.items():
            if what.startswith(prefix):
                raise error

    async def _write(self, what: str, act):
        """Do one write, with the fault that is meant for it."""
        fault = self.faults.pop(what, "") or self.faults.pop(self.sent, "")
        self.sent += 1
        self._check(what)
        if fault == "flying":
            self.flying.set_result(act)
            await asyncio.Event().wait()
        if fault == "unsent":
            raise Transient(f"{what}: no answer")
        answer = act()
        if fault == "resent":
            answer = act()
        if fault == "late":
            await asyncio.sleep(1)
        if fault in {"lost", "late"}:
            raise Transient(f"{what}: no answer")
        return answer

    def _tell(self, sort: str, key: tuple[str, str, str], obj: dict) -> None:
        """Let the watch tell of a child, a little later and in as few words as it does."""
        kind, namespace, name = key
        if kind not in BY_KIND or not hasattr(self, "parts"):
            return
        ours, version = _labelled(obj), obj["metadata"]["resourceVersion"]
        said = json.dumps({"type": sort, "object": obj})
        if kind == "Job" and sort == "ADDED" and self.job_s is not None:
            asyncio.get_running_loop().call_later(self.job_s, self.end_job, name)
        store = self.parts.store

        def later() -> None:
            if sort == "DELETED" or not ours:
                store.remove_child(kind, (namespace, name), version)
                return
            seen = shapes.event(BY_KIND[kind], said.encode())["object"]
            store.set_child(seen | {"kind": kind})

        asyncio.get_running_loop().call_later(WATCH_S + 1e-6 * next(self.told), later)

    async def apply(self, obj, *, force=True) -> Applied:
        kind, name = obj["kind"], obj["metadata"]["name"]

        def act() -> Applied:
            self.applied.append((f"{kind}/{name}", obj))
            metadata, created = self.server.apply(obj, force=force)
            return Applied(copy.deepcopy(metadata), created)

        return await self._write(f"apply {kind}/{name}", act)

    async def merge_as(self, kind, namespace, name, patch, *, manager) -> None:
        if kind.kind == "Node":
            await self._write(f"merge Node/{name}", lambda: self._label_node(name, patch))
            return
        key = (kind.kind, namespace, name)
        await self._write(f"merge {kind.kind}/{name}", lambda: self.server.merge(key, patch, manager))

    async def apply_status(self, _namespace, name, status, uid):
        for condition in status["conditions"]:
            assert small_after_a_stop(condition["message"]) == [], condition["message"]

        def act():
            raw = self.raw.get(name)
            if raw is None:
                raise Gone(f"PATCH llmservices/{name}: 404 NotFound", status=404)
            if raw["metadata"]["uid"] != uid:
                raise Conflict("uid mismatch", status=409)
            self.statuses[name] = status
            raw["metadata"]["resourceVersion"] = str(next(self.versions))
            raw["status"] = status
            return copy.deepcopy(raw["metadata"])

        return await self._write(f"status {name}", act)

    async def metadata(self, kind, namespace, name):
        self.log.append(f"look {kind.kind}/{name}")
        error = self.fail.get(f"look {kind.kind}")
        if error:
            raise error
        found = self.objects.get((kind.kind, namespace, name))
        return copy.deepcopy(found["metadata"]) if found else None

    async def get(self, kind, namespace, name):
        if error := self.fail.get(f"get {kind.kind}"):
            raise error
        found = self.objects.get((kind.kind, namespace, name))
        if found is None:
            raise Gone(f"GET {kind.plural}/{name}: 404 NotFound", status=404)
        return copy.deepcopy(found)

    async def list_pages(self, kind, namespace, *, fields):
        assert (kind.kind, namespace) == ("LLMService", "team")
        found = [raw for name, raw in self.raw.items() if fields == f"metadata.name={name}"]
        yield copy.deepcopy(found), "1"

    async def names(self, kind, namespace):
        return {name for k, ns, name in self.objects if (k, ns) == (kind.kind, namespace)}

    async def delete(self, kind, namespace, name, *, uid):
        def act() -> None:
            live = self.objects.get((kind.kind, namespace, name))
            if live is not None and live["metadata"]["uid"] != uid:
                raise Conflict("uid mismatch", status=409)
            self.server.delete((kind.kind, namespace, name))

        await self._write(f"delete {kind.kind}/{name}", act)

    async def end_pod(self, namespace, name, *, grace_s):
        def act() -> None:
            pod = self.pods.get((namespace, name))
            if pod is not None and "deletionTimestamp" not in pod["metadata"]:
                pod["metadata"] |= {"deletionTimestamp": loop_now(), "deletionGracePeriodSeconds": grace_s}
                self.parts.store.set_pod(copy.deepcopy(pod))

        await self._write(f"end {name}", act)

    def _label_node(self, name: str, patch: dict) -> None:
        labels = self.nodes[name]["metadata"]["labels"]
        labels |= patch["metadata"]["labels"]
        self.nodes[name]["metadata"]["labels"] = {k: v for k, v in labels.items() if v is not None}
        self.nodes[name]["metadata"]["resourceVersion"] = str(next(self.versions))
        node = copy.deepcopy(self.nodes[name])
        asyncio.get_running_loop().call_later(WATCH_S, self.parts.store.set_node, node)

    async def create_event(self, _namespace, event):
        self.log.append(f"event {event['reason']}")

    # What the world does.

    def put(self, name: str, *, at: int = 0, **spec) -> None:
        old = self.raw.get(name)
        body = {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192},
            "pool": {"maxGPUs": 8},
            "scaling": {"minReplicas": 1, "maxReplicas": 1},
        } | spec
        raw = {
            "metadata": {
                "name": name, "namespace": "team",
                "uid": old["metadata"]["uid"] if old else f"uid-{name}-{next(self.versions)}",
                "resourceVersion": str(next(self.versions)),
                "generation": old["metadata"]["generation"] + 1 if old else 1,
                "creationTimestamp": f"2026-01-01T00:00:{at:02d}Z",
            },
            "spec": body,
            "status": (old or {}).get("status", {}),
        }  # fmt: skip
        self.raw[name] = raw
        self.tell(name)

    def tell(self, name: str) -> None:
        """Send a service by the watch, as it is now."""
        raw = self.raw[name]
        raw["metadata"]["resourceVersion"] = str(next(self.versions))
        self.parts.store.set_service(copy.deepcopy(raw))

    def terminate(self, name: str) -> None:
        """Delete a service that somebody's finalizer holds."""
        metadata = self.raw[name]["metadata"]
        if "deletionTimestamp" not in metadata:
            metadata["generation"] += 1
            metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        self.tell(name)

    def remove(self, name: str) -> None:
        """End a service, and what it owns, as garbage collection does."""
        del self.raw[name]
        self.statuses.pop(name, None)
        self.parts.store.remove_service(("team", name))
        for key, pod in list(self.parts.store.pods.items()):
            if pod.owner == name:
                self.parts.store.remove_pod(key)
        self.collect()

    def collect(self) -> None:
        """Delete what no service owns any more."""
        live = {raw["metadata"]["uid"] for raw in self.raw.values()}
        for key, obj in list(self.objects.items()):
            owners = obj["metadata"].get("ownerReferences") or ()
            if owners and not any(owner["uid"] in live for owner in owners):
                self.lose(key)

    def lose(self, key: tuple[str, str, str]) -> None:
        """Delete a child. The watch tells its last state and then its end, however long answers take."""
        self.server.delete(key)

    def node(self, name: str, gpus: int = 4, ready: str = "True", product: str = "NVIDIA-RTX-A6000") -> None:
        node = nodes.gpu_node(name, product, gpus=gpus)
        node["metadata"]["resourceVersion"] = str(next(self.versions))
        node["spec"].pop("taints", None)
        node["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        self.nodes[name] = node
        self.parts.store.set_node(copy.deepcopy(node))

    def foreign(self, kind: str, name: str, **content) -> None:
        """Make an object that somebody else made."""
        metadata = {"name": name, "namespace": "team"} | content.pop("metadata", {})
        self.server.apply({"kind": kind, "metadata": metadata} | content, force=True, manager="somebody")

    def edit(self, kind: str, name: str, patch: dict, manager: str = "kubectl-edit") -> None:
        """Change an object by hand."""
        self.server.merge((kind, "team", name), patch, manager)

    def child(self, kind: str, prefix: str = "chat") -> tuple[str, dict]:
        """The first child of a kind whose name begins so."""
        return min((n, o) for (k, _, n), o in self.objects.items() if k == kind and n.startswith(prefix))

    def start(self, parts: Parts) -> None:
        """Let another operator see the world as it is."""
        self.parts = parts
        for node in self.nodes.values():
            parts.store.set_node(copy.deepcopy(node))
        for raw in self.raw.values():
            parts.store.set_service(copy.deepcopy(raw))
        for (kind, _, _), obj in self.objects.items():
            if kind in BY_KIND and _labelled(obj):
                parts.store.set_child(copy.deepcopy(obj) | {"kind": kind})
        for pod in self.pods.values():
            parts.store.set_pod(copy.deepcopy(pod))
        parts.dispatch.started = True

    def end_job(self, name: str, kind: str = "Complete", reason: str = "") -> None:
        """Let a Job be done, or fail."""
        job = self.objects.get(("Job", "team", name))
        if job is None:
            return
        job["status"] = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}
        job["metadata"]["resourceVersion"] = str(next(self.versions))
        self._tell("MODIFIED", ("Job", "team", name), job)

    def run_job(self, name: str, state: dict, node: str = "n1") -> None:
        """Give a Job a pod whose container is in this state."""
        job = self.objects["Job", "team", name]
        template = job["spec"]["template"]
        pod = {
            "metadata": {
                "name": f"{name}-x", "namespace": "team", "labels": template["metadata"]["labels"],
                "ownerReferences": [{"kind": "Job", "name": name, "controller": True}],
            },
            "spec": template["spec"] | {"nodeName": node},
            "status": {"phase": "Running", "containerStatuses": [{"name": "fetch"} | state]},
        }  # fmt: skip
        self.told_pods.append(pod)
        self.parts.store.set_pod(copy.deepcopy(pod))

    def jobs(self) -> list[str]:
        return sorted(name for kind, _, name in self.objects if kind == "Job")

    def end_pods(self) -> None:
        """Remove the pods that no Deployment asks for any more."""
        asked = {
            (namespace, f"{name}-{index}")
            for (kind, namespace, name), obj in self.objects.items()
            if kind == "Deployment"
            for index in range(obj["spec"]["replicas"])
        }
        for key in [key for key in self.pods if key not in asked]:
            del self.pods[key]
            self.parts.store.remove_pod(key)

    def run_pods(self, node: str) -> None:
        """Make the pods of all Deployments, ready on `node`."""
        for (kind, namespace, name), obj in self.objects.items():
            if kind != "Deployment":
                continue
            template = obj["spec"]["template"]
            for index in range(obj["spec"]["replicas"]):
                pod = {
                    "metadata": {
                        "name": f"{name}-{index}",
                        "namespace": namespace,
                        "labels": template["metadata"]["labels"] | {"pod-template-hash": "5f"},
                        "ownerReferences": [{"kind": "ReplicaSet", "name": f"{name}-5f", "controller": True}],
                    },
                    "spec": template["spec"] | {"nodeName": node},
                    # By its address a test knows a pod.
                    "status": {
                        "phase": "Running",
                        "podIP": f"{name}-{index}",
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                }
                self.pods[namespace, f"{name}-{index}"] = pod
                self.parts.store.set_pod(copy.deepcopy(pod))

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        found = self._condition(name, kind)
        return found["status"], found["reason"]

    def message(self, name: str, kind: str) -> str:
        return self._condition(name, kind)["message"]

    def _condition(self, name: str, kind: str) -> dict:
        [found] = [c for c in self.statuses[name]["conditions"] if c["type"] == kind]
        return found

    def deployments(self) -> dict[str, int]:
        """Replicas by name."""
        return {
            name: o["spec"]["replicas"] for (kind, _, name), o in self.objects.items() if kind == "Deployment"
        }

    def writes(self) -> list[str]:
        return [entry for entry in self.log if entry.startswith(("apply", "status", "delete"))]


def _labelled(obj: dict) -> bool:
    return obj["metadata"].get("labels", {}).get(LABEL_MANAGED_BY) == MANAGED_BY


def loop_now() -> str:
    """Whole seconds of the loop's clock, as Kubernetes writes times."""
    return datetime.fromtimestamp(asyncio.get_running_loop().time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
