"""One look after another at a router that may be away, slow, restarted or filled by somebody else."""

import asyncio

import pytest

from endpoints.test_pool import a_slice
from shardwright.cluster.errors import Transient
from shardwright.endpoints.follow import LIST_S, POLL_S, SILENT_S, Follower
from shardwright.endpoints.router import HttpRouter, RouterGoneError

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


class FakeRouter:
    def __init__(self):
        self.urls, self.up, self.busy = set(), True, False
        self.silent, self.speaks = set(), asyncio.Event()
        self.said = []

    async def workers(self):
        if not self.up:
            raise RouterGoneError
        return None if self.busy else frozenset(self.urls)

    async def add(self, url):
        self.said.append(("add", url))
        if url in self.silent:
            await self.speaks.wait()
        self.urls.add(url)
        return True

    async def remove(self, url):
        self.said.append(("remove", url))
        self.urls.discard(url)
        return True


class FakeApi:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def list_pages(self, _kind, _namespace, *, labels):
        assert labels == "kubernetes.io/service-name=chat-engine"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield answer


class DeafApi:
    """Whoever watches it is connected and hears nothing; a list is answered."""

    def __init__(self, *addresses):
        self.addresses, self.version = addresses, 1

    async def list_pages(self, *_what, **_how):
        yield [a_slice("a", self.version, self.addresses)], str(self.version)

    async def watch(self, *_what, **_how):
        await asyncio.Event().wait()
        yield []


class Own:
    """An activator that only says what it is told."""

    url = "http://127.0.0.1:8002"

    def __init__(self, router):
        self.router, self.said, self.draining = router, [], False

    def hold(self):
        self.said.append("hold")

    def release(self, engines):
        assert self.url not in self.router.urls, "the router would send them back"
        self.said.append(sorted(engines))


def follower(router, *answers, activator=None):
    return Follower(FakeApi(*answers), router, "team", "chat-engine", activator)


async def test_it_fills_an_empty_router_and_is_ready_then():
    router = FakeRouter()
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1", "10.0.0.2"])], "1"))
    await found.mend()
    assert not found.filled, "nothing is known yet"
    await found.list_once()
    for _ in range(2):
        await found.mend()
    assert router.urls == {A, B}
    assert found.filled


async def test_a_router_that_was_restarted_is_filled_again_and_gets_nothing_meanwhile():
    router = FakeRouter()
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"))
    await found.list_once()
    await found.mend()
    router.up, router.urls = False, set()
    await found.mend()
    assert not found.filled
    router.up = True
    await found.mend()
    assert (found.filled, router.urls) == (True, {A})


async def test_a_router_that_is_slow_keeps_its_requests_until_it_is_silent_for_long():
    router = FakeRouter()
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"))
    await found.list_once()
    await found.mend()
    router.busy = True
    await found.mend()
    assert found.filled
    found._answered_at -= SILENT_S + 1
    await found.mend()
    assert not found.filled
    router.busy = False
    await found.mend()
    assert found.filled


async def test_a_router_that_never_answered_gets_nothing():
    router = FakeRouter()
    router.busy = True
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"))
    await found.list_once()
    await found.mend()
    assert not found.filled


async def test_no_answer_in_time_is_another_thing_than_nobody_there(unused_tcp_port, monkeypatch):
    router = HttpRouter(f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(RouterGoneError):
        await router.workers()
    held = asyncio.Event()

    async def hold(_reader, writer):
        await held.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", unused_tcp_port):
        monkeypatch.setattr("shardwright.endpoints.router.LIST_TIMEOUT_S", 0.05)
        assert await router.workers() is None
        held.set()
    await router.close()


@pytest.mark.looptime
async def test_who_left_while_the_watch_is_deaf_is_off_the_list_after_the_next_list():
    api, router = DeafApi("10.0.0.1", "10.0.0.2"), FakeRouter()
    following = asyncio.create_task(Follower(api, router, "team", "chat-engine").run())
    await asyncio.sleep(1)
    assert router.urls == {A, B}
    api.addresses, api.version = ("10.0.0.1",), 2
    await asyncio.sleep(LIST_S + POLL_S)
    assert router.urls == {A}
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_api_server_that_is_away_changes_nothing():
    router = FakeRouter()
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"), Transient("away"), TimeoutError())
    for _ in range(3):
        await found.list_once()
        await found.mend()
    assert router.said == [("add", A)]
    assert found.filled


async def test_after_its_own_restart_during_an_outage_the_router_serves_on():
    router = FakeRouter()
    router.urls = {A}
    found = follower(router, Transient("away"))
    await found.list_once()
    await found.mend()
    assert (found.filled, router.said) == (True, [])


async def test_who_leaves_does_not_wait_for_who_comes():
    router = FakeRouter()
    router.urls, router.silent = {A}, {B}
    found = follower(router, ([a_slice("a", 1, ["10.0.0.2"])], "1"), ([a_slice("a", 2, ["10.0.0.1"])], "2"))
    await found.list_once()
    await asyncio.wait_for(found.mend(), 60)
    assert router.said == [("remove", A), ("add", B)]
    assert not found.filled
    await found.list_once()
    await asyncio.wait_for(found.mend(), 60)
    assert router.urls == {A}
    # What was asked for once may still come: the next look takes it out.
    router.speaks.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert router.urls == {A, B}
    await found.mend()
    assert router.urls == {A}


async def test_a_worker_is_not_asked_for_twice_while_it_is_waited_for():
    router = FakeRouter()
    router.silent = {A}
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"))
    await found.list_once()
    for _ in range(3):
        await found.mend()
    assert router.said == [("add", A)]
    router.speaks.set()


async def test_without_an_engine_the_activator_is_the_one_worker():
    router = FakeRouter()
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, [])], "1"), activator=own)
    await found.mend()
    assert (found.filled, router.urls) == (False, set()), "nothing is known yet"
    await found.list_once()
    await found.mend()
    assert (found.filled, router.urls, own.said) == (True, {Own.url}, ["hold"])


async def test_the_activator_is_there_before_the_last_engine_is_not():
    router = FakeRouter()
    router.urls, router.silent = {A}, {Own.url}
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, [])], "1"), activator=own)
    await found.list_once()
    await asyncio.wait_for(found.mend(), 60)
    assert router.urls == {A}, "it is waited for"
    router.speaks.set()
    await asyncio.sleep(0)
    await found.mend()
    assert router.said == [("add", Own.url), ("remove", A)]
    assert router.urls == {Own.url}


async def test_between_the_last_engine_and_the_next_the_activator_is_there():
    router = FakeRouter()
    router.urls, router.silent = {A}, {B}
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, ["10.0.0.2"])], "1"), activator=own)
    await found.list_once()
    await asyncio.wait_for(found.mend(), 60)
    assert (router.urls, own.said, found.filled) == ({Own.url}, ["hold"], True)
    assert router.said.index(("add", Own.url)) < router.said.index(("remove", A))
    router.speaks.set()
    await asyncio.sleep(0)
    await asyncio.wait_for(found.mend(), 60)
    assert (router.urls, own.said) == ({B}, ["hold", [B]])


async def test_an_activator_that_may_still_be_listed_passes_nothing_on():
    router = FakeRouter()
    router.urls, router.silent = {A}, {Own.url}
    own = Own(router)
    answers = ([a_slice("a", 1, [])], "1"), ([a_slice("a", 2, ["10.0.0.1"])], "2")
    found = follower(router, *answers, activator=own)
    for _ in answers:
        await found.list_once()
        await asyncio.wait_for(found.mend(), 60)
    assert (router.urls, own.said) == ({A}, ["hold"]), "the router would send it back"
    router.speaks.set()
    await asyncio.sleep(0)
    await asyncio.wait_for(found.mend(), 60)
    assert (router.urls, own.said) == ({A}, ["hold", [A]])


async def test_what_is_held_goes_to_engines_only_when_the_router_has_nobody_else():
    router = FakeRouter()
    router.urls, router.silent = {Own.url}, {B}
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1", "10.0.0.2"])], "1"), activator=own)
    await found.list_once()
    await asyncio.wait_for(found.mend(), 60)
    # The first engine is enough; the second is still waited for.
    assert own.said == [[A]]
    assert router.said == [("add", A), ("add", B), ("remove", Own.url)]
    assert found.filled


async def test_while_the_engine_does_not_answer_the_activator_stays():
    router = FakeRouter()
    router.urls, router.silent = {Own.url}, {A}
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"), activator=own)
    await found.list_once()
    await asyncio.wait_for(found.mend(), 60)
    assert (router.urls, own.said, found.filled) == ({Own.url}, [], True)


async def test_an_outage_of_the_api_server_at_zero_changes_nothing():
    router = FakeRouter()
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, [])], "1"), Transient("away"), activator=own)
    for _ in range(2):
        await found.list_once()
        await found.mend()
    assert router.said == [("add", Own.url)]
    assert found.filled


async def test_a_router_that_is_on_its_way_out_is_not_waited_for():
    router = FakeRouter()
    router.urls = {Own.url}
    own = Own(router)
    found = follower(router, ([a_slice("a", 1, ["10.0.0.1"])], "1"), activator=own)
    await found.list_once()
    router.up = False
    await found.mend()
    assert own.said == [], "it may only be slow"
    own.draining = True
    router.urls = set()
    await found.mend()
    assert own.said == [[A]]
