"""Transfers from one real agent to another."""

from __future__ import annotations

import asyncio
import random

import kvferry
from kvferry import aio
from nodes import CHUNK, TIMEOUT, Node, attach_client, chunk_key, needs_binary

pytestmark = needs_binary


def test_every_byte_arrives(sender: Node, receiver: Node) -> None:
    drawn = random.Random(3)
    chunks = [drawn.randbytes(CHUNK) for _ in range(4)]
    keys = [chunk_key(n) for n in range(4)]
    with attach_client(sender) as sends, attach_client(receiver) as gets:
        assert "sender" in sends.info.sides
        assert "receiver" in gets.info.sides
        assert sends.info.page_bytes >= CHUNK
        with sends.reserve(4, timeout=TIMEOUT) as pages:
            for page, chunk in zip(pages, chunks, strict=True):
                page.array(shape=(CHUNK,))[:] = memoryview(chunk)
            put = sends.put(peer=receiver.peer, keys=keys, pages=pages, request="r", last_batch=True, timeout=TIMEOUT)
            assert (put.sent, put.skipped) == (4, 0)
            assert put.wait_until_unused(TIMEOUT)
        assert gets.contains(keys) == 4
        with gets.get([*keys, chunk_key(99)], request="r") as got:
            assert isinstance(got.shortfall, kvferry.MissingError)
            assert [page.array().tobytes() for page in got] == chunks
        assert gets.contains(keys) == 0  # The chunk was consumed.
        assert sends.stats()


def test_an_event_loop_does_the_same(sender: Node, receiver: Node) -> None:
    chunk = random.Random(4).randbytes(CHUNK)

    async def main() -> None:
        async with (
            await aio.connect(sender.socket, timeout=TIMEOUT, reply_margin=TIMEOUT) as sends,
            await aio.connect(receiver.socket, timeout=TIMEOUT, reply_margin=TIMEOUT) as gets,
        ):
            waits = asyncio.create_task(gets.get([chunk_key(7)], request="r", timeout=20.0))
            async with await sends.reserve(1) as pages:
                pages[0].array(shape=(CHUNK,))[:] = memoryview(chunk)
                await sends.put(peer=receiver.peer, keys=[chunk_key(7)], pages=pages, request="r", last_batch=True)
            async with await waits as got:
                got.require_all()
                assert got[0].array().tobytes() == chunk
            seen: list[bytes] = []
            fetched = await gets.fetch(
                [chunk_key(8)], lambda _, chunks: seen.extend(c.tobytes() for c in chunks), timeout=0.1
            )
            assert (fetched.count, seen) == (0, [])
            assert fetched.shortfall is not None

    asyncio.run(main())


def test_a_fetch_reads_what_is_there(sender: Node, receiver: Node) -> None:
    drawn = random.Random(5)
    chunks = [drawn.randbytes(CHUNK) for _ in range(8)]
    keys = [chunk_key(n) for n in range(8)]
    got: dict[int, bytes] = {}
    with attach_client(sender) as sends, attach_client(receiver) as gets:
        with sends.reserve(8, timeout=TIMEOUT) as pages:
            for page, chunk in zip(pages, chunks, strict=True):
                page.array(shape=(CHUNK,))[:] = memoryview(chunk)
            sends.put(peer=receiver.peer, keys=keys, pages=pages, request="r", last_batch=True)
        fetched = gets.fetch(
            keys,
            lambda first, shown: got.update({first + i: chunk.tobytes() for i, chunk in enumerate(shown)}),
            request="r",
        )
        assert (fetched.count, fetched.shortfall) == (8, None)
    assert [got[n] for n in range(8)] == chunks
