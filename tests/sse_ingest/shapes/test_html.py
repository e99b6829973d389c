"""The text of HTML is the text that a reader sees, and no HTML takes long to parse."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.shapes.html import HTML_CHARACTERS_MAX, TAGS_MAX, HtmlTooLarge, text_of_html


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain &lt;text&gt; &amp; more", "plain <text> & more"),
        ("<p>it&#39;s <b>cool</b></p><p>#a<br>b</p>", "it's cool\n#a\nb"),
        ('one<br class="x">two<br/>three', "one\ntwo\nthree"),
        ("<div>one<div>two</div>three</div>four", "one\ntwo\nthree\nfour"),
        ("<ul><li>one</li><li>two</ul>three", "one\ntwo\nthree"),
        ("<blockquote>one</blockquote>two", "one\ntwo"),
        ("<table><tr><td>one<td>two<tr><td>three</table>", "one\ntwo\nthree"),
        ('<a href="x" title="a > b">li<span>nk</span></a>', "link"),
        ("<!-- no --><script>no()</script>yes<style>no</style>", "yes"),
        ("3 < 4 << 5 &lt; 6", "3 < 4 << 5 < 6"),
        ("<p>5 < 6</p>", "5 < 6"),
        ("&#" + "1" * 5000 + ";", "\ufffd"),
        ("", ""),
        ("<", "<"),
        ("<p", ""),
    ],
)
def test_the_text_of_html(html: str, text: str) -> None:
    assert text_of_html(html) == text


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "unit", ["<", "< ", "<a ", "<a b=", "<a b='", "<!--", "<?", "</", "<div>", "<a><div>", "<b><i><p>", "x&"]
)
def test_html_that_slows_parsers_down_takes_no_time_or_is_refused(unit: str) -> None:
    for length in (TAGS_MAX, 250_000):
        with suppress(HtmlTooLarge):
            text_of_html((unit * length)[:length])


def test_many_signs_that_begin_no_tag_are_text() -> None:
    assert text_of_html("<" * 250_000) == "<" * 250_000


def test_html_of_a_size_that_no_status_has_is_refused() -> None:
    with pytest.raises(HtmlTooLarge):
        text_of_html("<p>" + "x" * HTML_CHARACTERS_MAX)


TAGS = [
    "<p>",
    "</p>",
    "<svg>",
    "<title>",
    "<template>",
    "<script>",
    "</script>",
    "<table>",
    "<td>",
    "<li>",
    "<br>",
    "<b>",
    "x",
]


@given(
    st.lists(
        st.sampled_from([*TAGS, "</title>", "</svg>", "<select>", "<option>", "&lt;", "<!--", "-->", "<"]), max_size=25
    )
)
def test_a_text_is_found_however_tags_are_nested(parts: list[str]) -> None:
    assert "<p>" not in text_of_html("".join(parts)) or "<script>" in parts or "&lt;" in parts
