"""The open connections, and the subscriptions that named clients were attached to, for ``hello … resume``."""

from collections.abc import Iterator

from broker.core.access import Access
from broker.core.session import Session
from broker.core.work import Work
from broker.journal.records import ClientRecord

__all__ = ["Sessions"]


class Sessions:
    """The sessions by number, and the durable subscriptions (topic, subscription, prefetch) by client name."""

    def __init__(self, work: Work) -> None:
        self.by_number: dict[int, Session] = {}
        self._work = work
        self._attached: dict[str, list[tuple[str, str, int]]] = {}
        self._connections = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(self.by_number.values())

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, peer: str, access: Access, name: str | None) -> Session:
        """Return a new session. Without a name, it is named by its number."""
        self._connections += 1
        session = Session(self._connections, peer, access)
        session.name = name or session.name
        self.by_number[session.number] = session
        return session

    def remove(self, session: Session) -> None:
        """Forget a session that has ended."""
        del self.by_number[session.number]

    def attached(self, client: str) -> list[tuple[str, str, int]]:
        """Return the subscriptions that a named client was last attached to."""
        return self._attached.get(client, [])

    def attached_to(self, topic: str, name: str) -> Iterator[str]:
        """Yield the named clients that were attached to a subscription."""
        for client, attached in self._attached.items():
            if any(one[:2] == (topic, name) for one in attached):
                yield client

    def note_attached(self, session: Session) -> None:
        """Keep a record of the subscriptions that a named client is attached to."""
        if session.is_named and self.attached(session.name) != session.attached:
            self._attached[session.name] = session.attached
            self._work.keep(ClientRecord(session.name, session.attached))

    def forget_topic(self, topic: str) -> None:
        """Forget that clients were attached to a dropped topic. The record of the drop implies this."""
        for client, attached in self._attached.items():
            if any(one[0] == topic for one in attached):
                self._attached[client] = [one for one in attached if one[0] != topic]

    def records(self) -> Iterator[ClientRecord]:
        """Yield the records that the journal must keep."""
        for client, attached in self._attached.items():
            yield ClientRecord(client, attached)

    def restore_attached(self, record: ClientRecord) -> None:
        """Restore the subscriptions of a named client. A later record replaces an earlier one."""
        self._attached[record.client] = record.attached
