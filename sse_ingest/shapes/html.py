"""Convert HTML to the text that a reader sees.

The HTML is written by users of other servers. It is parsed by lexbor (`selectolax`), whose time grows with the length of the
text; the standard library's parser takes minutes for some texts of 100 KB. Lexbor too is slow for very deep nesting, so the
number of tags is limited.
"""

import re

from selectolax.lexbor import LexborHTMLParser

from sse_ingest.shapes.values import unescaped

__all__ = ["HTML_CHARACTERS_MAX", "TAGS_MAX", "HtmlTooLarge", "text_of_html"]

HTML_CHARACTERS_MAX = 1 << 20
TAGS_MAX = 5000
"""The most tags of a text. A status of 100,000 characters, which few instances allow, has a few hundred."""

_UNSEEN = frozenset({"script", "style", "template", "title"})
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "br", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav",
    "ol", "option", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_TAG_START = re.compile(r"<[A-Za-z/!?]")
_LINE_ENDS = re.compile(r"[^\S\n]*\n\s*")


class HtmlTooLarge(ValueError):
    """The HTML is larger than any server allows its users to write."""


def text_of_html(html: str) -> str:
    """Return the text without tags and entities; each block, list item, table cell and break begins a new line.

    Raises:
        HtmlTooLarge: the HTML has too many characters or tags.
    """
    if "<" not in html:
        return unescaped(html).strip()
    if len(html) > HTML_CHARACTERS_MAX or sum(1 for _ in _TAG_START.finditer(html)) > TAGS_MAX:
        raise HtmlTooLarge(f"its HTML has more than {HTML_CHARACTERS_MAX} characters or {TAGS_MAX} tags")
    body = LexborHTMLParser(html).body
    if body is None:
        return ""
    # Visit the nodes in reverse order, so that a node inside a removed element is visited before the removal.
    for node in reversed(list(body.traverse())):
        if node.tag in _BLOCKS:
            node.insert_before("\n")
            node.insert_after("\n")
        elif node.tag in _UNSEEN:
            node.decompose()
    return _LINE_ENDS.sub("\n", body.text()).strip()
