"""Mastodon's streaming API: a status is a tweet, a boost is a retweet, and the account is the user.

Ids are unique within one instance only, so they are written as ``<instance>:<id>``. A recording may also contain messages of
the WebSocket API, ``{"event": "update", "payload": "<the event's data>"}``; these are read as the events that they contain.
"""

from typing import Any

from sse_ingest.found import Found, Kind, Notice, Rejected, Tweet, User
from sse_ingest.shapes.html import HtmlTooLarge, text_of_html
from sse_ingest.shapes.values import count, date, decode, identifier, json_text, text_or_none, texts

__all__ = ["unwrap"]

_STATUS_EVENTS = ("update", "status.update")
_PROFILE_COUNTS = {"friends_count": "following_count", "statuses_count": "statuses_count"}


def unwrap(event: str, data: bytes, origin: str) -> list[Found]:
    """Return the contents of an event of the instance `origin`.

    Events that are not statuses are notices, whatever their data is.
    """
    if event not in _STATUS_EVENTS:
        return [Notice(event)]
    try:
        status = decode(data)
    except (ValueError, RecursionError) as error:
        return [Rejected(f"not JSON: {error}")]
    if not isinstance(status, dict):
        return [Rejected(f"not a status: a JSON {type(status).__name__}")]
    carried, payload = status.get("event"), status.get("payload")
    if isinstance(carried, str) and isinstance(payload, str):
        return unwrap(carried, payload.encode("utf-8", "replace"), origin)
    found: list[Found] = [_tweet(status, origin)]
    if isinstance(status.get("reblog"), dict):
        inner = _tweet(status["reblog"], origin)
        if isinstance(inner, Rejected):
            inner.raw = json_text(status["reblog"])
        found.append(inner)
    return found


def _tweet(status: dict[str, Any], origin: str) -> Tweet | Rejected:
    try:
        return _tweet_or_too_large(status, origin)
    except HtmlTooLarge as error:
        return Rejected(f"a status that is too large: {error}")


def _tweet_or_too_large(status: dict[str, Any], origin: str) -> Tweet | Rejected:
    status_id = identifier(status.get("id"))
    if status_id is None:
        return Rejected("a status without an id")
    user = _user(status.get("account"), origin)
    if user is None:
        return Rejected("a status without an account")
    boosted = status.get("reblog") if isinstance(status.get("reblog"), dict) else None
    shown = boosted or status
    content = shown.get("content")
    text = text_of_html(content) if isinstance(content, str) else ""
    kind = _kind(status)
    if boosted is not None and isinstance(boosted.get("account"), dict):
        text = f"RT @{boosted['account'].get('acct')}: {text}"
    return Tweet(
        id=f"{origin}:{status_id}",
        text=text,
        user=user,
        lang=text_or_none(shown.get("language")),
        created_at=date(status.get("created_at")),
        hashtags=texts(shown.get("tags"), "name"),
        mentions=texts(shown.get("mentions"), "acct", "username"),
        urls=texts([shown.get("card")], "url"),
        kind=kind,
        retweet_of=f"{origin}:{boosted.get('id')}" if boosted is not None else None,
        favorite_count=count(status.get("favourites_count")),
        retweet_count=count(status.get("reblogs_count")),
    )


def _kind(status: dict[str, Any]) -> Kind:
    if isinstance(status.get("reblog"), dict):
        return "retweet"
    if isinstance(status.get("quote"), dict):
        return "quote"
    return "reply" if status.get("in_reply_to_id") else "original"


def _user(account: Any, origin: str) -> User | None:
    if not isinstance(account, dict):
        return None
    account_id = identifier(account.get("id"))
    if account_id is None:
        return None
    note = account.get("note")
    profile: dict[str, Any] = {
        "description": text_of_html(note) if isinstance(note, str) and note else None,
        "url": text_or_none(account.get("url")),
        "created_at": date(account.get("created_at")),
        "protected": account.get("locked") is True,
        "profile_image_url": text_or_none(account.get("avatar_static")),
    }
    profile.update((member, count(account.get(theirs))) for member, theirs in _PROFILE_COUNTS.items())
    return User(
        id=f"{origin}:{account_id}",
        screen_name=text_or_none(account.get("acct")) or account_id,
        name=text_or_none(account.get("display_name")) or "",
        followers_count=count(account.get("followers_count")),
        is_bot=account.get("bot") is True,
        profile=profile,
    )
