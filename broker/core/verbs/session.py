"""The commands of a session: its name, help, ping, and its end."""

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.verbs.handler import Handlers
from broker.core.verbs.subscribing import Subscribing
from tweetwire.protocol.verbs import help_text
from tweetwire.protocol.verbs import session as commands

__all__ = ["SessionVerbs"]


class SessionVerbs:
    """Answers the commands that need no topic."""

    def __init__(self, desk: Desk, subscribing: Subscribing) -> None:
        self._desk = desk
        self._subscribing = subscribing
        self.handlers: Handlers = {
            commands.Hello: self.hello,
            commands.Help: self.help,
            commands.Ping: self.ping,
            commands.Quit: self.quit,
        }

    def hello(self, session: Session, command: commands.Hello, now_ms: int) -> None:
        """Name the client, and attach it to its former subscriptions if it asks for that."""
        session.name, session.is_quiet, session.is_named = command.name, command.is_quiet, True
        self._desk.reply(session, f"+OK hello {command.name}")
        if command.is_resuming:
            self._subscribing.resume_attached(session, now_ms)

    def help(self, session: Session, command: commands.Help, now_ms: int) -> None:
        """Reply with the usage of a command, or with the list of commands."""
        self._desk.reply(session, f"+OK {help_text(command.verb)}")

    def ping(self, session: Session, command: commands.Ping, now_ms: int) -> None:
        """Answer a ping."""
        self._desk.reply(session, "+PONG")

    def quit(self, session: Session, command: commands.Quit, now_ms: int) -> None:
        """Return the events that the connection has in flight, and let it end."""
        self._subscribing.leave_all(session, now_ms, is_failure=False)
        self._desk.reply(session, "+OK bye")
        session.is_leaving = True
