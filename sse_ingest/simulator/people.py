"""The simulated users: a fixed set for each seed, of which a few write often and have many followers."""

import random
from datetime import UTC, datetime
from typing import Any

from sse_ingest.simulator.dice import dice_of
from sse_ingest.simulator.words import NAMES

__all__ = ["CROWD", "person", "some_person", "twitter_date"]

CROWD = 5000
"""The number of users."""

_ZONES = ("London", "Amsterdam", "Brasilia", "Tokyo", "Eastern Time (US & Canada)", None)


def twitter_date(seconds: float) -> str:
    """Format a Unix time as Twitter does: ``Mon Apr 18 19:30:47 +0000 2016``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %b %d %H:%M:%S +0000 %Y")


def some_person(dice: random.Random) -> int:
    """Return a random user's number; low numbers are far more frequent than high ones."""
    return int(CROWD * dice.random() ** 3)


def person(seed: int, number: int) -> dict[str, Any]:
    """Return the Twitter v1.1 user object of user `number`, equal for each call."""
    dice = dice_of(seed, "person", number)
    first = dice.choice(NAMES)
    handle = f"{first.lower()}_{number:x}{dice.randrange(36)}"
    user_id = 100_000_000 + number * 611_953 + seed % 600_000
    followers = 0 if dice.random() < 0.02 else int(dice.lognormvariate(5.5, 1.6) * (20 if number < CROWD // 50 else 1))
    picture = f"https://pbs.twimg.example/profile_images/{user_id}/{handle}_normal.jpg"
    background = "https://abs.twimg.example/images/themes/theme1/bg.png"
    return {
        "screen_name": handle,
        "follow_request_sent": None,
        "profile_banner_url": f"https://pbs.twimg.example/profile_banners/{user_id}/{dice.randrange(10**10)}",
        "time_zone": dice.choice(_ZONES),
        "profile_use_background_image": True,
        "profile_image_url_https": picture,
        "geo_enabled": dice.random() < 0.4,
        "favourites_count": int(dice.lognormvariate(6, 1.5)),
        "description": dice.choice((None, f"{first}. Opinions are my own.", f"music, {first.lower()} & more ✨")),
        "default_profile_image": False,
        "profile_background_tile": False,
        "url": None,
        "notifications": None,
        "profile_background_color": "C0DEED",
        "name": f"{first} {dice.choice('ABCDEFGHIJKLMNOPQRSTUVWXYZ')}.",
        "created_at": twitter_date(1_230_000_000 + dice.randrange(200_000_000)),
        "profile_background_image_url": background,
        "contributors_enabled": False,
        "location": dice.choice((None, "London", "São Paulo", "大阪", "New York, NY")),
        "listed_count": dice.randrange(40),
        "profile_background_image_url_https": background,
        "lang": dice.choice(("en", "en", "en", "es", "pt", "ja")),
        "is_translator": False,
        "profile_text_color": "333333",
        "statuses_count": int(dice.lognormvariate(8, 1.5)),
        "profile_sidebar_border_color": "FFFFFF",
        "utc_offset": dice.choice((None, 0, 3600, -10800)),
        "verified": number < CROWD // 50 and dice.random() < 0.5,
        "profile_link_color": "0084B4",
        "profile_image_url": picture,
        "id": user_id,
        "profile_sidebar_fill_color": "DDEEF6",
        "default_profile": True,
        "following": None,
        "followers_count": followers,
        "friends_count": int(dice.lognormvariate(5, 1)),
        "id_str": str(user_id),
        "protected": False,
    }
