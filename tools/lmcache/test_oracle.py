"""Tests of the oracle itself: that its classes are LMCache's, and that it reads and writes as they do."""

from __future__ import annotations

import pathlib
import re

import msgspec
import pytest

import oracle
from classes import REAL, STORAGE, Dialect, dialects

PROTOCOL = pathlib.Path(__file__).parents[2] / "protocol"

KNOWN = dialects()

# Where the tags of the golden vectors belong.
DIALECT = {cls.__name__: d for d in reversed(KNOWN.values()) for cls in d.classes}


def vectors() -> list[tuple[str, bytes]]:
    """Read the golden vectors, with their names."""
    text = (PROTOCOL / "vectors" / "vectors.txt").read_text(encoding="utf-8")
    blocks = re.findall(r"^decode (\S+)\n([0-9a-f\n]+)----", text, re.MULTILINE)
    return [(name, bytes.fromhex(digits.replace("\n", ""))) for name, digits in blocks]


def plain(payload: bytes) -> dict[str, object]:
    """Read any message, and leave out what is kvferry's."""
    fields = msgspec.msgpack.decode(payload, type=dict[str, object])
    return {name: value for name, value in fields.items() if not name.startswith("kvf_")}


def readers(name: str, tag: str) -> list[Dialect]:
    """Say who reads a golden vector."""
    if tag in ("AllocRequest", "AllocResponse"):
        return [KNOWN["pd-async" if "async" in name else "pd-sync"]]
    return [d for d in KNOWN.values() if any(c.__name__ == tag for c in d.classes)]


@pytest.mark.parametrize(("name", "payload"), vectors(), ids=lambda v: v if isinstance(v, str) else "")
def test_golden_vectors(name: str, payload: bytes) -> None:
    """LMCache's classes read every golden vector and write the same, but for what is kvferry's."""
    fields = plain(payload)
    tag = str(fields["type"])
    if tag.startswith("Kvf"):
        return  # No class of LMCache's.
    found = readers(name, tag)
    assert found
    for dialect in found:
        if dialect.name == "worker":
            continue  # Their vectors have only what kvferry reads.
        assert msgspec.msgpack.encode(dialect.decode(payload)) == msgspec.msgpack.encode(fields)


def test_classes_are_the_real_ones() -> None:
    """The classes come from files of the wheel, and from nowhere else."""
    for dialect in ("pd-sync", "pd-async", "side", "p2p", "controller", "worker"):
        assert {cls.__module__ for cls in KNOWN[dialect].classes} <= set(REAL)
    ascend = KNOWN["p2p-ascend"].named("AscendBatchedLookupAndGetMsg")
    assert {base.__module__ for base in ascend.__mro__[1:3]} == {STORAGE + "p2p_backend"}


@pytest.mark.parametrize("dialect", KNOWN.values(), ids=KNOWN)
def test_drawn_messages_are_read_again(dialect: Dialect) -> None:
    """What is drawn is what a peer may send: its class reads it, and writes the same."""
    for cls in dialect.classes:
        for number in range(50):
            message = oracle.drawn(dialect, cls.__name__, number, oracle.LIVE)
            payload = msgspec.msgpack.encode(message)
            assert dialect.decode(payload) == message
            if dialect.name == "controller":
                assert oracle.from_json(dialect, oracle.as_json(message)) == message


def test_golden_file() -> None:
    """The kept file is what the classes write."""
    kept = (PROTOCOL / "testdata" / "lmcache.txt").read_text(encoding="utf-8")
    assert kept.splitlines() == list(oracle.golden())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"type": "Nobody", "type": "ErrorMsg", "error": 7, "error": "x"}', None),
        ('{"type": "ErrorMsg", "error": "x", "type": "Nobody"}', "Invalid value 'Nobody'"),
        ('{"type": "ErrorMsg", "error": "x", "later": [1]}', None),
        (
            '{"type": "FullSyncStatusMsg", "instance_id": "", "worker_id": 1.0, "sync_id": ""}',
            "Expected `int`, got `float`",
        ),
        ('{"type": "ErrorMsg", "error": null}', "Expected `str`, got `null`"),
    ],
)
def test_json(text: str, error: str | None) -> None:
    """LMCache's controller reads JSON as docs/protocol.md says."""
    if error is None:
        assert oracle.from_json(KNOWN["controller"], text) == KNOWN["controller"].named("ErrorMsg")(error="x")
        return
    with pytest.raises(msgspec.ValidationError, match=re.escape(error)):
        oracle.from_json(KNOWN["controller"], text)
