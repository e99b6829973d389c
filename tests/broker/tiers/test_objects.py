"""The forms of the objects: members that inflate alone, the table of members, and the manifest."""

import gzip
import zlib
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.tiers.errors import ObjectDamaged
from broker.tiers.index_object import decode_index_object, encode_index_object
from broker.tiers.manifest import (
    FORMAT,
    Manifest,
    NamedSegment,
    NamedState,
    NamedTopic,
    decode_manifest,
    encode_manifest,
)
from broker.tiers.members import MEMBER_BYTES, inflate_member, pack_members
from broker.tiers.object_names import lines_object, manifest_number, manifest_object, segment_stem


def pieces(data: bytes) -> Iterator[bytes]:
    return (data[at : at + MEMBER_BYTES] for at in range(0, len(data), MEMBER_BYTES))


@given(st.integers(0, 3 * MEMBER_BYTES), st.integers(0, 1 << 32))
def test_each_member_inflates_alone_and_every_reader_of_gzip_reads_the_whole(size: int, seed: int) -> None:
    data = Random(seed).randbytes(size // 2) + b"x" * (size - size // 2)
    packed = pack_members(pieces(data))
    assert gzip.decompress(packed.data) == data
    starts = [0, *packed.ends]
    members = [packed.data[start:end] for start, end in zip(starts, packed.ends, strict=False)]
    assert [inflate_member(member) for member in members] == list(pieces(data))
    assert pack_members(pieces(data)) == packed


def test_a_damaged_cut_or_too_long_member_is_refused() -> None:
    member = pack_members([b"hello world\n" * 1000]).data
    for at in range(0, len(member), 7):
        damaged = bytearray(member)
        damaged[at] ^= 0x10
        try:
            assert inflate_member(bytes(damaged)) == b"hello world\n" * 1000
        except ObjectDamaged:
            continue
        # Only the header's flags, time and system may differ without a consequence.
        assert at < 10
    for wrong in (b"", member[:-1], member[: len(member) // 2], member + b"x", member + member):
        with pytest.raises(ObjectDamaged):
            inflate_member(wrong)
    bomb = zlib.compressobj(9, wbits=31)
    with pytest.raises(ObjectDamaged):
        inflate_member(bomb.compress(bytes(100 << 20)) + bomb.flush())


@given(st.binary(max_size=500), st.lists(st.integers(0, 1 << 60), max_size=40))
def test_the_object_of_an_index_gives_back_its_parts(index: bytes, ends: list[int]) -> None:
    assert decode_index_object(encode_index_object(index, ends)) == (index, ends)


def test_every_changed_or_missing_byte_of_an_index_object_is_noticed() -> None:
    data = encode_index_object(b"i" * 100, [7, 9])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(ObjectDamaged):
            decode_index_object(bytes(changed))
        with pytest.raises(ObjectDamaged):
            decode_index_object(data[:at])


SEGMENT = NamedSegment(0, 10, 500, 1, 2, segment_stem(0, 10, 0xAB), 100, 1, 2, 3, 4)
MANIFEST = Manifest(
    FORMAT,
    42,
    "w" * 22,
    3,
    "1.0",
    1_800_000_000_000,
    NamedState("c/state/x", 5, 6, 7),
    {"orders": NamedTopic(10, "age=none", [SEGMENT])},
)


def test_a_manifest_is_read_as_it_was_written_and_every_changed_byte_is_noticed() -> None:
    data = encode_manifest(MANIFEST)
    assert decode_manifest(data, "m") == MANIFEST
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(ObjectDamaged):
            decode_manifest(bytes(changed), "m")
        with pytest.raises(ObjectDamaged):
            decode_manifest(data[:at], "m")


def test_a_manifest_of_a_later_format_names_the_remedy() -> None:
    later = encode_manifest(Manifest(FORMAT + 1, 1, "w", 1, "9", 0, None, {}))
    with pytest.raises(ObjectDamaged, match="written by a later release"):
        decode_manifest(later, "m")


def test_names_sort_as_their_numbers_do_and_other_names_are_not_manifests() -> None:
    assert manifest_object("c", 9) < manifest_object("c", 10) < manifest_object("c", 10**15)
    assert manifest_number(manifest_object("c", 42)) == 42
    for name in ("c/manifest/42.json", "c/manifest/x.json", f"c/manifest/{42:020d}.json#1", f"c/manifest/{42:020d}"):
        assert manifest_number(name) is None
    assert lines_object("c", "t", SEGMENT.name).endswith(f"/{0:020d}-{10:020d}-000000ab.jsonl.gz")
