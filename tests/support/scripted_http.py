"""An HTTP server that only follows a script for each connection, even if a correct server would do something else."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Self

__all__ = ["OK", "Peer", "ScriptedServer", "chunk", "response"]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def response(status: str, *headers: str, body: bytes = b"") -> bytes:
    """A whole response that ends with its connection."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


class Peer:
    """One connection, after its request has been read."""

    def __init__(self, sock: socket.socket, request: str, released: threading.Event) -> None:
        self.headers = dict(line.lower().split(": ", 1) for line in request.splitlines()[1:] if ": " in line)
        self.path = request.split(" ")[1]
        self._socket = sock
        self._released = released

    def send(self, *pieces: bytes) -> None:
        """Send each piece separately."""
        for piece in pieces:
            self._socket.sendall(piece)

    def reset(self) -> None:
        """Close with RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def hang(self) -> None:
        """Send nothing until the server ends."""
        self._released.wait(30)


Step = Callable[[Peer], None]


class ScriptedServer:
    """Runs `steps`, one for each connection. Further connections get 204. `peers` are the connections so far."""

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None) -> None:
        self.peers: list[Peer] = []
        self._steps = list(steps)
        self._tls = tls
        self._released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def url(self, path: str = "/stream", scheme: str = "http") -> str:
        """The address of `path`."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with accepted:
                try:
                    self._play(accepted)
                except OSError:
                    continue

    def _play(self, accepted: socket.socket) -> None:
        accepted.settimeout(60)
        sock = self._tls.wrap_socket(accepted, server_side=True) if self._tls else accepted
        request = b""
        while b"\r\n\r\n" not in request:
            if not (received := sock.recv(4096)):
                return
            request += received
        peer = Peer(sock, request.decode(), self._released)
        self.peers.append(peer)
        step = self._steps.pop(0) if self._steps else lambda peer: peer.send(response("204 No Content"))
        step(peer)
        if sock is not accepted:
            # Close without the closing handshake of TLS, like a server that dies.
            socket.close(sock.detach())
