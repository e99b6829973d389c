"""Limit the cost of a JSON Schema before it is used. The cost is the most work that one byte of an event can cause.

The validator has no time limit, so a schema must not be able to take long. The work is at most *weight* × size of the event.
The weight counts the keywords that can be applied to one place of an event, including those that are reached by references and
combinations.

The analysis treats the schema as an automaton. A state says how often each subschema is applied to a place; the transitions
lead to the members and items of that place. It refuses a schema with a weight above `WEIGHT_MAX`, such as one whose references
double at each level. It also refuses a reference that leads back to itself at the same place.

A unit of weight is about 10 ns for each byte; the constants were measured with the worst events for each keyword.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema_rs import Draft202012Validator, RegexOptions

from tweetwire.protocol.errors import Refusal

__all__ = ["PATTERN_BYTES_MAX", "WEIGHT_MAX", "weight_of"]

WEIGHT_MAX: Final = 10_000
STEPS_MAX: Final = 300_000
"""How many steps the analysis takes before it refuses a schema as too complex."""
PATTERNS_MAX: Final = 100
PATTERN_BYTES_MAX: Final = 1 << 20
"""The largest size of a compiled pattern, in bytes."""
_PATTERN_WEIGHTS: Final = (
    (4 << 10, 20),
    (16 << 10, 100),
    (64 << 10, 400),
    (256 << 10, 1300),
    (PATTERN_BYTES_MAX, 5000),
)
"""The weight of a pattern by its compiled size: for the worst texts, the engine needs time for each byte and state."""
_KEYWORD_WEIGHTS: Final = {"uniqueItems": 20, "const": 20, "enum": 20, "multipleOf": 150}
_UNEVALUATED_FACTOR: Final = 3
"""A factor for ``unevaluated…`` keywords: the validator evaluates the other keywords of the same place again for them."""

_Schema: TypeAlias = dict[str, Any]
_State: TypeAlias = frozenset[tuple[int, int]]
"""How often each subschema, by its number, is applied to one place."""

_ONE: Final = ("not", "if", "then", "else")
_SOME: Final = ("allOf", "anyOf", "oneOf")
_NAMED: Final = ("dependentSchemas", "dependencies")
_EVERY_CHILD: Final = ("items", "contains", "additionalProperties", "unevaluatedItems", "unevaluatedProperties")


def weight_of(schema: Any) -> int:
    """Return a schema's weight, at least 1. Raises Refusal ``bad_arguments`` for a schema that is too complex."""
    return _Analysis(schema).weight() if isinstance(schema, dict) else 1


class _Resources:
    """The targets of a schema's references."""

    def __init__(self, root: _Schema) -> None:
        self._roots: dict[str, _Schema] = {"": root}
        self._anchors: dict[tuple[str, str], _Schema] = {}
        self._dynamic: dict[str, list[_Schema]] = {}
        self._bases: dict[int, str] = {}
        self._note(root, "")

    def _note(self, node: Any, base: str) -> None:
        """Note the identifiers below a node. The search visits all of its parts, also those that are not schemas."""
        left = [(node, base)]
        while left:
            node, base = left.pop()
            if isinstance(node, list):
                left += ((one, base) for one in node)
            if not isinstance(node, dict):
                continue
            if isinstance(node.get("$id"), str):
                base = urldefrag(urljoin(base, node["$id"])).url
                self._roots.setdefault(base, node)
            self._bases[id(node)] = base
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(keyword), str):
                    self._anchors.setdefault((base, node[keyword]), node)
            if isinstance(node.get("$dynamicAnchor"), str):
                self._dynamic.setdefault(node["$dynamicAnchor"], []).append(node)
            left += ((one, base) for one in node.values())

    def targets(self, schema: _Schema) -> Iterator[Any]:
        """Yield the targets of a subschema's references. A dynamic reference may lead to any anchor of its name."""
        if isinstance(ref := schema.get("$ref"), str):
            yield self._resolve(schema, ref)
        if isinstance(ref := schema.get("$dynamicRef"), str):
            anchors = self._dynamic.get(urldefrag(ref).fragment)
            yield from anchors or [self._resolve(schema, ref)]

    def _resolve(self, schema: _Schema, ref: str) -> Any:
        base = self._bases[id(schema)]
        url, fragment = urldefrag(base + ref if ref.startswith("#") else urljoin(base, ref))
        found: Any = self._roots.get(url)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((url, fragment))
        elif fragment:
            for step in unquote(fragment)[1:].split("/"):
                found = _child(found, step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            raise Refusal("bad_arguments", f"the reference {ref[:80]} leads to no place within the schema")
        return found


def _child(node: Any, step: str) -> Any:
    if isinstance(node, list):
        return node[int(step)] if step.isdecimal() and step.isascii() and int(step[:6]) < len(node) else None
    return node.get(step) if isinstance(node, dict) else None


class _Analysis:
    """The analysis of one schema. It counts its steps, so that a large schema cannot make it long."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self._resources = _Resources(root)
        self._schemas: dict[int, _Schema] = {}
        self._applied: dict[int, Counter[int] | None] = {}
        self._weights: dict[int, int] = {}
        self._pattern_weights: dict[str, int] = {}
        self._steps = 0

    def weight(self) -> int:
        """Return the weight: the most work at any place of an event."""
        first = self._state(Counter({self._number(self._root): 1}))
        seen, left, heaviest = {first}, [first], 1
        while left:
            state = left.pop()
            weight = sum(count * self._own_weight(number) for number, count in state)
            heaviest = max(heaviest, weight)
            if heaviest > WEIGHT_MAX:
                raise _too_involved("too much of it applies to one place of an event")
            for applied in self._children(state):
                after = self._state(applied)
                if after not in seen:
                    seen.add(after)
                    left.append(after)
        return heaviest

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > STEPS_MAX:
            raise _too_involved("there are too many ways through it")

    def _number(self, schema: _Schema) -> int:
        self._schemas[id(schema)] = schema
        return id(schema)

    def _state(self, applied: Mapping[int, int]) -> _State:
        """Return the state of a place: the subschemas `applied` there, and all that they refer to or combine."""
        total: Counter[int] = Counter()
        for number, count in applied.items():
            for one, times in self._all_applied(number).items():
                total[one] += count * times
            self._step(len(self._all_applied(number)))
        if sum(total.values()) > WEIGHT_MAX:
            raise _too_involved("its references and combinations apply too much to one place of an event")
        return frozenset(total.items())

    def _all_applied(self, number: int) -> Counter[int]:
        known = self._applied.get(number)
        if known is not None:
            return known
        if number in self._applied:
            raise Refusal(
                "bad_arguments", "a reference of the schema leads back to itself at the same place of an event"
            )
        self._applied[number] = None
        schema = self._schemas[number]
        is_again = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        factor = _UNEVALUATED_FACTOR if is_again else 1
        applied = Counter({number: 1})
        for other in self._beside(schema):
            if isinstance(other, dict):
                below = self._all_applied(self._number(other))
                self._step(len(below))
                for one, times in below.items():
                    applied[one] += factor * times
        if sum(applied.values()) > WEIGHT_MAX:
            raise _too_involved("its references and combinations apply too much to one place of an event")
        self._applied[number] = applied
        return applied

    def _beside(self, schema: _Schema) -> Iterator[Any]:
        """Yield the subschemas that are applied to the same place."""
        yield from self._resources.targets(schema)
        yield from (schema[keyword] for keyword in _ONE if keyword in schema)
        for keyword in _SOME:
            yield from _list(schema.get(keyword))
        for keyword in _NAMED:
            yield from _dict(schema.get(keyword)).values()

    def _children(self, state: _State) -> Iterator[Counter[int]]:
        """Yield the subschemas for each kind of member or item of a place: for each name or number, and for the others."""
        always: Counter[int] = Counter()
        named: dict[str, Counter[int]] = {}
        for number, count in state:
            schema = self._schemas[number]
            self._step(1 + len(schema))
            # One name may match all patterns. A schema for the remaining members is counted for each member.
            common = [
                *(schema.get(keyword) for keyword in _EVERY_CHILD),
                *_dict(schema.get("patternProperties")).values(),
            ]
            for child in common:
                self._add(always, child, count)
            self._add(named.setdefault(" names", Counter()), schema.get("propertyNames"), count)
            for name, child in _dict(schema.get("properties")).items():
                self._step()
                self._add(named.setdefault(f".{name}", Counter()), child, count)
            for position, child in enumerate(_list(schema.get("prefixItems"))):
                self._step()
                self._add(named.setdefault(f"[{position}", Counter()), child, count)
        yield always
        for applied in named.values():
            self._step(1 + len(always))
            yield applied + always

    def _add(self, applied: Counter[int], child: Any, count: int) -> None:
        if isinstance(child, dict):
            applied[self._number(child)] += count

    def _own_weight(self, number: int) -> int:
        """Return the cost of a subschema at a place, without the subschemas that it leads to."""
        known = self._weights.get(number)
        if known is None:
            schema = self._schemas[number]
            lists = (value for value in schema.values() if isinstance(value, (list, dict)))
            known = 1 + len(schema) + sum(len(value) // 4 for value in lists)
            known += len(_dict(schema.get("dependentSchemas"))) + len(_dict(schema.get("dependencies")))
            known += sum(weight for keyword, weight in _KEYWORD_WEIGHTS.items() if keyword in schema)
            patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
            known += sum(self._pattern_weight(one) for one in (*patterns, *_dict(schema.get("patternProperties"))))
            self._weights[number] = known
        return known

    def _pattern_weight(self, pattern: str) -> int:
        if pattern not in self._pattern_weights:
            if len(self._pattern_weights) >= PATTERNS_MAX:
                raise _too_involved(f"it has more than {PATTERNS_MAX} patterns")
            self._pattern_weights[pattern] = _pattern_weight(pattern)
        return self._pattern_weights[pattern]


def _pattern_weight(pattern: str) -> int:
    """Return the weight of a pattern by its compiled size. Raises Refusal for a pattern that the linear engine cannot run."""
    for size, weight in _PATTERN_WEIGHTS:
        options = RegexOptions(size_limit=size, dfa_size_limit=PATTERN_BYTES_MAX)
        try:
            Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
        except ValueError:
            continue
        return weight
    raise Refusal(
        "bad_arguments",
        f"the pattern {pattern[:80]} cannot be used: patterns have no lookaround and no back references, and are at most"
        f" {PATTERN_BYTES_MAX >> 10} KiB when compiled; instead of a large repetition, use maxLength",
    )


def _too_involved(why: str) -> Refusal:
    return Refusal("bad_arguments", f"the schema could take too long to check: {why}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
