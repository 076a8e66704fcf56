"""Tests of the threaded client, against the model agent behind a real socket."""

from __future__ import annotations

import gc
import pathlib
import threading
from typing import Any

import pytest

import kvferry
from kvferry import Code, Error
from model_agent import ModelAgent, ignore_call
from operation_cases import CASES, PEER, PEER_ENTRIES, PENDING_CASES, Case, answer_case, call_entries
from stub_agent import TIMEOUT, StubAgent


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.method)
def test_what_a_method_says_and_hears(stub: StubAgent, case: Case) -> None:
    stub.agent.on_call = answer_case(case)
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(3)
        given = {"pages": pages} if case.takes_pages else {}
        result = getattr(client, case.method)(**case.arguments, **given)
        assert case.inspect(result) == case.expected
        assert call_entries(stub.wait_for_call(case.name, 2 if case.name == "reserve" else 1)) == case.message


@pytest.mark.parametrize("limits_tenants", [False, True])
def test_a_reserve_names_a_key_if_the_agent_limits_tenants(stub: StubAgent, limits_tenants: bool) -> None:
    stub.agent.limits_tenants = limits_tenants
    stub.agent.on_call = answer_case(CASES[1])
    with kvferry.connect(stub.path) as client:
        assert client.info.tenants == limits_tenants
        pages = client.reserve(2, key="a@kvft%00000000000000aa", timeout=1.5)
        assert len(pages) == 2
        expected = {**CASES[1].message, **({"keys": ["a@kvft%00000000000000aa"]} if limits_tenants else {})}
        assert call_entries(stub.wait_for_call("reserve")) == expected


@pytest.mark.parametrize("case", PENDING_CASES, ids=lambda c: c.method)
def test_what_a_method_says_at_once_and_hears_later(stub: StubAgent, case: Case) -> None:
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path) as client:
        pending = getattr(client, case.method)(**case.arguments)
        call = stub.wait_for_call(case.name)
        assert call_entries(call) == case.message
        assert not pending.done()
        with pytest.raises(kvferry.ExpiredError):
            pending.result(0)
        stub.run_on_agent(lambda agent: agent.answer(call["id"], **case.answer))
        assert case.inspect(pending.result(TIMEOUT)) == case.expected
        assert pending.wait_until_unused(TIMEOUT)
        other = getattr(client, case.method)(**case.arguments)
        call = stub.wait_for_call(case.name, 2)
        other.cancel()
        assert stub.wait_for_call("abort")["target"] == call["id"]
        stub.run_on_agent(lambda agent: agent.answer(call["id"], code=2, held=True))
        with pytest.raises(Error) as failed:
            other.result(TIMEOUT)
        assert failed.value.code == Code.CANCELLED
        assert not other.wait_until_unused(0)
        stub.run_on_agent(lambda agent: agent.return_memory(call["id"]))
        assert other.wait_until_unused(TIMEOUT)


def test_what_is_wrong_is_said_before_it_is_sent(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(2) as pages:
        for wrong in (
            lambda: client.reserve(-1),
            lambda: client.reserve(True),
            lambda: client.reserve(1, timeout=-1),
            lambda: client.contains("keys"),
            lambda: client.contains([1]),  # type: ignore[list-item]
            lambda: client.put(peer=PEER, keys=["a", "b", "c"], pages=pages),
            lambda: client.put(peer=PEER, keys=[], pages=pages),
            lambda: client.put(peer=kvferry.Peer("h", 70000, 1), keys=["a"], pages=pages),
            lambda: client.store(["a"], pages, 2),
            lambda: client.get(["a"] * 17),
            lambda: client.get(["a"], domain=7),  # type: ignore[arg-type]
        ):
            with pytest.raises(kvferry.InvalidError):
                wrong()
        assert [m["op"] for m in stub.agent.received[1:]] == ["reserve"]
        with pytest.raises(kvferry.InvalidError, match="KVFERRY_SOCKET"):
            kvferry.connect("")


def test_a_name_that_is_too_long_is_not_sent(stub: StubAgent) -> None:
    with pytest.raises(kvferry.InvalidError, match="1025 bytes"):
        kvferry.connect(stub.path, name="n" * 1025)
    gc.collect()


def test_a_fetch_hands_chunks_over_on_the_callers_thread(stub: StubAgent) -> None:
    for page in range(2):
        stub.fill(page, bytes([65 + page]) * 8)
    got: list[tuple[int, list[bytes], int]] = []

    def scatter(first: int, chunks: list[Any]) -> None:
        assert not chunks[0].flags.writeable
        got.append((first, [chunk.tobytes() for chunk in chunks], threading.get_ident()))

    with kvferry.connect(stub.path) as client:
        assert client.fetch(list("abcd"), scatter) == kvferry.Prefix(4)
        assert call_entries(stub.wait_for_call("fetch")) == {"keys": list("abcd")}
    # The model shows the same two pages each time.
    assert got == [(first, [b"A" * 8, b"B" * 8], threading.get_ident()) for first in (0, 2)]


def test_what_scatter_raises_ends_the_fetch(stub: StubAgent) -> None:
    def scatter(first: int, _: list[Any]) -> None:
        if first:
            raise KeyError("no room on the device")

    with kvferry.connect(stub.path) as client:
        with pytest.raises(KeyError, match="no room"):
            client.fetch(list("abcd"), scatter)
        assert stub.agent.shown == [(1, 0, 0), (1, 2, Code.FAULTED)]
        assert client.stats() == {}


def test_a_fetch_that_is_not_wanted_is_aborted(stub: StubAgent) -> None:
    """The client waits for the result, because the agent may be reading."""
    stub.agent.on_call = ignore_call
    asked: list[int] = []

    def wanted() -> bool:
        asked.append(1)
        return len(asked) < 2

    def answer() -> None:
        call = stub.wait_for_call("fetch")
        assert stub.wait_for_call("abort")["target"] == call["id"]
        stub.run_on_agent(lambda agent: agent.answer(call["id"], code=2))

    agent = threading.Thread(target=answer)
    with kvferry.connect(stub.path) as client:
        agent.start()
        prefix = client.fetch(["k"], lambda *_: None, timeout=600.0, still_wanted=wanted)
        agent.join(TIMEOUT)
    assert prefix.count == 0
    assert prefix.shortfall is not None
    assert prefix.shortfall.code == Code.CANCELLED
    assert len(asked) == 2  # And no more chunks.


def test_a_fetch_that_is_not_wanted_waits_for_no_agent_that_is_stopped(stub: StubAgent) -> None:
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path, reply_margin=0.1) as client:
        with pytest.raises(kvferry.ExpiredError):
            client.fetch(["k"], lambda *_: None, timeout=600.0, still_wanted=lambda: False)
        stub.agent.on_call = None


def test_a_cut_while_chunks_are_read_does_not_show_them_again(stub: StubAgent) -> None:
    seen: list[int] = []

    def scatter(first: int, _: list[Any]) -> None:
        seen.append(first)
        if first:
            return
        attachments = len([m for m in stub.agent.received if m["type"] == "KvfAttachRequest"])
        stub.disconnect()
        stub.wait_for(lambda a: len([m for m in a.received if m["type"] == "KvfAttachRequest"]) > attachments)

    with kvferry.connect(stub.path) as client:
        assert client.fetch(list("abcd"), scatter).count == 4
    assert seen == [0, 2]
    assert stub.agent.shown == [(1, 0, 0), (1, 2, 0)]


def test_many_threads_call_at_once(stub: StubAgent) -> None:
    stub.agent.on_call = None
    failures: list[BaseException] = []
    with kvferry.connect(stub.path) as client:

        def work(n: int) -> None:
            try:
                for i in range(40):
                    with client.reserve(1, timeout=TIMEOUT) as pages:
                        pages[0].array()[:] = n
                        client.put(peer=PEER, keys=[f"{n}-{i}"], pages=pages, request=str(n))
                        assert stub.page(pages[0].number) == bytes([n]) * 4096
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for n in range(3):
            stub.wait_for_call("put", 30 * (n + 1))
            stub.disconnect()
        for thread in threads:
            thread.join()
        assert failures == []
        assert stub.agent.held_pages == {}
        assert len(stub.agent.executed) == 8 * 40 * 3
        assert stub.agent.sessions == 1
    assert PEER_ENTRIES["host"] == PEER.host


def test_what_is_large_goes_too(tmp_path: pathlib.Path) -> None:
    with StubAgent(tmp_path, ModelAgent(keys=100_000, max_bytes=1 << 24)) as stub, kvferry.connect(stub.path) as client:
        keys = [f"{n:0100d}" for n in range(50_000)]  # More than a socket buffers.
        client.contains(keys)
        assert stub.wait_for_call("contains")["keys"] == keys
