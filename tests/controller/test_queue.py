"""The queue's promises: exclusive, coalescing, backing off, and driven by the loop's clock alone."""

import asyncio
import random

import pytest

from shardwright.controller.queue import LONGEST_BACKOFF_S, QueueClosed, WorkQueue

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_adding_a_waiting_key_again_changes_nothing():
    queue = WorkQueue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_key_is_never_worked_on_twice_at_once_and_runs_again_afterwards():
    queue = WorkQueue()
    active, most, runs = 0, 0, 0

    async def worker():
        nonlocal active, most, runs
        while True:
            key = await queue.get()
            active += 1
            most = max(most, active)
            runs += 1
            await asyncio.sleep(1)
            active -= 1
            queue.done(key)

    workers = [asyncio.create_task(worker()) for _ in range(4)]
    queue.add("a")
    await asyncio.sleep(0.5)
    queue.add("a")
    queue.add("a")
    await asyncio.sleep(5)
    assert (most, runs) == (1, 2)
    assert queue.idle
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def test_the_earliest_of_several_delays_counts():
    queue = WorkQueue()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    await queue.get()
    queue.done("a")
    assert now() == pytest.approx(3)
    await asyncio.sleep(60)
    assert len(queue) == 0


async def test_delayed_keys_come_in_the_order_of_their_times():
    queue = WorkQueue()
    for key, delay in (("c", 3), ("a", 1), ("b", 2)):
        queue.add_after(key, delay)
    times = [(await queue.get(), now()) for _ in range(3)]
    assert times == [("a", pytest.approx(1)), ("b", pytest.approx(2)), ("c", pytest.approx(3))]


async def test_back_off_doubles_with_jitter_up_to_its_cap_and_forget_resets_it():
    queue = WorkQueue(rng=random.Random(1))
    delays = []
    for _ in range(12):
        delays.append(queue.retry("a"))
        await queue.get()
        queue.done("a")
    for n, delay in enumerate(delays):
        assert delay == pytest.approx(min(LONGEST_BACKOFF_S, 2**n), rel=0.2)
    queue.forget("a")
    assert queue.retry("a") == pytest.approx(1, rel=0.2)


async def test_a_servers_retry_after_is_a_lower_bound():
    queue = WorkQueue()
    assert queue.retry("a", at_least_s=30) == 30
    await queue.get()
    assert now() == pytest.approx(30)


async def test_an_event_does_not_wait_for_the_back_off():
    queue = WorkQueue()
    queue.retry("a")
    queue.add("a")
    await queue.get()
    assert now() == 0
    queue.done("a")
    await asyncio.sleep(100)
    assert len(queue) == 0


async def test_close_wakes_all_workers():
    queue = WorkQueue()
    tasks = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(r, QueueClosed) for r in results)
    queue.add("a")
    assert len(queue) == 0


async def test_a_cancelled_worker_takes_no_key_with_it():
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(1)
    queue.add("a")
    waiting[0].cancel()
    assert await asyncio.wait_for(waiting[1], 60) == "a"


async def test_oldest_age_is_that_of_the_longest_waiting_key():
    queue = WorkQueue()
    queue.add("a")
    await asyncio.sleep(7)
    queue.add("b")
    assert queue.oldest_s() == pytest.approx(7)


async def test_waiting_for_an_idle_queue_ends_when_it_is_idle_and_when_time_is_up():
    queue = WorkQueue()
    await queue.until_idle(100)
    assert now() == 0
    queue.add("a")
    await queue.until_idle(100)
    assert now() == pytest.approx(100)  # a key that nobody takes
    await queue.get()
    asyncio.get_running_loop().call_later(7, queue.done, "a")
    await queue.until_idle(100)
    assert now() == pytest.approx(107, abs=0.2)
