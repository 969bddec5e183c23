"""Pods of the fake cluster: made and ended as Deployments ask, answering, or failing by revision."""

import asyncio
import copy

from shardwright.api.names import LABEL_REVISION

PULL = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}, "restartCount": 0}
READY = {"state": {"running": {}}, "restartCount": 0}
LOADING = {"state": {"running": {}}, "restartCount": 0, "ready": False}


def ended(message, restarts=3, reason="Error", code=1):
    """A container that ends again and again, with its last words."""
    last = {"terminated": {"reason": reason, "exitCode": code, "message": message}}
    waiting = {
        "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}
    }
    return {"state": waiting, "lastState": last, "restartCount": restarts}


class Kubelet:
    """Runs the pods of a fake API server on one node, at each look."""

    def __init__(self, fake, node="n1"):
        self.fake, self.node = fake, node
        self.broken = {}
        """State of the container by revision; others answer."""
        self.least = {}
        """Fewest answering pods at any look, by service."""
        self.addresses = {}
        """By pod."""

    def revision(self, env=None):
        """The revision of the Deployment whose engine has this value of A, or none."""
        for (kind, _, _), obj in self.fake.objects.items():
            if kind != "Deployment":
                continue
            [engine] = [c for c in obj["spec"]["template"]["spec"]["containers"] if c["name"] == "engine"]
            found = [e["value"] for e in engine.get("env", []) if e["name"] == "A"]
            if found == ([env] if env else []):
                return obj["metadata"]["labels"][LABEL_REVISION]
        return None

    def look(self):
        """Make, change and end pods."""
        fake, asked = self.fake, {}
        for (kind, namespace, name), obj in fake.objects.items():
            if kind == "Deployment":
                for index in range(obj["spec"]["replicas"]):
                    asked[namespace, f"{name}-{index}"] = obj["spec"]["template"]
        for key in [key for key in fake.pods if key not in asked]:
            del fake.pods[key]
            fake.parts.store.remove_pod(key)
        for (namespace, name), template in asked.items():
            labels = template["metadata"]["labels"]
            state = self.broken.get(labels[LABEL_REVISION], READY)
            ready = "True" if state is READY else "False"
            owner = {"kind": "ReplicaSet", "name": f"{name.rpartition('-')[0]}-5f", "controller": True}
            pod = {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": labels | {"pod-template-hash": "5f"},
                    "ownerReferences": [owner],
                },
                "spec": template["spec"] | {"nodeName": self.node},
                "status": {
                    "phase": "Running",
                    "podIP": self.addresses.setdefault(name, f"10.0.0.{len(self.addresses) + 1}"),
                    "conditions": [{"type": "Ready", "status": ready}],
                    "containerStatuses": [{"name": "engine"} | state],
                },
            }
            fake.pods[namespace, name] = pod
            fake.parts.store.set_pod(copy.deepcopy(pod))

    async def run(self, seconds, every=5):
        """Look again and again."""
        for _ in range(int(seconds / every)):
            self.look()
            await asyncio.sleep(every)
