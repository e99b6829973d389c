"""A listener in place of a broker, for replies that a real broker never sends."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["answering", "scripted_broker"]

WITHIN_S = 30.0


@contextmanager
def scripted_broker(
    answer: Callable[[bytes], bytes | None], *, is_polite: bool = True, clients: int = 1
) -> Iterator[str]:
    """Greet `clients` connections one by one, and reply to each line with the result of `answer`.

    If `answer` returns None, the connection is closed.

    With `is_polite`, ``quit`` is answered without a call of `answer`.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(clients):
                with suppress(OSError):
                    serve_one()

        def serve_one() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(b"+OK tweetwire broker test, type help\n")
                for line in filter(bytes.strip, lines):
                    reply = _own_answer(line, is_polite=is_polite) or answer(line)
                    if reply is None:
                        return
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(WITHIN_S)


def _own_answer(line: bytes, *, is_polite: bool) -> bytes:
    verb, *words = line.split()
    if verb == b"hello":
        return b"+OK hello %b\n" % words[0]
    return b"+OK bye\n" if verb == b"quit" and is_polite else b""


def answering(replies: dict[bytes, bytes | None]) -> Callable[[bytes], bytes | None]:
    """Return a function that answers each line with the reply in `replies` for its first word.

    It answers other lines like a broker that executed them.
    """

    def answer(line: bytes) -> bytes | None:
        verb, *words = line.split()
        if verb in replies:
            return replies[verb]
        usual = {b"pubrec": b"+REL %b %b\n", b"pubcomp": b"+OK comp %b %b\n", b"pub2": b"+REC %b %b\n"}
        return usual.get(verb, b"+COMP %b %b 0 synced\n") % (words[0], words[1])

    return answer
