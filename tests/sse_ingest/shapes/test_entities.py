"""The hashtags, user names and URLs found in a text agree with Twitter's specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.shapes.entities import CHARACTERS_SEARCHED, entities_of, hashtags_of


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("two #Python #tags, once #Python", ["Python", "tags"]),
        ("only digits #2026 are no tag, #2026now and #_9a are", ["2026now", "_9a"]),
        ("joined#by a letter, &#39; and R&#D", []),
        ("#one#two", []),
        ("(#bracket) and /#slash", ["bracket", "slash"]),
        ("＃全角 #日本語タグ。", ["全角", "日本語タグ"]),
        # Combining marks and joiners belong to the word: Hindi, Persian (ZWNJ), Hebrew (maqaf), Catalan (middle dot).
        (
            "#हिन्दी #می\u200cخواهم #בן\u05beגוריון #col·lecció",
            ["हिन्दी", "می\u200cخواهم", "בן\u05beגוריון", "col·lecció"],
        ),
        ("a keycap #\ufe0f\u20e3 is no tag, ❤\ufe0f#love is", ["love"]),
        ("𐐀 #𐐀𐐁", ["𐐀𐐁"]),
        ("a section of a page: http://example.com/a#history #b", ["b"]),
        ("#http://example.com", []),
    ],
)
def test_hashtags(text: str, tags: list[str]) -> None:
    assert entities_of(text).hashtags == hashtags_of(text) == tags


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@ana and (@ben_2), @ana", ["ana", "ben_2"]),
        ("RT@ana rt:@ben but notRT@carl", ["ana", "ben"]),
        ("の@anaさん", ["ana"]),
        ("＠ana", ["ana"]),
        ("mail@example.com !@a #@b $@c %@d &@e *@f", []),
        ("@anaé and @ana@ben", []),
        ("@http://example.com", []),
        ("a list, @ana/friends, is no person", []),
        ("@abcdefghijklmnopqrstuvwxyz", ["abcdefghijklmnopqrst"]),
    ],
)
def test_mentions(text: str, names: list[str]) -> None:
    assert entities_of(text).mentions == names


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("see http://example.com/a, or https://example.com/b.", ["http://example.com/a", "https://example.com/b"]),
        ("(http://example.com/a_(film)) http://example.com/?q=1!", ["http://example.com/a_(film)", "http://example.com/?q=1"]),
        ("without http: example.com/a example.co.uk", ["example.com/a", "example.co.uk"]),
        ("of registries alone: www.foo.org.za/x a.bd", ["www.foo.org.za/x", "a.bd"]),
        ("no domains: http://localhost/ e.g. i.e. file.txtt http://a.b/c", []),
        ("日本語example.com日本語", ["example.com"]),
        ("http://例え.テスト.com/あ http://✪df.example.com", ["http://例え.テスト.com/", "http://✪df.example.com"]),
        ("http://xn--日本.com http://-a.example.com http://a-.com http://a_b.com", []),
        ("http://a_b.example.com:8080/x", ["http://a_b.example.com:8080/x"]),
        ("ana@example.com #example.com @example.com $example.com -example.com", []),
        ("http://t.co/abc日本 http://t.co/" + "a" * 41, ["http://t.co/abc"]),
        ("http://example.com-and-more", []),
        ("http://example.com....", ["http://example.com"]),
        ("http://" + "a" * 64 + ".com", []),
    ],
)  # fmt: skip
def test_addresses(text: str, addresses: list[str]) -> None:
    assert entities_of(text).urls == addresses


UNITS = [
    "http://",
    "http://a.",
    "http://日.",
    "a.",
    "com.",
    "xn--",
    "#",
    "#1",
    "#a",
    "@",
    "RT@",
    "http://a.com/(",
    "a.com/((",
]


@pytest.mark.parametrize("unit", UNITS)
def test_only_the_beginning_of_a_long_text_is_searched(unit: str) -> None:
    text = unit * (CHARACTERS_SEARCHED // len(unit) + 1)
    assert entities_of(text + " #late @late http://late.com") == entities_of(text)
    assert entities_of("#early " + text * 200).hashtags[0] == "early"


@given(st.lists(st.sampled_from([*UNITS, "example", ".com", "/", "?", "é", "日", "-", "_", " ", ")"]), max_size=12))
def test_each_found_entity_occurs_in_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    found = entities_of(text)
    for item in (*found.hashtags, *found.mentions, *found.urls):
        assert item in text
    assert not any(tag.isdigit() for tag in found.hashtags)
