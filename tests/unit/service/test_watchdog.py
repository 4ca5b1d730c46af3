"""The watchdog: a loop that hangs is noticed; a process that was suspended as a whole is left alone."""

import asyncio
import threading
import time

from runfold.service.watchdog import Stall, Watchdog


def test_only_wakes_without_a_tick_in_a_row_count() -> None:
    stall = Stall(2)
    assert [stall.wake(ticks) for ticks in (1, 2, 2, 2, 3, 3, 3, 3)] == [False] * 7 + [True]


def test_a_suspended_watchdog_concludes_nothing_from_lost_time() -> None:
    stall = Stall(2)
    assert not stall.wake(1)
    # A minute of SIGSTOP: the watchdog woke as little as the loop ticked, so this is its next wake.
    assert not stall.wake(1)
    assert not stall.wake(2)


async def test_a_loop_that_hangs_is_noticed() -> None:
    noticed = threading.Event()
    async with Watchdog(noticed.set, stalled_s=0.05, beat_s=0.01):
        time.sleep(0.01)  # noqa: ASYNC251 - the point
        while not noticed.is_set():
            time.sleep(0.01)  # noqa: ASYNC251 - the point
    assert noticed.is_set()


async def test_a_loop_that_ticks_is_left_alone() -> None:
    noticed = threading.Event()
    async with Watchdog(noticed.set, stalled_s=0.5, beat_s=0.01):
        for _ in range(50):
            await asyncio.sleep(0.001)
    assert not noticed.is_set()
