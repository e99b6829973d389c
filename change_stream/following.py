"""Follow a change stream for as long as it takes: through outages, past changes that are too large, and past failing stages."""

from collections.abc import AsyncGenerator

import anyio

from change_stream.elements import member_of
from change_stream.errors import ChangeUnreadable, OversizeChange, WatchInterrupted
from change_stream.outage import Outage
from change_stream.resume import StreamPosition
from change_stream.watch import ChangeBatch, CollectionWatch

__all__ = ["closed", "follow", "opened"]


async def closed(watch: CollectionWatch) -> None:
    """Close a stream within a second, even when cancelled."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(1):
        await watch.close()


async def opened(watch: CollectionWatch, position: StreamPosition | None, outage: Outage) -> ChangeBatch:
    """Open a stream, retrying while MongoDB is unreachable. Raises HistoryLost and WatchRefused."""
    return await outage.outlast(lambda: watch.open(position))


async def follow(watch: CollectionWatch, position: StreamPosition, outage: Outage) -> AsyncGenerator[ChangeBatch, None]:
    """Yield the batches after `position` forever; a stream that is interrupted or ends is opened again.

    Raises HistoryLost and WatchRefused.
    """
    obstacle: OversizeChange | ChangeUnreadable | None = None
    while True:
        try:
            if obstacle is not None:
                pass_by = _past_oversize if isinstance(obstacle, OversizeChange) else _past_unreadable
                async for batch in pass_by(watch, position):
                    position = batch.position
                    yield batch
                obstacle = None
            if not watch.is_open:
                await watch.open(position)
            batch = await watch.more()
            # End the outage only here, not after opening: there must also be a pause if a stream opens and then fails at once.
            outage.end()
            position = batch.position
            yield batch
        except (OversizeChange, ChangeUnreadable) as error:
            obstacle = error
        except WatchInterrupted as interruption:
            await watch.close()
            await outage.pause(interruption)


async def _past_oversize(watch: CollectionWatch, position: StreamPosition) -> AsyncGenerator[ChangeBatch, None]:
    """Yield changes one by one, up to and including the first oversize change, whose documents are removed.

    A batch fails as a whole, so the changes before the large one can only be read one at a time.
    """
    await watch.open(position)
    for _ in range(watch.batch_size):
        if not watch.is_open:
            return
        try:
            batch = await watch.more(1)
        except OversizeChange:
            yield await watch.stripped(position)
            return
        position = batch.position
        yield batch


async def _past_unreadable(watch: CollectionWatch, position: StreamPosition) -> AsyncGenerator[ChangeBatch, None]:
    """Yield changes one by one, up to and including the first one for which the user's stages fail, as it was before them.

    The stages may filter changes out before one of them fails, so a failure alone does not show which change it is about. Each
    change after the last good one is read without the stages, and then the stages see only this change.
    """
    await watch.open(position)
    try:
        for _ in range(watch.batch_size):
            if not watch.is_open:
                return
            batch = await watch.more(1)
            position = batch.position
            yield batch
            if not batch.changes:
                return
    except ChangeUnreadable:
        pass
    while True:
        await watch.open_bare(position)
        bare = await watch.more(1)
        if not bare.changes:
            # The failing change is not found again, or the server has ended the stream.
            await watch.close()
            return
        (change,) = bare.changes
        after = StreamPosition.behind(dict(member_of(change, "_id")))
        try:
            changes = await watch.only(change)
        except ChangeUnreadable as error:
            await watch.close()
            yield ChangeBatch([change], after, bare.size, str(error))
            return
        position = after
        yield ChangeBatch(changes, after, bare.size)
