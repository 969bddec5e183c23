"""Services and a cluster that change at every step of the loop, in every way that an API server could show."""

import asyncio

from shardwright.cluster.errors import Transient

NAMES = [f"s{i}" for i in range(6)]
HUB = {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
MODEL = {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192}


class Chaos:
    """Changes services and the cluster, in every way that the API server could."""

    def __init__(self, fake, rng):
        self.fake = fake
        self.rng = rng
        slow = {"metadata", "get", "names", "apply", "apply_status", "delete", "create_event"}
        for name in slow:
            setattr(fake, name, self._slowed(getattr(fake, name)))

    def _slowed(self, call):
        async def slowed(*args, **more):
            for _ in range(self.rng.randrange(4)):
                await asyncio.sleep(0)
            if self.rng.random() < 0.03:
                await asyncio.sleep(self.rng.uniform(0, 0.3))
            found = await call(*args, **more)
            for _ in range(self.rng.randrange(3)):
                await asyncio.sleep(0)
            return found

        return slowed

    def _spec(self, name):
        spec = {"engine": {"env": [{"name": "A", "value": str(self.rng.randrange(3))}]}}
        if self.rng.random() < 0.5:
            spec["model"] = MODEL | {"source": HUB}
        if self.rng.random() < 0.2:
            spec["pool"] = {"maxGPUs": 8, "gpuProducts": ["H100"]}
        self.fake.put(name, **spec)

    def _label(self, name):
        self.fake.raw[name]["metadata"]["labels"] = {"a": str(self.rng.random())}
        self.fake.tell(name)

    def _status(self, name):
        self.fake.raw[name]["status"] = {"conditions": [], "note": str(self.rng.random())}
        self.fake.tell(name)

    def _again(self, name):
        self.fake.remove(name)
        self._spec(name)

    def _world(self, _name):
        change = self.rng.randrange(6)
        if change == 0:
            self.fake.node(f"n{self.rng.randrange(3)}", gpus=self.rng.randrange(5))
        elif change == 1:
            self.fake.parts.store.remove_node(f"n{self.rng.randrange(3)}")
        elif change == 2:
            self.fake.fail = {"look Secret": Transient("away")} if self.rng.random() < 0.3 else {}
        elif change == 3:
            self.fake.run_pods(f"n{self.rng.randrange(3)}")
        elif change == 4:
            self.fake.end_pods()
        else:
            records = [key for key in self.fake.objects if key[0] == "ControllerRevision"]
            if records:
                self.fake.lose(self.rng.choice(records))

    def step(self):
        name = self.rng.choice(NAMES)
        raw = self.fake.raw.get(name)
        if raw is None:
            self._spec(name)
        elif "deletionTimestamp" in raw["metadata"]:
            self.rng.choice([self.fake.remove, self._again, self._label, self._status])(name)
        else:
            ways = [self._spec, self._label, self.fake.tell, self._status, self._world]
            rarer = [self.fake.terminate, self.fake.remove, self._again]
            self.rng.choice(ways * 2 + rarer)(name)

    async def run(self, steps):
        for _ in range(steps):
            if self.rng.random() < 0.6:
                self.step()
            await asyncio.sleep(self.rng.uniform(0.01, 0.2) if self.rng.random() < 0.1 else 0)
        self.fake.fail = {}
