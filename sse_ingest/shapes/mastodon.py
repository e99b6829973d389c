"""Mastodon's streaming API: a status is a tweet, a boost a retweet, its account the user.

Ids count within one instance, so they are written ``<instance>:<id>``.
"""

import re
from html import unescape
from typing import Any

from sse_ingest.found import Found, Kind, Notice, Tweet, Unusable, User
from sse_ingest.shapes.values import count, date, decode, identifier, json_text, text_or_none, texts

__all__ = ["text_of_html", "unwrap"]

_STATUS_EVENTS = ("update", "status.update")
_BREAK = re.compile(r"<br\s*/?>|</p>\s*<p[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_PROFILE_COUNTS = {"friends_count": "following_count", "statuses_count": "statuses_count"}


def unwrap(event: str, data: bytes, origin: str) -> list[Found]:
    """Return what the event holds; `origin` is the instance. Events other than statuses are notices, whatever their data."""
    if event not in _STATUS_EVENTS:
        return [Notice(event)]
    try:
        status = decode(data)
    except (ValueError, RecursionError) as error:
        return [Unusable(f"no JSON: {error}")]
    if not isinstance(status, dict):
        return [Unusable(f"no status: a JSON {type(status).__name__}")]
    found: list[Found] = [_tweet(status, origin)]
    if isinstance(status.get("reblog"), dict):
        inner = _tweet(status["reblog"], origin)
        if isinstance(inner, Unusable):
            inner.raw = json_text(status["reblog"])
        found.append(inner)
    return found


def text_of_html(html: str) -> str:
    """Return what a reader of the HTML sees: paragraphs and breaks as newlines, no tags, no entities."""
    return unescape(_TAG.sub("", _BREAK.sub("\n", html))).strip()


def _tweet(status: dict[str, Any], origin: str) -> Tweet | Unusable:
    status_id = identifier(status.get("id"))
    if status_id is None:
        return Unusable("a status without an id")
    user = _user(status.get("account"), origin)
    if user is None:
        return Unusable("a status without an account")
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
