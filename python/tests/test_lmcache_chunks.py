"""Chunks of LMCache whose page cannot be read, or whose deadline has passed. No agent is needed."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

import kvferry
from kvferry.codes import Code
from kvferry.errors import lost_error, make_error
from kvferry.lmcache.batch_sender import Batch, BatchSender
from kvferry.lmcache.chunks import BATCH, AgentChunks
from kvferry.lmcache.failure_log import FailureLog
from kvferry.lmcache.l2 import KvferryL2
from kvferry.lmcache.pins import ChunkPins
from kvferry.values import Peer


class Agent:
    """A client that has every chunk, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.info = SimpleNamespace(page_bytes=64, pages=64)

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **_: Any) -> Any:
            self.calls.append(name)
            return Pages(len(given[0]))

        return call


class Pages(list[Any]):
    shortfall = None
    void = False

    def check_valid(self, op: str) -> None:
        if self.void:
            raise lost_error(op)

    def __init__(self, count: int) -> None:
        super().__init__(SimpleNamespace(memory=bytes) for _ in range(count))

    def release(self, timeout: float) -> None:
        assert timeout == 0  # It does not wait for a stopped agent.


@pytest.mark.parametrize("broken", [0, 3, 19])
def test_what_was_taken_counts_before_a_page_that_is_refused(broken: int) -> None:
    """Otherwise the chunk would be requested again, and the memory with the first copy would leak."""
    agent: Any = Agent()
    taken: list[int] = []

    def take(place: int, _: object) -> bool:
        if place == broken:
            raise make_error("array", Code.MISMATCH)
        taken.append(place)
        return True

    names = [f"m@1@0@{i:x}@half" for i in range(20)]
    assert AgentChunks(agent, FailureLog()).load_chunks(names, take, time.monotonic() + 60) == broken
    assert taken == list(range(broken))


@pytest.mark.parametrize("at", [0, 15, 16, 19])
def test_what_is_void_before_all_was_copied_does_not_count(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Earlier batches count."""
    names = [f"m@1@0@{i:x}@half" for i in range(20)]

    def take(place: int, _: object) -> bool:
        if place == at:
            monkeypatch.setattr(Pages, "void", True)
        return True

    agent: Any = Agent()
    assert AgentChunks(agent, FailureLog()).load_chunks(names, take, time.monotonic() + 60) == at // BATCH * BATCH


class Offering(Agent):
    """A client of an agent with offered chunks, which does not receive all acknowledgements."""

    heard = 3

    def get(self, *_: Any, **__: Any) -> Pages:
        return Pages(0)

    def contains(self, names: list[str]) -> int:
        return len(names) - 1

    def fetch(self, names: list[str], scatter: Any, **_: Any) -> kvferry.Prefix:
        self.calls.append("fetch")
        for place in range(0, len(names), 2):
            scatter(place, [b"", b""][: len(names) - place])
        return kvferry.Prefix(self.heard)


@pytest.mark.parametrize(("broken", "full", "came"), [(9, 9, 3), (2, 9, 2), (9, 1, 1), (0, 9, 0)])
def test_what_was_fetched_counts_as_far_as_it_was_taken_and_heard_of(broken: int, full: int, came: int) -> None:
    taken: list[int] = []

    def take(place: int, _: object) -> bool:
        if place == broken:
            raise make_error("array", Code.MISMATCH)
        if place != full:
            taken.append(place)
        return place != full

    agent: Any = Offering()
    assert AgentChunks(agent, FailureLog()).load_chunks([*"abcdef"], take, time.monotonic() + 60, shared=False) == came
    assert taken == list(range(min(broken, full, 5)))  # After a chunk that is not taken, none is taken.


def test_what_was_offered_is_one_fetch() -> None:
    """Otherwise nothing would be read while the last chunks of each fetch are copied."""
    agent: Any = Offering()
    agent.heard = 3 * BATCH
    names = [f"m@1@0@{i:x}@half" for i in range(3 * BATCH + 1)]
    assert (
        AgentChunks(agent, FailureLog()).load_chunks(names, lambda *_: True, time.monotonic() + 60, shared=False)
        == 3 * BATCH
    )
    assert agent.calls.count("fetch") == 1


def test_late_work_asks_for_nothing() -> None:
    """With a stopped agent each call takes long, and queued batches hold memory of LMCache's."""
    agent: Any = Agent()
    late = time.monotonic() - 1
    with pytest.raises(kvferry.ExpiredError, match="its deadline passed before it started"):
        AgentChunks(agent, FailureLog()).store_chunks(["m@1@0@1@half"], [b""], late)
    with pytest.raises(kvferry.ExpiredError, match="its deadline passed before it started"):
        KvferryL2._find_chunks(object.__new__(KvferryL2), ["m@1@0@1"], (), late)
    sending = BatchSender(agent, 4, 1, None, FailureLog())
    given: list[int] = []
    held = SimpleNamespace(ref_count_down=lambda: given.append(1))
    batch = Batch(
        keys=[1],
        names=["n"],
        objects=deque([held]),
        peer=Peer("h", 1, 2),
        request="r",
        last=True,
        on_complete=None,
        deadline=late,
    )
    assert sending.submit_batch(batch).result(60) == 0
    sending.close()
    assert (given, agent.calls, sending.is_sending("n")) == ([1], [], False)


def test_unpinning_does_not_wait_for_the_agent() -> None:
    """The engine's thread unpins: with a stopped agent its step would wait for the timeout of a call."""
    agent: Any = Agent()
    waits: list[float | None] = []

    class Pinned(Pages):
        def release(self, timeout: float | None = None) -> None:
            waits.append(timeout)

    agent.get = lambda names: Pinned(len(names))
    pins = ChunkPins(agent)
    assert (pins.pin_chunks(["a", "b"]), pins.pin_chunks(["c"])) == (2, 1)
    assert (pins.unpin_chunk("a"), waits) == (True, [])
    assert (pins.unpin_chunk("b"), waits) == (True, [0])
    pins.close()
    assert (pins.unpin_chunk("c"), waits) == (False, [0, 0])
