"""Membership of a consumer group. It reads nothing: what is assigned is paused at once, others read.

The poll thread serves the group; the listener's coroutines run on the event loop while the thread waits for them.
Heartbeats are librdkafka's own affair meanwhile.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from runfold.adapters.kafka.clients import CLOSE_S, Heard, make_consumer
from runfold.adapters.kafka.config import LOGGER, KafkaConfig, MemberSettings
from runfold.adapters.kafka.errors import MembershipFailed, kafka_error
from runfold.ports.membership import AssignmentListener

_POLL_S: Final = 0.05
_ABANDON_S: Final = 5.0
_STEP_S: Final = 0.5
"""What one turn of the poll loop adds at most to the time that the event loop is held to have stood still."""

# Messages that carry an error but do not end a membership: after the first, on_lost follows; the others can only be
# about reading, in the moment between assignment and pause.
_HARMLESS: Final = (
    KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001 - librdkafka's own code
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - the same
    KafkaError.OFFSET_OUT_OF_RANGE,
)


class KafkaMembership:
    """One member of one group; see ``ports.membership.Membership``. Good for one ``run``.

    Args:
        config: How to reach Kafka.
        group: The group's name.
        topic: The topic whose partitions are shared.
        settings: Times.
    """

    def __init__(self, config: KafkaConfig, group: str, topic: str, settings: MemberSettings | None = None) -> None:
        self._times = settings or MemberSettings()
        self._settings = config.member(group, self._times)
        self._notice_s = 0.0 if config.next_generation else self._times.notice_s
        self._topic = topic
        self._stop = threading.Event()
        self._ended = asyncio.Event()
        self._started = False
        self._member: _Member | None = None

    async def run(self, listener: AssignmentListener) -> None:
        """Join and stay until ``leave`` is called.

        Raises:
            MembershipFailed: The group refuses, the listener took too long, or the event loop stood still.
            KafkaConfigError: A setting is refused.
            Exception: Whatever the listener raised.
        """
        self._started = True
        try:
            self._member = _Member(self._settings, self._topic, self._times, listener, self._stop, self._notice_s)
            try:
                await self._member.join()
            except asyncio.CancelledError:
                self._member.abandon()
                await self._member.wait_ended(_ABANDON_S)
                raise
        finally:
            self._ended.set()

    async def leave(self) -> None:
        """Revoke what is assigned, leave the group; ``run`` then returns."""
        self._stop.set()
        if self._started:
            await self._ended.wait()


class _Abandoned(Exception):
    """``run`` was cancelled: the listener is not called any more."""


class _Member:
    """The consumer with its thread. What is marked so runs there."""

    def __init__(
        self,
        settings: dict[str, Any],
        topic: str,
        times: MemberSettings,
        listener: AssignmentListener,
        stop: threading.Event,
        notice_s: float,
    ) -> None:
        self._topic = topic
        self._times = times
        self._listener = listener
        self._stop = stop
        self._notice_s = notice_s
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        self._call: concurrent.futures.Future[None] | None = None
        self._abandoned = False
        self._error: BaseException | None = None
        # How often the loop was asked for a tick (written by the thread), and which one it has given (by the loop).
        self._asked = self._ticked = 0
        self._stalled_s = 0.0
        self._consumer = make_consumer(settings, Heard())
        self._thread = threading.Thread(target=self._poll, name="runfold-kafka-member", daemon=True)

    async def join(self) -> None:
        """Start the thread, and give back or raise what it ends with."""
        self._thread.start()
        await asyncio.shield(self._done)

    def abandon(self) -> None:
        """Leave without calling the listener again; a call that is under way is cancelled."""
        self._abandoned = True
        self._stop.set()
        if self._call is not None:
            self._call.cancel()

    async def wait_ended(self, timeout: float) -> None:  # noqa: ASYNC109 - nothing is raised at the end of it
        """Wait for the thread, but not for ever."""
        await asyncio.wait([self._done], timeout=timeout)

    # In the poll thread.

    def _poll(self) -> None:
        try:
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            before = time.monotonic()
            while not self._stop.is_set() and self._error is None:
                message = self._consumer.poll(_POLL_S)
                if message is not None:
                    self._judge(message)
                # Any question wakes librdkafka's main thread, which else sleeps up to 1 s and sends heartbeats as late.
                self._consumer.assignment()
                now = time.monotonic()
                self._watch_loop(now - before)
                before = now
        except KafkaException as error:
            self._fail(MembershipFailed(f"{self._topic}: {kafka_error(error).str()}"))
        except RuntimeError as error:  # The loop was closed without leaving: leave for it.
            self._fail(error)
        finally:
            try:
                self._give_all_up()
                self._close()
            finally:
                self._report_end()

    def _give_all_up(self) -> None:
        """Call _on_revoke or _on_lost for what is still assigned, while the client works as usual.

        Within ``close`` an unassignment was seen to wait for ever, and it holds the interpreter's lock
        (confluentinc/librdkafka#4884, #4041).
        """
        try:
            self._consumer.unsubscribe()
            left_s = CLOSE_S
            while left_s > 0:
                if not self._consumer.assignment():
                    return
                asked_at = time.monotonic()
                self._consumer.poll(_POLL_S)
                # The poll that calls the listener takes as long as the draining: that is not held against the client.
                left_s -= min(time.monotonic() - asked_at, _POLL_S)
            LOGGER.warning("group membership: the client does not give up its partitions; it is closed with them")
        except (KafkaException, RuntimeError) as error:
            LOGGER.warning("group membership: %s", error)

    def _close(self) -> None:
        """Leave the group.

        Not for ever, once nothing is ours any more: who waits on would be killed, and the group gives up a silent
        member anyway.
        """
        leaving = threading.Thread(target=self._consumer.close, name="runfold-kafka-leaving", daemon=True)
        leaving.start()
        busy_at = time.monotonic()
        while leaving.is_alive():
            leaving.join(_POLL_S)
            if self._call is not None:
                busy_at = time.monotonic()
            elif time.monotonic() - busy_at > CLOSE_S:
                LOGGER.warning("group membership: the client does not leave; the group notices after the session")
                return

    def _judge(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return
        if error.code() in _HARMLESS or (error.retriable() and not error.fatal()):
            LOGGER.warning("group membership: %s", error.str())
        else:
            self._fail(MembershipFailed(f"{self._topic}: {error.str()}"))

    def _watch_loop(self, elapsed: float) -> None:
        """Leave when the event loop stands still; a time in which this process slept is not held against it."""
        if self._ticked == self._asked:
            self._stalled_s = 0.0
            self._asked += 1
            self._loop.call_soon_threadsafe(self._tick, self._asked)
        self._stalled_s += min(elapsed, _STEP_S)
        if self._stalled_s > self._times.stall_s:
            self._abandoned = True
            self._fail(MembershipFailed(f"the event loop has not turned for {self._times.stall_s} s"))

    def _tick(self, asked: int) -> None:
        self._ticked = asked

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(self._assign, consumer, partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(self._give_up, consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(self._lose, consumer, partitions)

    def _guard(
        self,
        act: Callable[[Consumer, list[TopicPartition]], None],
        consumer: Consumer,
        partitions: list[TopicPartition],
    ) -> None:
        """Let nothing escape into librdkafka: it would stay assigned in a half-made state."""
        try:
            act(consumer, partitions)
        except _Abandoned:
            LOGGER.info("group membership: abandoned")
        except BaseException as error:  # noqa: BLE001 - kept, and raised by ``run``
            self._fail(error)

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The end is a position that always exists, so nothing can be out of range before the pause takes hold.
        consumer.incremental_assign([TopicPartition(at.topic, at.partition, OFFSET_END) for at in partitions])
        if partitions:
            consumer.pause(partitions)
        self._tell(self._listener.assigned, partitions)

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            if partitions:
                # They stay ours, and their runs go on, for as long as nobody could be assigned them anyway.
                if self._error is None:
                    self._stop.wait(self._notice_s)
                self._tell(self._listener.revoked, partitions)
        finally:
            consumer.incremental_unassign(partitions)

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            if partitions:
                self._tell(self._listener.lost, partitions)
        finally:
            consumer.incremental_unassign(partitions)

    def _tell(
        self, method: Callable[[Sequence[int]], Coroutine[Any, Any, None]], partitions: list[TopicPartition]
    ) -> None:
        if self._abandoned or self._error is not None:
            raise _Abandoned
        numbers = sorted(at.partition for at in partitions)
        self._call = asyncio.run_coroutine_threadsafe(method(numbers), self._loop)
        try:
            self._call.result(self._times.listener_s)
        except concurrent.futures.CancelledError:
            raise _Abandoned from None
        except TimeoutError:
            if self._call.done():  # The listener's own time-out, not ours.
                raise
            self._call.cancel()
            message = f"the listener's {method.__name__}({numbers}) took longer than {self._times.listener_s} s"
            raise MembershipFailed(message) from None
        finally:
            self._call = None

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error

    def _report_end(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:
            LOGGER.warning("group membership: the event loop was closed before the member had left")

    def _end(self) -> None:
        if self._error is not None:
            self._done.set_exception(self._error)
        else:
            self._done.set_result(None)
