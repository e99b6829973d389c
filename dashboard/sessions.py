"""The visitors: anonymous if the broker has no users, else users who signed in with a name and a token.

The browser holds a random word in a cookie that no script can read. The word stands for a link to the broker in the name of
the user. The link and the token inside it stay in the memory of this process.
"""

import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup

from dashboard.link import DashboardLink, LinkState
from dashboard.settings import DashboardSettings
from tweetwire.client.addresses import address_group
from tweetwire.client.aio.opening import say_hello
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.requests import hello_line

__all__ = ["COOKIE", "SESSION_S", "Sessions", "SignInRefused"]

COOKIE: Final = "tweetwire_session"
SESSION_S: Final = 12 * 3600
SESSIONS_MAX: Final = 100
SIGN_INS_MAX: Final = 100
FAILED_PAUSE_S: Final = 1.0
SETTLED_S: Final = 15.0


Why = Literal["unknown", "away", "busy"]


class SignInRefused(Exception):
    """A sign-in is refused; `why` names the sentence that the page shows."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why: Why = why


class _Attempts:
    """The sign-ins that wait for the broker, limited in number.

    A new sign-in never waits for others. If there are too many, the address that has the most loses its oldest one.
    """

    def __init__(self) -> None:
        self._waiting: dict[anyio.CancelScope, str] = {}

    def begin(self, address: str) -> anyio.CancelScope:
        """Return the scope for a sign-in to wait in. It is cancelled if the sign-in is given up. Call `end` after it."""
        if len(self._waiting) >= SIGN_INS_MAX:
            ((most, _),) = Counter(self._waiting.values()).most_common(1)
            oldest = next(scope for scope, of in self._waiting.items() if of == most)
            del self._waiting[oldest]
            oldest.cancel()
        scope = anyio.CancelScope()
        self._waiting[scope] = address
        return scope

    def end(self, scope: anyio.CancelScope) -> None:
        self._waiting.pop(scope, None)


class Sessions:
    """The links of all visitors, each run by `tasks`."""

    def __init__(self, settings: DashboardSettings, tasks: TaskGroup) -> None:
        self.open = DashboardLink(settings.broker, user="dashboard", token=None, tls=settings.tls_context())
        self._settings = settings
        self._tasks = tasks
        self._links: dict[str, tuple[float, DashboardLink]] = {}
        self._attempts = _Attempts()
        tasks.start_soon(self.open.run)

    def link_of(self, cookies: Mapping[str, str]) -> DashboardLink | None:
        """Return the link for a visitor with these cookies, None if the visitor must sign in first."""
        self._drop_old()
        _, link = self._links.get(cookies.get(COOKIE, ""), (0.0, None))
        if link is not None and link.state is not LinkState.REFUSED:
            return link
        return None if self.open.state is LinkState.REFUSED else self.open

    async def sign_in(self, user: str, token: str, address: str) -> str:
        """Sign in a user, and return the word for the cookie.

        The broker limits how often tokens can be tried: it delays the next check of a name after wrong tokens.

        Args:
            user: the user's name.
            token: the user's token.
            address: the address of the browser.

        Raises:
            SignInRefused: the broker does not know the user and token, does not answer, or is busy.
        """
        link = self._new_link(user, token)
        try:
            await self._identify(user, token, address_group(address))
        except SignInRefused as refusal:
            if refusal.why == "unknown":
                await anyio.sleep(FAILED_PAUSE_S)
            raise
        self._tasks.start_soon(link.run)
        with anyio.move_on_after(SETTLED_S):
            await link.settled()
        if link.state is not LinkState.THERE:
            link.close()
            raise SignInRefused("unknown" if link.state is LinkState.REFUSED else "away")
        return self._keep(link)

    async def _identify(self, user: str, token: str, address: str) -> None:
        """Let the broker check a token once, because a link would retry forever. Raises SignInRefused."""
        attempt = self._attempts.begin(address)
        try:
            with attempt, anyio.move_on_after(SETTLED_S):
                await say_hello(self._settings.broker, hello_line(user, token), self._settings.tls_context())
                return
        except Refusal as refusal:
            raise SignInRefused("busy" if refusal.is_retryable else "unknown") from refusal
        except BrokerError as error:
            raise SignInRefused("away") from error
        finally:
            self._attempts.end(attempt)
        raise SignInRefused("busy" if attempt.cancel_called else "away")

    def sign_out(self, cookies: Mapping[str, str]) -> None:
        """End a session and its link."""
        _, link = self._links.pop(cookies.get(COOKIE, ""), (0.0, None))
        if link is not None:
            link.close()

    def _new_link(self, user: str, token: str) -> DashboardLink:
        try:
            check_name(user)
        except Refusal as refusal:
            raise SignInRefused("unknown") from refusal
        # A token is one word; any other text must not become part of the line to the broker.
        if not token or not token.isprintable() or token.split() != [token]:
            raise SignInRefused("unknown")
        return DashboardLink(self._settings.broker, user=user, token=token, tls=self._settings.tls_context())

    def _keep(self, link: DashboardLink) -> str:
        """Store a link, and return the word for its cookie; at the limit, the oldest session of the same user is ended."""
        while len(self._links) >= SESSIONS_MAX:
            of_user = (word for word, (_, other) in self._links.items() if other.user == link.user)
            self._end(next(of_user, next(iter(self._links))))
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
