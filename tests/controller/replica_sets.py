"""Pods of the fake cluster as ReplicaSets keep them: each has a name of its own, starts, ends, and is replaced."""

import asyncio
import copy
import itertools

from shardwright.api.names import LABEL_REVISION

RUNNING = {"name": "engine", "state": {"running": {}}, "restartCount": 0, "ready": True}


class ReplicaSets:
    """Makes and ends the pods of a fake API server, again and again. `node` says where a pod goes."""

    def __init__(self, fake, start_s=20.0, node=lambda _: "n1"):
        self.fake, self.start_s, self.node = fake, start_s, node
        self.born, self.gone_at, self.names = {}, {}, itertools.count()
        self.states = {}
        """State of the engine's container by pod; others run."""
        self.most_away = 0
        """Most pods of one look that did not serve, once all did."""
        self.settled = False
        self.every_s = 1

    async def run(self):
        while True:
            self.look()
            await asyncio.sleep(self.every_s)

    def look(self):
        fake, now = self.fake, asyncio.get_running_loop().time()
        for (kind, namespace, name), obj in list(fake.objects.items()):
            if kind != "Deployment":
                continue
            mine = [k for k, pod in fake.pods.items() if pod["metadata"]["labels"][LABEL_REVISION] in name]
            staying = [k for k in mine if "deletionTimestamp" not in fake.pods[k]["metadata"]]
            for _ in range(obj["spec"]["replicas"] - len(staying)):
                self._make(namespace, name, obj["spec"]["template"])
        for key, pod in list(fake.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                grace = pod["metadata"]["deletionGracePeriodSeconds"]
                if now >= self.gone_at.setdefault(key, now + grace):
                    del fake.pods[key]
                    fake.parts.store.remove_pod(key)
                continue
            self._tell(key, pod, now)
        away = sum(not self.serves(pod) for pod in fake.pods.values())
        self.settled = self.settled or (bool(fake.pods) and not away)
        if self.settled:
            self.most_away = max(self.most_away, away)

    @staticmethod
    def serves(pod):
        ready = pod["status"]["conditions"][0]["status"] == "True"
        return ready and "deletionTimestamp" not in pod["metadata"]

    def serving(self):
        return sorted(name for (_, name), pod in self.fake.pods.items() if self.serves(pod))

    def _make(self, namespace, name, template):
        key = (namespace, f"{name}-{next(self.names):03d}")
        self.born[key] = asyncio.get_running_loop().time()
        self.fake.pods[key] = {
            "metadata": {
                "name": key[1],
                "namespace": namespace,
                "labels": template["metadata"]["labels"] | {"pod-template-hash": "5f"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": f"{name}-5f", "controller": True}],
            },
            "spec": template["spec"] | {"nodeName": self.node(key[1])},
            "status": {"phase": "Running", "podIP": f"10.0.0.{len(self.born)}"},
        }

    def _tell(self, key, pod, now):
        state = self.states.get(key[1], RUNNING)
        ready = state["ready"] and now - self.born[key] >= self.start_s
        told = {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [state | {"ready": ready}],
        }
        if {k: pod["status"].get(k) for k in told} != told:
            pod["status"] |= told
            self.fake.parts.store.set_pod(copy.deepcopy(pod))
