"""The options of ``format("tweetwire")``, parsed once from Spark's strings."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from spark.connector.errors import OptionError
from spark.connector.progress import WatermarkLimits
from spark.connector.totals import TOTALS
from tweetwire.protocol.units import parse_seconds
from tweetwire.runtime.login import Login
from tweetwire.runtime.tls import TlsFiles

__all__ = ["ReadOptions", "WriteOptions", "broker_options", "parse_start"]

Start = Literal["earliest", "latest"] | int | datetime


class ReadOptions(Struct, frozen=True):
    """The options of a reader. `limits` is None without a watermark; `retry_s` is how long to wait for a lost broker."""

    broker: Login
    topics: tuple[str, ...]
    start: Start
    rows_max: int
    is_paced: bool
    ranges_max: int
    fail_on_data_loss: bool
    retry_s: float
    limits: WatermarkLimits | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Parse the options of a reader. Raises OptionError."""
        return cls(
            broker=_login(options),
            topics=_topics(options),
            start=parse_start(options.get("from", "earliest")),
            rows_max=_positive(options, "maxRecordsPerTrigger", 100_000),
            is_paced=_is(options, "paced", "false"),
            ranges_max=_positive(options, "ranges", os.cpu_count() or 1),
            fail_on_data_loss=_is(options, "failOnDataLoss", "true"),
            retry_s=_milliseconds(options, "retry", "60s") / 1000,
            limits=_limits(options) if "watermark" in options else None,
        )


class WriteOptions(Struct, frozen=True):
    """The options of a writer. `producer` is None if the query's id is the producer's name.

    `totals` is None, or the name of the statistic whose windows the rows are. Then each event also carries the sums of
    all windows up to its own.
    """

    broker: Login
    topic: str
    producer: str | None
    retry_s: float
    totals: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Parse the options of a writer. Raises OptionError."""
        return cls(
            broker=_login(options),
            topic=_needed(options, "topic"),
            producer=options.get("producer"),
            retry_s=_milliseconds(options, "retry", "60s") / 1000,
            totals=_statistic(options),
        )


def broker_options(login: Login) -> dict[str, str]:
    """Return the options with which a reader or a writer logs in."""
    options = {"broker": login.address, "user": login.user, "token": login.token}
    if login.tls is not None:
        # Send absolute paths, because a worker runs in another folder.
        files = {"tlsCa": login.tls.ca, "tlsCert": login.tls.cert, "tlsKey": login.tls.key}
        options |= {"tls": "true"} | {name: str(file.absolute()) for name, file in files.items() if file is not None}
    return {name: value for name, value in options.items() if value is not None}


def parse_start(text: str) -> Start:
    """Parse the start of reading: ``earliest``, ``latest``, an offset, or a time such as ``2026-11-27T20:00:00Z``.

    Raises OptionError.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"from={text}: write earliest, latest, an offset, or a time like 2026-11-27T20:00:00Z"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    text = _needed(options, "topic")
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"topic={text}: write the name of a topic, or several separated by commas")
    return names


def _login(options: Mapping[str, str]) -> Login:
    address = _needed(options, "broker")
    try:
        return Login(address, options.get("user") or None, options.get("token") or None, _tls(options))
    except ValueError as error:
        raise OptionError(f"user, token: {error}") from None


def _tls(options: Mapping[str, str]) -> TlsFiles | None:
    ca, cert, key = (Path(name) if (name := options.get(f"tls{one}")) else None for one in ("Ca", "Cert", "Key"))
    is_wanted = bool(options.get("tls")) and _is(options, "tls", "false")
    return TlsFiles.wanted(tls=is_wanted, ca=ca, cert=cert, key=key)


def _limits(options: Mapping[str, str]) -> WatermarkLimits:
    return WatermarkLimits(
        delay_ms=_milliseconds(options, "watermark", "500ms"),
        idle_ms=_milliseconds(options, "idle", "5s"),
        tick_ms=_milliseconds(options, "window", "10s"),
        every_ms=_milliseconds(options, "every", "0s"),
        tells_early=_is(options, "early", "false"),
    )


def _statistic(options: Mapping[str, str]) -> str | None:
    name = options.get("totals")
    if name is not None and name not in TOTALS:
        raise OptionError(f"totals={name}: write {' or '.join(TOTALS)}")
    return name


def _needed(options: Mapping[str, str], name: str) -> str:
    value = options.get(name, "").strip()
    if not value:
        raise OptionError(f'format("tweetwire") needs the option {name}')
    return value


def _is(options: Mapping[str, str], name: str, default: str) -> bool:
    text = options.get(name, default).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name}={text}: write true or false")
    return text == "true"


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"{name}={text}: write a whole number from 1 on")
    return int(text)


def _milliseconds(options: Mapping[str, str], name: str, default: str) -> int:
    try:
        return round(parse_seconds(options.get(name, default)) * 1000)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
