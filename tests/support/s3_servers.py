"""A real server that speaks S3, versitygw, as a process that keeps its port and its data over a kill."""

import os
import socket
from pathlib import Path
from typing import Final

from bench.engine_files import find_engine_program
from demo.ports import free_port
from tests.support.needed import needed_engine
from tests.support.processes import START_S
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["BUCKET", "S3Server", "find_s3_server"]

BUCKET: Final = "bucket"
KEY: Final = "test-key"
SECRET: Final = "test-secret"


def find_s3_server() -> str:
    """Return the path of the server. Without it, the test is skipped, or fails where the engines are required."""
    sentence = "there is no versitygw, which the tests of tiers need; `make engines` installs it (needs Go)"
    return needed_engine(find_engine_program("versitygw"), sentence)


class S3Server(ProgramProcess):
    """A server with one empty bucket. A bucket is a folder in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "s3"
        (self.folder / BUCKET).mkdir(parents=True)
        self.port = free_port()
        super().__init__(
            [find_s3_server(), "--port", f"127.0.0.1:{self.port}", "posix", str(self.folder)],
            folder / "s3.log",
            environment={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
            find_address=self._answers,
            start_within_s=START_S,
        )

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which a client reaches the server."""
        return self.variables_at(self.port)

    @staticmethod
    def variables_at(port: int) -> dict[str, str]:
        """Return the variables for a client that reaches the server through another port."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def _answers(self) -> str | None:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5):
                return f"127.0.0.1:{self.port}"
        except OSError:
            return None
