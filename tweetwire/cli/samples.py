"""Draw random values that match a JSON Schema (draft 2020-12).

The schema is first brought into its canonical form, which combines constraints that apply to the same value. A value is
then built from these constraints, so that its length is right and no required member is missing. Some constraints remain
open in that form, such as several patterns at once or a `not`. So each value is checked, and `Samples` gives up after
`TRIES` values that do not match.
"""

import random
import re
import string
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import rstr
from jsonschema_rs import CanonicalSchema, Draft202012Validator, canonical, canonicalize

from tweetwire.protocol.errors import StartError

__all__ = ["Samples"]

TRIES: Final = 200
DEPTH_MAX: Final = 6
"""Below this depth, values have no optional members and items, so that a recursive schema gives a finite value."""
SPAN: Final = 100
LIKELIHOOD: Final = 0.7
PEOPLE: Final = ("ann", "bob", "eve", "kim", "lee", "max", "zoe")
_DEEP: Final = (canonical.ObjectView, canonical.ArrayView, canonical.ReferenceView)
WORDS: Final = ("amber", "breeze", "cedar", "delta", "ember", "fjord", "grove", "harbour", "island", "juniper")


class Samples:
    """Draws values that match `schema`. The same `seed` gives the same values.

    Raises StartError if it is clear from the schema that no value matches it.
    """

    def __init__(self, schema: Any, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311 — samples are not secret
        self._strings = rstr.Rstr(self._random)
        self._validator = Draft202012Validator(schema, offline=True)
        # The specification treats a format as an annotation only, but samples that follow it are more useful.
        self._root = canonicalize(schema, offline=True, validate_formats=True)
        if self._root.satisfiability() == canonical.Satisfiability.NO:
            raise StartError("no value can match the topic's schema; correct the schema")

    def draw(self) -> Any:
        """Return one value. Raises StartError after `TRIES` values that do not match."""
        for _ in range(TRIES):
            value = self._value(self._root, 0)
            if self._validator.is_valid(value):
                return value
        raise StartError("found no value that matches the topic's schema; this command cannot make samples for it")

    def _value(self, schema: CanonicalSchema, depth: int) -> Any:  # noqa: PLR0911 — one for each kind of schema
        match schema.view():
            case canonical.ConstView(value):
                return value
            case canonical.EnumView(values):
                return self._random.choice(values)
            case canonical.StringView() as view:
                return self._string(view)
            case canonical.IntegerView() | canonical.NumberView() as view:
                return self._number(view)
            case canonical.ArrayView() as view:
                return self._array(view, depth)
            case canonical.ObjectView() as view:
                return self._object(view, depth)
            case canonical.TypedGroupView(_, body):
                return self._value(body, depth)
            case canonical.AnyOfView(branches) | canonical.OneOfView(branches):
                return self._value(self._branch(branches, depth), depth)
            case canonical.AllOfView(branches):
                return self._value(branches[0], depth)
            case canonical.ReferenceView(uri):
                target = self._root.definition(uri)
                return None if target is None else self._value(target, depth + 1)
            case canonical.MultiTypeView(types):
                return self._plain(self._random.choice(types))
            case _:
                return self._plain(self._random.choice(("string", "integer", "boolean", "null")))

    def _branch(self, branches: list[CanonicalSchema], depth: int) -> CanonicalSchema:
        """Return a random branch; below `DEPTH_MAX`, one without nested values if there is one."""
        shallow = [one for one in branches if not isinstance(one.view(), _DEEP)]
        return self._random.choice(shallow if depth > DEPTH_MAX and shallow else branches)

    def _plain(self, type_name: str) -> Any:
        return {
            "string": self._random.choice(WORDS),
            "integer": self._random.randint(0, SPAN),
            "number": round(self._random.uniform(0, SPAN), 2),
            "boolean": self._random.random() < 0.5,
            "array": [],
            "object": {},
        }.get(type_name)

    def _string(self, view: canonical.StringView) -> str:
        least, most = view.min_length or 0, view.max_length
        if view.patterns:
            return self._strings.xeger(self._random.choice(view.patterns))
        if view.formats and (text := self._format(view.formats[0])):
            return text
        text = " ".join(self._random.choices(WORDS, k=self._random.randint(1, 3)))
        while len(text) < least:
            text += f" {self._random.choice(WORDS)}"
        return text if most is None else text[:most]

    def _format(self, name: str) -> str | None:
        """Return a string of the format `name`, or None if this function does not know the format."""
        chance = self._random
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(365 * 86400))
        host = f"{chance.choice(WORDS)}.example.com"
        return {
            "date-time": moment.isoformat().replace("+00:00", "Z"),
            "date": moment.date().isoformat(),
            "time": f"{moment.time().isoformat()}Z",
            "email": f"{chance.choice(PEOPLE)}@{host}",
            "hostname": host,
            "ipv4": f"192.0.2.{chance.randrange(256)}",
            "ipv6": f"2001:db8::{chance.randrange(1, 1 << 16):x}",
            "uri": f"https://{host}/{chance.choice(WORDS)}",
            "uuid": "-".join(self._strings.rstr(string.hexdigits[:16], length) for length in (8, 4, 4, 4, 12)),
        }.get(name)

    def _number(self, view: canonical.IntegerView | canonical.NumberView) -> int | float:
        is_whole = isinstance(view, canonical.IntegerView)
        least, most = view.minimum, view.maximum
        low = float(least) if least is not None else (0.0 if most is None or most >= 0 else float(most) - SPAN)
        high = float(most) if most is not None else low + SPAN
        step = float(max(view.multiple_of, default=1 if is_whole else 0))
        if step:
            first, last = -(-low // step), high // step
            value = step * (first if last < first else self._random.randint(int(first), int(last)))
            return round(value) if is_whole or value.is_integer() else value
        return round(value, 2) if low <= round(value := self._random.uniform(low, high), 2) <= high else value

    def _array(self, view: canonical.ArrayView, depth: int) -> list[Any]:
        least, most = view.min_items or 0, view.max_items
        prefix = [self._value(one, depth + 1) for one in view.prefix_items[:most]]
        needed = [
            self._value(one.schema, depth + 1)
            for one in view.contains
            for _ in range(1 if one.min_contains is None else one.min_contains)
        ]
        items = [*prefix, *needed]
        wanted = max(least, 0 if depth > DEPTH_MAX else self._random.randint(0, 3))
        for _ in range(TRIES):
            if len(items) >= (wanted if most is None else min(wanted, most)):
                break
            value = self._plain("string") if view.items is None else self._value(view.items, depth + 1)
            if view.distinctness != canonical.Distinctness.ALL_DISTINCT or value not in items:
                items.append(value)
        return items

    def _object(self, view: canonical.ObjectView, depth: int) -> dict[str, Any]:
        wanted = set(view.required)
        if depth <= DEPTH_MAX and view.max_properties is None:
            wanted |= {name for name in view.properties if self._random.random() < LIKELIHOOD}
        made = {name: self._value(one, depth + 1) for name, one in view.properties.items() if name in wanted}
        made |= {name: self._undeclared(name, view, depth) for name in view.required if name not in made}
        for name in self._more_names(view, (view.min_properties or 0) - len(made)):
            made[name] = self._undeclared(name, view, depth)
        return made

    def _more_names(self, view: canonical.ObjectView, missing: int) -> list[str]:
        """Return `missing` invented names, for a schema that requires more members than it names."""
        if view.property_names is not None:
            return [str(self._value(view.property_names, DEPTH_MAX + 1)) for _ in range(missing)]
        if view.pattern_properties:
            return [self._strings.xeger(next(iter(view.pattern_properties))) for _ in range(missing)]
        return [self._strings.rstr(string.ascii_lowercase, 6) for _ in range(missing)]

    def _undeclared(self, name: str, view: canonical.ObjectView, depth: int) -> Any:
        matching = [one for pattern, one in view.pattern_properties.items() if re.search(pattern, name)]
        schema = next(iter(matching), view.additional_properties)
        return self._plain("string") if schema is None else self._value(schema, depth + 1)
