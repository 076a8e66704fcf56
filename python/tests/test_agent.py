"""Bytes from one real agent to another."""

from __future__ import annotations

import asyncio
import random

import kvferry
from kvferry import aio
from nodes import CHUNK, PATIENCE, Node, attach, key, needed

pytestmark = needed


def test_every_byte_arrives(sender: Node, receiver: Node) -> None:
    drawn = random.Random(3)
    chunks = [drawn.randbytes(CHUNK) for _ in range(4)]
    keys = [key(n) for n in range(4)]
    with attach(sender) as sends, attach(receiver) as gets:
        assert "sender" in sends.info.sides
        assert "receiver" in gets.info.sides
        assert sends.info.page_bytes >= CHUNK
        with sends.reserve(4, patience=PATIENCE) as pages:
            for page, chunk in zip(pages, chunks, strict=True):
                page.array(shape=(CHUNK,))[:] = memoryview(chunk)
            put = sends.put(peer=receiver.peer, keys=keys, pages=pages, request="r", last=True, patience=PATIENCE)
            assert (put.sent, put.skipped) == (4, 0)
            assert put.wait_returned(PATIENCE)
        assert gets.contains(keys) == 4
        with gets.get([*keys, key(99)], request="r") as got:
            assert isinstance(got.short, kvferry.MissingError)
            assert [page.array().tobytes() for page in got] == chunks
        assert gets.contains(keys) == 0  # It was consumed.
        assert sends.stats()


def test_an_event_loop_does_the_same(sender: Node, receiver: Node) -> None:
    chunk = random.Random(4).randbytes(CHUNK)

    async def main() -> None:
        async with (
            await aio.connect(sender.socket, timeout=PATIENCE, bound=PATIENCE) as sends,
            await aio.connect(receiver.socket, timeout=PATIENCE, bound=PATIENCE) as gets,
        ):
            waits = asyncio.create_task(gets.get([key(7)], request="r", patience=20.0))
            async with await sends.reserve(1) as pages:
                pages[0].array(shape=(CHUNK,))[:] = memoryview(chunk)
                await sends.put(peer=receiver.peer, keys=[key(7)], pages=pages, request="r", last=True)
            async with await waits as got:
                got.check()
                assert got[0].array().tobytes() == chunk
            seen: list[bytes] = []
            fetched = await gets.fetch(
                [key(8)], lambda _, chunks: seen.extend(c.tobytes() for c in chunks), patience=0.1
            )
            assert (fetched.count, seen) == (0, [])
            assert fetched.short is not None

    asyncio.run(main())


def test_a_fetch_reads_what_is_there(sender: Node, receiver: Node) -> None:
    drawn = random.Random(5)
    chunks = [drawn.randbytes(CHUNK) for _ in range(8)]
    keys = [key(n) for n in range(8)]
    got: dict[int, bytes] = {}
    with attach(sender) as sends, attach(receiver) as gets:
        with sends.reserve(8, patience=PATIENCE) as pages:
            for page, chunk in zip(pages, chunks, strict=True):
                page.array(shape=(CHUNK,))[:] = memoryview(chunk)
            sends.put(peer=receiver.peer, keys=keys, pages=pages, request="r", last=True)
        fetched = gets.fetch(
            keys,
            lambda first, shown: got.update({first + i: chunk.tobytes() for i, chunk in enumerate(shown)}),
            request="r",
        )
        assert (fetched.count, fetched.short) == (8, None)
    assert [got[n] for n in range(8)] == chunks
