"""Tests of frames and messages: bytes that Go wrote, and random bytes."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import msgpack
import pytest

from kvferry import messages, operations
from kvferry.frames import FRAME_MAX, FrameError, FrameReader, encode_frame
from kvferry.messages import Answer, Attached, MessageError, Returned, Show
from kvferry.values import Blocks, ProducerPeer

# Written by the Go package protocol, from values that the tests below repeat.
VECTORS = dict(
    line.split() for line in (pathlib.Path(__file__).parent / "testdata" / "messages.txt").read_text().splitlines()
)
LIFE = "6f1c2d3e-4a5b-6c7d-8e9f-001122334455"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_frames_come_in_pieces_of_any_size(size: int) -> None:
    payloads = [b"", b"a", b"bc" * 300, b"d"]
    stream, frames, got = b"".join(encode_frame(p) for p in payloads), FrameReader(), []
    for at in range(0, len(stream), size):
        frames.feed(stream[at : at + size])
        while (payload := frames.next_payload()) is not None:
            got.append(payload)
    assert got == payloads


def test_a_frame_that_is_too_long_is_refused_before_it_comes() -> None:
    frames = FrameReader()
    frames.feed((FRAME_MAX).to_bytes(4, "little"))
    assert frames.next_payload() is None
    frames = FrameReader()
    frames.feed((FRAME_MAX + 1).to_bytes(4, "little"))
    with pytest.raises(FrameError, match=str(FRAME_MAX + 1)):
        frames.next_payload()


def _put() -> bytes:
    entries = {
        "target": 297, "keys": ["k0", "k1"], "request": "r", "host": "127.0.0.1", "init_port": 7300,
        "alloc_port": 7400, "query_port": 0, "first": 1, "tokens": 17, "last": True, "patience_ns": 1500000000,
    }  # fmt: skip
    return messages.call_message(300, [298, 299], "put", entries)


def _register() -> bytes:
    blocks = [Blocks([1, 2]), Blocks([3], group=1, first=16, end=20)]
    ask = operations.register_blocks("r", [ProducerPeer("h", 1, 2)], blocks, 2, 1, "t", "e", 1e-9)
    return messages.call_message(5, [], ask.op, ask.entries)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("attach_new", messages.attach_request("engine 0", 0, "", [])),
        ("attach_again", messages.attach_request("engine 0", 1 << 40, LIFE, [3, 70000])),
        ("call_put", _put()),
        ("call_register", _register()),
        ("call_stats", messages.call_message(1, [], "stats", {"target": 0})),
        ("shown", messages.shown_message(9, 4, 12)),
    ],
)
def test_what_is_written_is_what_go_writes(name: str, written: bytes) -> None:
    want = bytes.fromhex(VECTORS[name])
    # The order of entries does not matter; their bytes do.
    assert msgpack.unpackb(written) == msgpack.unpackb(want)
    assert len(written) == len(want)
    if name != "call_register":
        assert written == want


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "attached",
            Attached(
                1, 7, LIFE, True, 0, "", 4096, 65536, 300, 4, 64, 256, 1 << 20, ("sender", "receiver"), "", 0, 0,
                2, (2, 4, 256, 256), "bfloat16",
            ),
        ),
        (
            "refused",
            Attached(
                v=1, code=8, reason="64 engines are attached, at most 64", shape=(2, 4, 256, 256), dtype="bfloat16"
            ),
        ),
        (
            "answer",
            Answer(9, 13, True, (4, 5), (65536, 100), 2, 3, 4, b"{}", 6, "h:1", "hello", "f", "o", "t", "s", "m"),
        ),
        ("show", Show(9, 4, (1,), (2,))),
        ("returned", Returned(9)),
    ],
)  # fmt: skip
def test_what_go_writes_is_read(name: str, message: messages.Message) -> None:
    payload = bytes.fromhex(VECTORS[name])
    assert messages.decode(payload) == message
    assert messages.decode(messages.encode(message)) == message


def test_what_is_not_known_is_skipped() -> None:
    assert messages.decode(msgpack.packb({"type": "KvfReturned", "id": 3, "new": [{"a": None}]})) == Returned(3)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({}, "not a message"),
        ({"type": 3}, "not a message"),
        ({"type": "KvfCall", "id": 1, "op": "get"}, "not a message"),
        ({"type": "KvfAnswer"}, "has no id"),
        ({"type": "KvfAnswer", "id": True}, "KvfAnswer.id"),
        ({"type": "KvfAnswer", "id": -1}, "KvfAnswer.id"),
        ({"type": "KvfAnswer", "id": 1.0}, "KvfAnswer.id"),
        ({"type": "KvfAnswer", "id": 1, "code": 1 << 32}, "KvfAnswer.code"),
        ({"type": "KvfAnswer", "id": 1, "held": 1}, "KvfAnswer.held"),
        ({"type": "KvfAnswer", "id": 1, "peer": b"x"}, "KvfAnswer.peer"),
        ({"type": "KvfAnswer", "id": 1, "stats": "x"}, "KvfAnswer.stats"),
        ({"type": "KvfAnswer", "id": 1, "pages": 3}, "KvfAnswer.pages"),
        ({"type": "KvfAnswer", "id": 1, "pages": [1], "lengths": []}, "1 pages and 0 lengths"),
        ({"type": "KvfShow", "id": 1, "pages": []}, "has no lengths"),
        ({"type": "KvfReturned", "id": None}, "KvfReturned.id"),
        ({"type": "KvfAttachResponse", "v": 1, "sides": ["a", 1]}, "KvfAttachResponse.sides"),
        ([1], "not a map"),
    ],
)
def test_what_does_not_fit_is_said(entries: Any, says: str) -> None:
    with pytest.raises(MessageError, match=says):
        messages.decode(msgpack.packb(entries))


def test_words_that_are_no_text_are_no_reason_to_stop() -> None:
    payload = messages.encode(Answer(1, 3, said="abc")).replace(b"abc", b"a\xffc")
    answer = messages.decode(payload)
    assert isinstance(answer, Answer)
    assert answer.said == "a\ufffdc"


def test_no_bytes_do_anything_but_fail() -> None:
    drawn = random.Random(7)
    wholes = [bytes.fromhex(digits) for digits in VECTORS.values()]
    failed = 0
    for _ in range(20000):
        payload = bytearray(drawn.choice(wholes))
        for _ in range(drawn.randint(1, 4)):
            at = drawn.randrange(len(payload))
            if drawn.random() < 0.2:
                del payload[at:]
                payload += drawn.randbytes(drawn.randint(1, 4))
            else:
                payload[at] = drawn.randrange(256)
        try:
            messages.decode(bytes(payload))
        except MessageError:
            failed += 1
    assert failed > 1000
