"""Calls with more keys than an agent accepts at once, over a real agent: they are split, and have one result."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

import kvferry
from hosts import MODES
from kvferry import Code, aio, limits
from nodes import HOST, chunk_key, needs_binary

if TYPE_CHECKING:
    from hosts import Hosts

KEYS = [chunk_key(number) for number in range(7)]
MISSING = chunk_key(1000)
LEAST = 3


def limit_keys(client: Any) -> None:
    """Let a client believe that its agent accepts few keys per call."""
    calls = client._driver.core.session.calls
    calls.info = dataclasses.replace(calls.info, keys=LEAST)


@needs_binary
def test_calls_with_many_keys_are_made_in_parts(alone: tuple[Any, str]) -> None:
    start, path = alone
    start()
    with kvferry.connect(path) as client:
        most = client.info.keys
        assert client.contains([MISSING] * (most + 1)) == 0
        with pytest.raises(kvferry.Error, match="in several calls") as failed:
            client.get([MISSING] * (most + 1))
        assert failed.value.code == Code.TOO_LARGE
        limit_keys(client)
        with client.reserve(len(KEYS)) as pages:
            for number, page in enumerate(pages):
                page.array()[:] = number
            client.store(KEYS, pages)
        assert client.contains(KEYS) == len(KEYS)
        assert client.contains([*KEYS[:4], MISSING, *KEYS[4:]]) == 4
        shown: list[tuple[int, int]] = []

        def scatter(first: int, chunks: list[Any]) -> None:
            shown.extend((place, int(chunk[0])) for place, chunk in enumerate(chunks, first))

        prefix = client.fetch(KEYS, scatter, timeout=30.0)
        assert (prefix.count, prefix.shortfall) == (len(KEYS), None)
        assert shown == [(number, number) for number in range(len(KEYS))]
        shown.clear()
        prefix = client.fetch([*KEYS[:4], MISSING], scatter, timeout=0.05)
        assert prefix.count == len(shown) == LEAST
        assert prefix.shortfall is not None

        def breaks(first: int, chunks: list[Any]) -> None:
            scatter(first, chunks)
            if first >= LEAST:
                raise RuntimeError("the program's own")

        with pytest.raises(RuntimeError, match="own"):
            client.fetch(KEYS, breaks, timeout=30.0)


@needs_binary
@MODES
def test_chunks_of_a_request_are_fetched_in_parts(hosts: Hosts) -> None:
    """Also if they stay at their sender until they are fetched, and the request ends there."""
    with kvferry.connect(hosts.socket("prefill")) as sends, kvferry.connect(hosts.socket("decode")) as client:
        limit_keys(client)
        with sends.reserve(len(KEYS)) as pages:
            for number, page in enumerate(pages):
                page.array()[:] = number
            peer = kvferry.Peer(HOST, *hosts.ports[:2])
            sends.put(peer=peer, keys=KEYS, pages=pages, request="r", last_batch=True)
            shown: list[int] = []
            prefix = client.fetch(
                KEYS, lambda _, chunks: shown.extend(int(chunk[0]) for chunk in chunks), request="r", timeout=30.0
            )
        assert (prefix.count, prefix.shortfall) == (len(KEYS), None)
        assert shown == list(range(len(KEYS)))


@needs_binary
def test_an_event_loops_calls_are_made_in_parts(alone: tuple[Any, str]) -> None:
    start, path = alone
    start()

    async def play() -> None:
        async with await aio.connect(path) as client:
            limit_keys(client)
            pages = await client.reserve(len(KEYS))
            await client.store(KEYS, pages)
            assert await client.contains(KEYS) == len(KEYS)
            places: list[int] = []

            async def scatter(first: int, chunks: list[Any]) -> None:
                await asyncio.sleep(0)
                places.extend(range(first, first + len(chunks)))

            assert (await client.fetch(KEYS, scatter, timeout=30.0)).count == len(KEYS)
            assert places == list(range(len(KEYS)))

    asyncio.run(play())


def test_parts_have_as_many_keys_and_bytes_as_a_call() -> None:
    info = kvferry.messages.Attached(v=1, window=4, keys=100, bytes=20_000)
    for keys in ([], ["k" * 64] * 99, ["k" * 64] * 1000, ["k" * 500] * 90, ["ü" * 200] * 90):
        cut = limits.split_keys(keys, info)
        assert [key for part in cut for key in part] == keys
        for part in cut:
            limits.check_call_size("contains", {"keys": list(part)}, info)
    assert len(limits.split_keys(["k"] * 250, info)) == 3
    assert len(limits.split_keys(["k"] * 250, None)) == 1
