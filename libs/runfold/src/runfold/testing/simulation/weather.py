"""How bad it is: what the clients of the stores, the clocks and the author's world go by."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

from runfold.adapters.memory.clock import LoopClock
from runfold.testing.simulation.loop import Process


def stream(seed: int, role: str) -> Random:
    """The random numbers of one role: what one part draws does not shift what another gets."""
    return Random(f"{seed} {role}")  # noqa: S311 - reproducible on purpose, nothing secret


@dataclass(slots=True)
class Weather:
    """How bad it is at the moment.

    Attributes:
        chance: For whatever the clients decide.
        trouble: How likely the author's code and the model misbehave, [0, 1].
        store_delay, close_delay: Most seconds that a call to Postgres, and closing a reader, take.
        network_delay: Most seconds that a record, and its acknowledgement, are on their way.
        input_delay: Most seconds until a reader sees an input; each topic takes its own time.
        publish_failures: Share of the publications that fail: before, behind, or long before they are made.
        commit_failures: Share of the transactions that fail: rolled back, or committed, or committed later.
        blob_failures: Share of the calls to the object store that fail.
        skew_s: Most seconds by which two wall clocks differ; with any, elapsed clocks run at different rates, too.
        is_bad: False: the clients work as they should, and people do nothing silly.
        blobs_away, kafka_away: The object store, or the whole of Kafka, cannot be reached.
        is_over: Nothing is written to Postgres any more: the processes are being buried.
        locks: Partition -> the process whose transaction has locked its row.
        injected: What was done to the system, name -> count.
    """

    chance: Random
    trouble: float = 0.0
    store_delay: float = 0.0
    close_delay: float = 0.0
    network_delay: float = 0.0
    input_delay: float = 0.0
    publish_failures: float = 0.0
    commit_failures: float = 0.0
    blob_failures: float = 0.0
    skew_s: float = 0.0
    is_bad: bool = True
    blobs_away: bool = False
    kafka_away: bool = False
    is_over: bool = False
    locks: dict[int, Process] = field(default_factory=dict)
    injected: Counter[str] = field(default_factory=Counter)

    async def lag(self, most: float) -> None:
        """Take up to ``most`` seconds."""
        if self.is_bad and most:
            await asyncio.sleep(self.chance.random() * most)

    def strikes(self, share: float, what: str) -> bool:
        """Decide whether something fails this time, and count it."""
        if not self.is_bad or not share or self.chance.random() >= share:
            return False
        self.injected[what] += 1
        return True

    def clock(self) -> LoopClock:
        """The clocks of one machine."""
        if not self.skew_s:
            return LoopClock()
        ahead_s = self.chance.uniform(-self.skew_s, self.skew_s)
        return SkewedClock(ahead_s, self.chance.uniform(-1, 1) * _WALL_DRIFT, self.chance.uniform(-1, 1) * _RATE)

    def calm(self) -> None:
        """Everything works from now on; clocks stay as they are."""
        self.is_bad = self.blobs_away = self.kafka_away = False
        self.trouble = 0.0


_WALL_DRIFT = 0.01
"""A badly set wall clock gains or loses up to 10 ms a second."""
_RATE = 0.0005
"""A quartz is off by less than 500 millionths."""


class SkewedClock(LoopClock):
    """A machine's clocks: set differently from others', and running at another rate.

    Args:
        ahead_s: Seconds that its wall clock is ahead of the true time at the beginning.
        drift: Seconds that its wall clock gains in a second.
        rate: The same of its elapsed clock, which moreover starts anywhere.
    """

    def __init__(self, ahead_s: float, drift: float, rate: float) -> None:
        super().__init__()
        self._ahead_s = ahead_s
        self._drift = drift
        self._rate = rate

    def now_ms(self) -> int:
        """Give the wall clock in milliseconds since 1970."""
        true = super().elapsed()
        return self._start_ms + int((true * (1 + self._drift) + self._ahead_s) * 1000)

    def elapsed(self) -> float:
        """Give the elapsed clock in seconds."""
        return super().elapsed() * (1 + self._rate) + abs(self._ahead_s)


CONSTANT = {
    "slow-store": "Postgres is slow",
    "commits": "transactions roll back, or their outcome is unknown",
    "publish": "publications fail, or seem to",
    "slow-close": "readers close slowly",
    "network": "records and acknowledgements take their time",
    "late-inputs": "inputs arrive late, and topics overtake one another",
    "flaky-blobs": "the object store fails at times",
    "skew": "clocks differ",
}
"""Faults that hold all the time until it gets calm."""


def weather_of(chosen: Collection[str], chance: Random, trouble: float) -> Weather:
    """The weather of a run with these faults."""
    return Weather(
        chance,
        trouble,
        store_delay=chance.choice([0.01, 0.3, 3.0]) if "slow-store" in chosen else 0.0,
        close_delay=3.0 if "slow-close" in chosen else 0.0,
        network_delay=chance.choice([0.005, 0.1, 1.5]) if "network" in chosen else 0.0,
        input_delay=chance.choice([0.1, 3.0, 20.0]) if "late-inputs" in chosen else 0.0,
        publish_failures=0.3 if "publish" in chosen else 0.0,
        commit_failures=chance.choice([0.05, 0.3]) if "commits" in chosen else 0.0,
        blob_failures=0.2 if "flaky-blobs" in chosen else 0.0,
        skew_s=chance.choice([1.0, 600.0]) if "skew" in chosen else 0.0,
    )
