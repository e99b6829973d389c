"""The async client's commands about marks."""

from collections.abc import Iterable

from tweetwire.client.aio.link import AsyncLink
from tweetwire.protocol import mark_replies, mark_requests
from tweetwire.protocol.confirmation import Confirmation
from tweetwire.protocol.mark_replies import MarkInfo
from tweetwire.protocol.mark_requests import After

__all__ = ["AsyncMarks"]


class AsyncMarks:
    """The part of `Client` that reports, with marks, how far another system has the events of a topic.

    It is a base class, so that a user calls these commands as methods of the client. The client sets the attributes.
    """

    _link: AsyncLink

    async def mark(
        self,
        topic: str,
        name: str,
        offset: int,
        *,
        excepted: Iterable[int] = (),
        checkpoint: str | None = None,
        log: str | None = None,
    ) -> int:
        """Report that another system has every event of a topic below an offset.

        Returns once this is on the broker's disk.

        Args:
            topic: The topic.
            name: Name of the mark, which is made if it does not exist.
            offset: The offset. A mark that is already further stays where it is.
            excepted: Offsets below `offset` whose events the other system does not have. Offsets below the mark's
                previous offset are ignored.
            checkpoint: One word to store with the mark, of at most 4,096 bytes. None keeps the mark's checkpoint.
            log: The id that the topic's log must have, from `topics` or `stats`. It changes when a topic is dropped and made
                again. None allows any log.

        Returns:
            The offset of the mark.

        Raises:
            Refusal: For example, the log ends before `offset`, or the mark belongs to another user.
            ValueError: `checkpoint` is not one word, or an exception is not below `offset`.
        """
        lines = mark_requests.mark_lines(topic, name, offset, excepted, checkpoint, log=log)
        return [mark_replies.marked_at(await self._link.ask(line)) for line in lines][-1]

    async def unmark(self, topic: str, name: str) -> None:
        """Forget a mark, so that retention no longer waits for it. Raises Refusal."""
        await self._link.ask(mark_requests.unmark_line(topic, name))

    async def marks(self, topic: str) -> list[MarkInfo]:
        """Return the marks of a topic, in the order of their names. Raises Refusal."""
        return mark_replies.marks_answer(await self._link.ask(mark_requests.marks_line(topic)))

    async def confirm(self, topic: str, *, after: After | None = None, within_s: float | None = None) -> Confirmation:
        """Set which marks must pass an event of a topic before it is confirmed as ``replicated``, for administrators.

        Args:
            topic: The topic.
            after: The marks: one name, or several. An empty list means none. None leaves the setting as it is.
            within_s: Time after which an event is confirmed with a lesser promise, in seconds. None leaves it as it is.

        Returns:
            The setting, once it is on the broker's disk.

        Raises:
            Refusal: For example, the topic does not exist.
            ValueError: A name is not one word.
        """
        line = mark_requests.confirm_line(topic, after, within_s)
        return mark_replies.confirmation_answer(await self._link.ask(line))
