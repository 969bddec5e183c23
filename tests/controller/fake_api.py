"""A fake API server with the operator's loop on top: what is written is kept, and what is told can be read."""

import copy
import itertools

from harness import nodes
from shardwright.cluster.api import Applied
from shardwright.cluster.errors import Conflict, Gone
from shardwright.controller.parts import Parts


def _owned(obj: dict) -> dict:
    """The set of fields of whoever applied `obj`."""
    metadata = {f"f:{name}": {} for name in obj["metadata"] if name not in {"name", "namespace"}}
    content = {f"f:{name}": {} for name in obj if name not in {"apiVersion", "kind", "metadata"}}
    return content | {"f:metadata": metadata}


class Fake:
    """A fake API server: keeps what is applied, knows no scheduler, and fails when told to."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict] = {}
        self.log: list[str] = []
        self.statuses: dict[str, dict] = {}
        self.versions = itertools.count(1000)
        self.fail: dict[str, Exception] = {}
        self.parts: Parts
        self.raw: dict[str, dict] = {}
        self.nodes: dict[str, dict] = {}
        self.pods: dict[tuple[str, str], dict] = {}
        self.conflicts = True
        self.applied: list[tuple[str, dict]] = []

    def _check(self, what: str) -> None:
        self.log.append(what)
        for prefix, error in self.fail.items():
            if what.startswith(prefix):
                raise error

    async def apply(self, obj, *, force=True) -> Applied:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._check(f"apply {kind}/{name}")
        key = (kind, obj["metadata"]["namespace"], name)
        created = key not in self.objects
        self.applied.append((f"{kind}/{name}", obj))
        if not created and not force and self.conflicts:
            raise Conflict("conflict", status=409)
        live = copy.deepcopy(obj)
        version = str(next(self.versions))
        uid = f"uid-{name}-{kind}-{version}" if created else self.objects[key]["metadata"]["uid"]
        live["metadata"] |= {"uid": uid, "resourceVersion": version}
        live["metadata"]["managedFields"] = [
            {"manager": "shardwright", "operation": "Apply", "fieldsV1": _owned(obj)}
        ]
        self.objects[key] = live
        return Applied(copy.deepcopy(live["metadata"]), created)

    async def replace_spec(self, obj) -> None:
        self._check(f"replace {obj['kind']}/{obj['metadata']['name']}")

    async def apply_status(self, _namespace, name, status, uid):
        self._check(f"status {name}")
        raw = self.raw.get(name)
        if raw is None:
            raise Gone(f"PATCH llmservices/{name}: 404 NotFound", status=404)
        if raw["metadata"]["uid"] != uid:
            raise Conflict("uid mismatch", status=409)
        self.statuses[name] = status
        raw["metadata"]["resourceVersion"] = str(next(self.versions))
        raw["status"] = status
        return copy.deepcopy(raw["metadata"])

    async def metadata(self, kind, namespace, name):
        self.log.append(f"look {kind.kind}/{name}")
        error = self.fail.get(f"look {kind.kind}")
        if error:
            raise error
        found = self.objects.get((kind.kind, namespace, name))
        return found["metadata"] if found else None

    async def get(self, kind, namespace, name):
        found = self.objects.get((kind.kind, namespace, name))
        if found is None:
            raise Gone(f"GET {kind.plural}/{name}: 404 NotFound", status=404)
        return copy.deepcopy(found)

    async def names(self, kind, namespace):
        return {name for k, ns, name in self.objects if (k, ns) == (kind.kind, namespace)}

    async def delete(self, kind, namespace, name, *, uid):  # noqa: ARG002
        self._check(f"delete {kind.kind}/{name}")
        self.objects.pop((kind.kind, namespace, name), None)
        self.parts.store.remove_child(kind.kind, (namespace, name))

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
        self.parts.store.set_child(self.objects.pop(key))
        self.parts.store.remove_child(key[0], key[1:])

    def node(self, name: str, gpus: int = 4, ready: str = "True") -> None:
        node = nodes.gpu_node(name, "NVIDIA-RTX-A6000", gpus=gpus)
        node["metadata"]["resourceVersion"] = str(next(self.versions))
        node["spec"].pop("taints", None)
        node["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        self.nodes[name] = node
        self.parts.store.set_node(node)

    def start(self, parts: Parts) -> None:
        """Let another operator see the world as it is."""
        self.parts = parts
        for node in self.nodes.values():
            parts.store.set_node(copy.deepcopy(node))
        for raw in self.raw.values():
            parts.store.set_service(copy.deepcopy(raw))
        for obj in self.objects.values():
            if "managedFields" in obj["metadata"]:
                parts.store.set_child(copy.deepcopy(obj))
        for pod in self.pods.values():
            parts.store.set_pod(copy.deepcopy(pod))
        parts.dispatch.started = True

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
            if kind != "Deployment" or obj["metadata"]["uid"] == "foreign":
                continue
            template = obj["spec"]["template"]
            for index in range(obj["spec"]["replicas"]):
                pod = {
                    "metadata": {
                        "name": f"{name}-{index}",
                        "namespace": namespace,
                        "labels": template["metadata"]["labels"],
                    },
                    "spec": template["spec"] | {"nodeName": node},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
                }
                self.pods[namespace, f"{name}-{index}"] = pod
                self.parts.store.set_pod(pod)

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
