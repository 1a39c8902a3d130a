"""Turns of those who follow logs: everybody's comes, few at a time, from any thread."""

from __future__ import annotations

import asyncio
import itertools
import threading

from debug_server.service.fair_wakeups import FairWakeups

MANY = 1000
SECONDS = 60.0


def test_a_crowd_leaves_room_between_its_turns() -> None:
    """A thousand who are woken together by another thread take many rounds of the loop, and others run in each."""

    async def measure() -> list[int]:
        fair, events = FairWakeups(), [asyncio.Event() for _ in range(MANY)]
        wakers = [fair.waker(event) for event in events]
        threading.Thread(target=lambda: [wake() for wake in wakers]).start()
        counts: list[int] = []
        async with asyncio.timeout(SECONDS):
            while not all(event.is_set() for event in events):
                counts.append(sum(event.is_set() for event in events))
                await asyncio.sleep(0)
        return counts

    counts = asyncio.run(measure())
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) <= 2


def test_who_is_woken_again_gets_another_turn() -> None:
    """Each is queued once however often it is woken, and a wake-up after its turn is not lost."""

    async def follow() -> int:
        fair, woken, taken = FairWakeups(), asyncio.Event(), 0
        wake = fair.waker(woken)
        for _ in range(10):
            for _ in range(5):
                wake()
            async with asyncio.timeout(SECONDS):
                await woken.wait()
            woken.clear()
            taken += 1
        await asyncio.sleep(0)
        return taken + woken.is_set()

    assert asyncio.run(follow()) == 10


def test_no_wake_up_of_a_thread_is_lost() -> None:
    """A thread that says "more" after each turn is always heard, whatever the loop is doing at that moment."""

    async def follow() -> int:
        fair, woken, heard = FairWakeups(), asyncio.Event(), threading.Semaphore(0)
        wake, taken = fair.waker(woken), 0

        def say() -> None:
            for _ in range(MANY):
                wake()
                heard.acquire()

        threading.Thread(target=say).start()
        async with asyncio.timeout(SECONDS):
            while taken < MANY:
                await woken.wait()
                woken.clear()
                taken += 1
                heard.release()
        return taken

    assert asyncio.run(follow()) == MANY


def test_a_new_loop_begins_anew() -> None:
    """What was due in a loop that has ended holds nobody up in the next."""
    fair = FairWakeups()

    async def leave_something_due() -> None:
        fair.waker(asyncio.Event())()

    async def wait() -> None:
        async with asyncio.timeout(SECONDS):
            await fair.wait()

    asyncio.run(leave_something_due())
    asyncio.run(wait())
