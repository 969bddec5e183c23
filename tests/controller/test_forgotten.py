"""What is remembered of a service goes with it, at whatever moment it goes."""

import asyncio
import random
from collections import deque
from collections.abc import Iterator

import pytest

from controller.chaos import NAMES, Chaos
from shardwright.cluster.errors import Forbidden, Invalid
from shardwright.controller.apply import Applier
from shardwright.topology.ledger import Ledger

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
FOR_A_TIME = {(Applier, "_census"), (Ledger, "_hopeless")}
"""Names in use, listed anew every ten minutes; claims without room, until some comes free."""


def attributes(obj) -> dict[str, object]:
    slots = [name for cls in type(obj).__mro__ for name in getattr(cls, "__slots__", ())]
    found = {name: getattr(obj, name) for name in slots if hasattr(obj, name)} | getattr(obj, "__dict__", {})
    return {name: value for name, value in found.items() if (type(obj), name) not in FOR_A_TIME}


def atoms(value) -> Iterator[object]:
    """Take keys apart: (due, number, (namespace, name)) holds a name."""
    yield value
    if isinstance(value, tuple):
        for part in value:
            yield from atoms(part)


def holding(root: object, names: set[str]) -> set[str]:
    """Paths of all containers that have one of `names` in a key."""
    found, seen, todo = set(), set(), [("", root)]
    while todo:
        path, obj = todo.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, dict | set | list | deque):
            if any(atom in names for key in obj for atom in atoms(key) if isinstance(atom, str)):
                found.add(path)
            todo += [(f"{path}[]", value) for value in (obj.values() if isinstance(obj, dict) else obj)]
        elif type(obj).__module__.startswith("shardwright"):
            todo += [(f"{path}.{name}", value) for name, value in attributes(obj).items()]
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_left_of_services_that_are_gone(fake, seed):
    for index in range(2):
        fake.node(f"n{index}")
    fake.run_pods("n0")
    names = set(NAMES)
    tell = fake.tell

    def noted(name):
        names.add(fake.raw[name]["metadata"]["uid"])
        tell(name)

    fake.tell = noted
    chaos = Chaos(fake, random.Random(seed))
    await chaos.run(150)
    refusal = [Invalid("no", status=422), Forbidden("exceeded quota: q", status=403)][seed % 2]
    fake.fail["apply Deployment"] = refusal
    for name in NAMES:
        if name not in fake.raw:
            fake.put(name)
    await asyncio.sleep(0.15)
    for name in list(fake.raw):
        if seed % 3:
            fake.terminate(name)
        fake.remove(name)
        await asyncio.sleep(0)
    for _ in range(1000):  # longer than any timer
        fake.collect()
        fake.end_pods()
        await asyncio.sleep(1)
    assert holding(fake.parts, names) == set()
    for node in list(fake.parts.store.nodes):
        fake.parts.store.remove_node(node)
    await asyncio.sleep(1)
    assert holding(fake.parts, {"n0", "n1", "n2"}) == set()


async def test_the_search_finds_what_is_held(fake):
    fake.node("n1", gpus=1)
    for name in NAMES:
        fake.put(name)
    await asyncio.sleep(3)
    found = {path.rpartition(".")[2] for path in holding(fake.parts, set(NAMES))}
    assert {"waiting", "proposals", "services", "_claims", "_due"} <= found
