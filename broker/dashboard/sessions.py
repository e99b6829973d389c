"""Who looks: nobody in particular where the broker has no users, else those who signed in with a name and a token.

The browser holds a random word in a cookie that no script can read; what it stands for, the link to the broker in
somebody's name, stays in this process' memory, and so does the token, inside the link.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup

from broker.dashboard.link import Link, State
from broker.dashboard.settings import DashboardSettings
from broker.errors import Refusal
from broker.protocol import check_name

__all__ = ["COOKIE", "SESSION_S", "Sessions", "SignInRefused"]

COOKIE: Final = "tweetwire_session"
SESSION_S: Final = 12 * 3600
SESSIONS_MAX: Final = 100
FAILED_PAUSE_S: Final = 1.0
SETTLED_S: Final = 15.0


class SignInRefused(Exception):
    """Somebody is not let in; the text is for them."""


class Sessions:
    """The links of all who look, each run by `tasks`."""

    def __init__(self, settings: DashboardSettings, tasks: TaskGroup) -> None:
        self.open = Link(settings.broker, user="dashboard", token=None, tls=settings.tls_context())
        self._settings = settings
        self._tasks = tasks
        self._links: dict[str, tuple[float, Link]] = {}
        # Few at a time, each failure slow: a token cannot be found by trying.
        self._turnstile = anyio.CapacityLimiter(2)
        tasks.start_soon(self.open.run)

    def link_of(self, cookies: Mapping[str, str]) -> Link | None:
        """Return the link for one who comes with these cookies, None for one who has to sign in first."""
        self._drop_old()
        _, link = self._links.get(cookies.get(COOKIE, ""), (0.0, None))
        if link is not None and link.state is not State.REFUSED:
            return link
        return None if self.open.state is State.REFUSED else self.open

    async def sign_in(self, user: str, token: str) -> str:
        """Return the word for the cookie of one whom the broker knows. Raises SignInRefused."""
        async with self._turnstile:
            link = self._new_link(user, token)
            self._tasks.start_soon(link.run)
            with anyio.move_on_after(SETTLED_S):
                await link.settled()
            if link.state is State.THERE:
                return self._keep(link)
            was = link.state
            link.close()
            await anyio.sleep(FAILED_PAUSE_S)
        raise SignInRefused("no such name and token" if was is State.REFUSED else "the broker does not answer")

    def sign_out(self, cookies: Mapping[str, str]) -> None:
        """End a session and its link."""
        _, link = self._links.pop(cookies.get(COOKIE, ""), (0.0, None))
        if link is not None:
            link.close()

    def _new_link(self, user: str, token: str) -> Link:
        try:
            check_name(user)
        except Refusal as refusal:
            raise SignInRefused("no such name and token") from refusal
        # A token is one word: whatever else is typed here must not become part of the line to the broker.
        if not token or not token.isprintable() or token.split() != [token]:
            raise SignInRefused("no such name and token")
        return Link(self._settings.broker, user=user, token=token, tls=self._settings.tls_context())

    def _keep(self, link: Link) -> str:
        while len(self._links) >= SESSIONS_MAX:
            self._end(next(iter(self._links)))
        word = secrets.token_urlsafe(32)
        self._links[word] = (time.monotonic(), link)
        return word

    def _drop_old(self) -> None:
        oldest = time.monotonic() - SESSION_S
        for word in [word for word, (began, _) in self._links.items() if began < oldest]:
            self._end(word)

    def _end(self, word: str) -> None:
        _, link = self._links.pop(word)
        link.close()
