"""``describe``, ``schema`` and ``comment``: what a topic is for, what its events must be, and what was remarked."""

import sys
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.json import JSON

from broker.cli.connection import command_config
from broker.cli.display import printable, time_text
from broker.cli.report import Report, answer
from broker.errors import StartError
from broker.program import Name
from broker.sync_client import SyncClient

__all__ = ["Comment", "Describe", "Schema"]


def _line(text: str) -> str:
    if not text.strip() or "\n" in text or "\r" in text:
        raise ValueError("one line of text")
    return text.strip()


Line = Annotated[str, AfterValidator(_line)]


class Describe(Report):
    """Say what a topic is for, or show all that documents it."""

    model_config = command_config("describe")

    topic: CliPositionalArg[Name] = Field(description="the topic")
    text: CliPositionalArg[Line | None] = Field(None, description="what it is for (default: show what is there)")

    def ask(self, client: SyncClient) -> Any:
        """Set the description where there is one, and ask for the documents."""
        if self.text is not None:
            client.command(f"describe {self.topic} {self.text}")
        return answer(client.command(f"describe {self.topic}"), 3)

    def show(self, found: Any, console: Console) -> None:
        """Show the description, the schema and the comments."""
        console.print(printable(found.get("description", "no description")), soft_wrap=True)
        _show_schema(found.get("schema"), console)
        for one in found.get("comments", ()):
            console.print(f"{time_text(one['at'])} {one['client']}: {printable(one['text'])}", soft_wrap=True)


class Schema(Report):
    """Show the JSON Schema that a topic's events must meet, or set another one."""

    model_config = command_config("schema")

    topic: CliPositionalArg[Name] = Field(description="the topic")
    set_: Path | None = Field(None, alias="set", description="file with the schema, draft 2020-12 (-: stdin)")
    none: bool = Field(False, description="take the schema away")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.none and self.set_ is not None:
            raise ValueError("--set and --none exclude each other")
        return self

    def ask(self, client: SyncClient) -> Any:
        """Set or remove the schema where that was asked for, and ask for the one there is (None for none)."""
        if self.none or self.set_ is not None:
            client.command(f"schema {self.topic} {self._text()}")
        text = client.command(f"schema {self.topic}").split(" ", 3)[3]
        return None if text == "none" else msgspec.json.decode(text)

    def show(self, found: Any, console: Console) -> None:
        """Show the schema."""
        _show_schema(found, console)

    def _text(self) -> str:
        """Return the schema as the one line that a command is."""
        if self.set_ is None:
            return "none"
        try:
            text = sys.stdin.buffer.read() if str(self.set_) == "-" else self.set_.read_bytes()
            return msgspec.json.format(text, indent=-1).decode()
        except OSError as error:
            raise StartError(f"cannot read the schema from {self.set_}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StartError(f"cannot read the schema from {self.set_}: {error}") from error


class Comment(Report):
    """Add a remark to a topic."""

    model_config = command_config("comment")

    topic: CliPositionalArg[Name] = Field(description="the topic")
    text: CliPositionalArg[Line] = Field(description="the remark, one line")

    def ask(self, client: SyncClient) -> Any:
        """Add the remark."""
        client.command(f"comment {self.topic} {self.text}")
        return {"topic": self.topic, "text": self.text}

    def show(self, found: Any, console: Console) -> None:
        """Say that it is there."""
        console.print(f"{found['topic']} has one comment more")


def _show_schema(schema: Any, console: Console) -> None:
    if schema is None:
        console.print("no schema")
    else:
        console.print(JSON(msgspec.json.encode(schema).decode(), ensure_ascii=True))
