"""Wikimedia's recent changes: an edit is a tweet of title and comment, and its editor is the user.

Canary events are notices. An editor has the same name on all wikis, so the name is the id. The id of a change is its event's
UUID.
"""

import re
from typing import Any

from sse_ingest.found import Found, Notice, Rejected, Tweet, User
from sse_ingest.shapes.entities import hashtags_of
from sse_ingest.shapes.values import date, decode, identifier, text_or_none

__all__ = ["unwrap"]

_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_MENTION = re.compile(r"\[\[(?:[Uu]ser|Special:Contributions)[:/]([^\]|#]+)")
_LANGUAGE = re.compile(r"([a-z]{2,3})(?:-[a-z-]+)?\.(?!wikimedia)")


def unwrap(event: str, data: bytes, origin: str) -> list[Found]:
    """Return the change as a tweet; `origin` is the prefix of its ids."""
    if event != "message":
        return [Notice(event)]
    try:
        change = decode(data)
    except (ValueError, RecursionError) as error:
        return [Rejected(f"not JSON: {error}")]
    if not isinstance(change, dict) or not isinstance(change.get("meta"), dict):
        return [Rejected("not a recent change: there is no meta")]
    if change["meta"].get("domain") == "canary":
        return [Notice("canary")]
    return [_tweet(change, change["meta"], origin)]


def _tweet(change: dict[str, Any], meta: dict[str, Any], origin: str) -> Tweet | Rejected:
    change_id = identifier(meta.get("id"))
    if change_id is None:
        return Rejected("a change without an id")
    editor = text_or_none(change.get("user"))
    if editor is None:
        return Rejected("a change without a user")
    title, comment = text_or_none(change.get("title")), text_or_none(change.get("comment")) or ""
    language = _LANGUAGE.match(str(change.get("server_name")))
    return Tweet(
        id=f"{origin}:{change_id}",
        text=": ".join(part for part in (title, comment) if part),
        user=_user(editor, change, origin),
        lang=language[1] if language else None,
        created_at=date(meta.get("dt")),
        # A link to a section of a page, [[#History]], is not a hashtag.
        hashtags=hashtags_of(_LINK.sub(" ", comment)),
        mentions=list(dict.fromkeys(_MENTION.findall(comment))),
        urls=[meta["uri"]] if text_or_none(meta.get("uri")) else [],
    )


def _user(editor: str, change: dict[str, Any], origin: str) -> User:
    server = text_or_none(change.get("server_name"))
    return User(
        id=f"{origin}:{editor}"[:200],
        screen_name=editor,
        name=editor,
        is_bot=change.get("bot") is True,
        profile={"url": f"https://{server}/wiki/User:{editor.replace(' ', '_')}" if server else None},
    )
