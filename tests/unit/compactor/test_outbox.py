"""What the outside is told, and the copies of dead inputs: at least once, complete, and never of a void record."""

from dataclasses import replace

from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.core.events import Cause, Settlement
from runfold.core.payload import BlobRef, Inline
from runfold.ports.blobs import BlobsUnavailable
from runfold.ports.publisher import Published
from tests.unit.compactor.world import World, until


async def test_a_dead_record_of_an_epoch_that_is_over_is_not_copied(world: World) -> None:
    """Interleaving 5: the owner that judged the approval too early is dead; the next one accepts it."""
    world.broker.append(world.topics.approvals, 0, b"run", b"{}")
    run = world.gated("run")
    early = world.epoch
    world.claim("other")
    run.epoch, new = world.epoch, world.epoch
    world.epoch = early
    world.settle(0, Settlement.DEAD, "not_open")
    world.epoch = new
    known = len(run.events)
    run.do(replace(run.next.resume("run:2", "approved"), cause=Cause(world.topics.approvals, 0, 0)))
    world.write(run, known)
    await world.compact()
    assert world.published(world.topics.dead) == []
    assert world.row.positions.is_settled(world.topics.approvals, 0)


async def test_a_dead_input_that_retention_deleted_leaves_a_record_that_says_so(world: World) -> None:
    world.broker.append(world.topics.approvals, 0, b"run", b"{}")
    world.broker.delete_before(world.topics.approvals, 0, 1)
    world.settle(0, Settlement.DEAD, "not_open")
    await world.compact()
    [dead] = world.published(world.topics.dead)
    assert (dead.key, dead.value) == (b"run", None)
    assert dict(dead.headers)["original"] == b"deleted by retention before it could be copied"


class _Crashing(MemoryPublisher):
    """Dies after the acknowledgement of a notification, before the commit, as often as it is told."""

    crashes = 1

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Publish, then die."""
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        if self.crashes:
            self.crashes -= 1
            message = "killed between publish and commit"
            raise RuntimeError(message)
        return published


async def test_a_crash_between_publish_and_commit_repeats_the_notification_with_its_id(world: World) -> None:
    world.gated("run")
    async with world.compacting(_Crashing(world.broker)) as status:
        await until(lambda: status.commits > 0)
    first, second = world.notifications()
    assert first == second
    assert (first["id"], first["type"], first["approval_id"]) == ("run:3", "wait_opened", "run:2")
    assert first["arguments"] == {"title": "x"}
    assert len(await world.store.waits()) == 1


async def test_a_notification_shows_arguments_that_lie_in_the_object_store(world: World) -> None:
    run = world.begin("run")
    run.turn("g")
    large = await world.blobs.put(b'{"body":"' + b"x" * 70_000 + b'"}')
    gate = run.next.gate("g")
    run.do(replace(gate, arguments=large, arguments_digest=large.digest))
    world.write(run, 1)
    await world.compact()
    [notification] = world.notifications()
    assert notification["arguments"] == {"body": "x" * 70_000}


async def test_an_object_store_that_is_away_delays_a_notification_and_its_commit(world: World) -> None:
    run = world.begin("run")
    run.turn("g")
    large = await world.blobs.put(b'"' + b"x" * 70_000 + b'"')
    run.do(replace(run.next.gate("g"), arguments=large, arguments_digest=large.digest))
    world.write(run, 1)

    class Away(MemoryBlobs):
        async def get(self, ref: BlobRef) -> bytes:
            message = f"nobody answers about {ref.sha256}"
            raise BlobsUnavailable(message)

    there, world.blobs = world.blobs, Away()
    compactor = world.compactor()
    await compactor.assigned([0])
    [status] = compactor.status()
    await until(lambda: status.failures > 0)
    assert world.database.partitions == {}
    await compactor.close()
    world.blobs = there
    await world.compact()
    [notification] = world.notifications()
    assert notification["arguments"] == "x" * 70_000


async def test_a_blob_that_is_gone_is_shown_as_where_it_should_lie(world: World) -> None:
    run = world.begin("run")
    run.turn("g")
    gone = BlobRef("ab" * 32, 70_000)
    run.do(replace(run.next.gate("g"), arguments=gone, arguments_digest=gone.digest))
    world.write(run, 1)
    await world.compact()
    [notification] = world.notifications()
    assert notification["arguments"] == {"$blob": gone.sha256, "size": 70_000}


async def test_a_notification_that_does_not_fit_is_shortened(world: World) -> None:
    run = world.begin("run")
    run.turn("g")
    large = Inline(b'"' + b"x" * 900_000 + b'"')
    gate = run.next.gate("g")
    run.do(replace(gate, arguments=large, arguments_digest=large.digest))
    world.write(run, 1)
    await world.compact()
    [notification] = world.notifications()
    assert notification["arguments"] == {"$omitted": large.digest, "size": 900_002}
    assert notification["message"] == "please look"


async def test_a_dead_input_that_does_not_fit_leaves_a_record_that_says_so(world: World) -> None:
    world.broker.append(world.topics.approvals, 0, b"run", b"x" * 1_250_000)
    world.settle(0, Settlement.DEAD, "too_large")
    await world.compact()
    [dead] = world.published(world.topics.dead)
    assert (dead.key, dead.value) == (b"run", None)
    assert dict(dead.headers)["original"].startswith(b"left where it is: ")
