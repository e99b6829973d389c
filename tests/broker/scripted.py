"""A listener in a broker's place, for what a real one cannot be made to say."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["answering", "scripted_broker"]

WITHIN_S = 30.0


@contextmanager
def scripted_broker(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """Greet one client, and say to each of its lines what `answer` returns, which may be nothing; None hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as lines:
                    connection.sendall(b"+OK tweetwire broker test, type help\n")
                    for line in filter(bytes.strip, lines):
                        reply = b"+OK hello\n" if line.startswith(b"hello ") else answer(line)
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


def answering(replies: dict[bytes, bytes | None]) -> Callable[[bytes], bytes | None]:
    """Answer by the first word of a line; ``+OK`` to any other."""
    return lambda line: replies.get(line.split()[0], b"+OK\n")
