"""Tests of the client for threads, against the model behind a real socket."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operations import CASES, LATER, NAMED, PEER, Case, answers, wire_of

import kvferry
from kvferry import Client, Code, Error, LostError
from kvferry.core import ATTACH_TIME
from kvferry.pool import unpin
from model import LIVES, ModelAgent, Task, execute
from stub import PATIENCE, StubAgent


def silent(_: ModelAgent, __: Task) -> None:
    """Answer nothing by itself."""


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.method)
def test_what_a_method_says_and_hears(stub: StubAgent, case: Case) -> None:
    stub.agent.executes = answers(case)
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(3)
        given = {"pages": pages} if case.takes_pages else {}
        result = getattr(client, case.method)(**case.values, **given)
        assert case.looks(result) == case.want
        assert wire_of(stub.heard(case.name, 2 if case.name == "reserve" else 1)) == case.wire


@pytest.mark.parametrize("case", LATER, ids=lambda c: c.method)
def test_what_a_method_says_at_once_and_hears_later(stub: StubAgent, case: Case) -> None:
    stub.agent.executes = silent
    with kvferry.connect(stub.path) as client:
        pending = getattr(client, case.method)(**case.values)
        call = stub.heard(case.name)
        assert wire_of(call) == case.wire
        assert not pending.done()
        with pytest.raises(kvferry.ExpiredError):
            pending.result(0)
        stub.do(lambda agent: agent.answer(call["id"], **case.answer))
        assert case.looks(pending.result(PATIENCE)) == case.want
        assert pending.wait_returned(PATIENCE)
        other = getattr(client, case.method)(**case.values)
        call = stub.heard(case.name, 2)
        other.cancel()
        assert stub.heard("abort")["target"] == call["id"]
        stub.do(lambda agent: agent.answer(call["id"], code=2, held=True))
        with pytest.raises(Error) as failed:
            other.result(PATIENCE)
        assert failed.value.code == Code.CANCELLED
        assert not other.wait_returned(0)
        stub.do(lambda agent: agent.give_back(call["id"]))
        assert other.wait_returned(PATIENCE)


def test_pages_are_the_agents_memory(stub: StubAgent) -> None:
    with kvferry.connect(stub.path, name="engine 0") as client:
        assert client.attached
        assert client.info.page_bytes == 4096
        with client.reserve(2) as pages:
            assert len(pages) == 2
            assert [page.index for page in pages] == [0, 1]
            pages[0].array()[:] = 7
            view = pages[-1].array(np.float32, (2, 3))
            view[1] = (1, 2, 3)
            assert stub.page(pages[0].number) == b"\x07" * 4096
            assert stub.page(pages[1].number, 24) == view.tobytes()
            assert client.pool()[pages.numbers[0], 5] == 7
            with pytest.raises(IndexError):
                pages[2]
            with pytest.raises(kvferry.InvalidError, match="4100 bytes"):
                pages[0].array(np.float32, (1025,))
        assert pages.released
        with pytest.raises(kvferry.InvalidError, match="released"):
            pages[0].array()
        with pytest.raises(kvferry.MissingError):
            pages.release()
        assert stub.agent.held == {}
    assert stub.agent.heard[0]["name"] == "engine 0"


def test_what_a_get_gives_is_only_to_be_read(stub: StubAgent) -> None:
    case = Case("get", {}, {}, {"pages": (5,), "lengths": (10,)}, lambda r: r, None)
    stub.agent.executes = answers(case)
    stub.fill(5, b"0123456789abc")
    with kvferry.connect(stub.path) as client, client.get(["k"]) as pages:
        pages.check()
        view = pages[0].array()
        assert view.tobytes() == b"0123456789"
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


def test_a_prefix_says_why_it_is_one(stub: StubAgent) -> None:
    why = {"code": 21, "count": 1, "field": "retention", "remedy": "compute from it on", "stage": "memory"}
    stub.agent.executes = answers(Case("get", {}, {}, why, lambda r: r, None))
    with kvferry.connect(stub.path) as client, client.get(["k"]) as pages:
        assert len(pages) == 0
        with pytest.raises(kvferry.MissingError, match="compute from it on") as failed:
            pages.check()
        assert failed.value.stage == "memory"
        stub.agent.executes = answers(Case("get", {}, {}, {"code": 14, "field": "keys"}, lambda r: r, None))
        with pytest.raises(kvferry.InvalidError):
            client.get(["k"])


def test_torch_is_needed_for_tensors_alone(stub: StubAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(1) as pages:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(ImportError):
            pages[0].tensor()
        assert not client.pin_memory().done

        class Tensor:
            """What is used of one."""

            def __init__(self, array: Any) -> None:
                self.array = array

            def view(self, dtype: Any) -> Tensor:
                return Tensor(self.array.view(dtype.name))

            def reshape(self, shape: tuple[int, ...]) -> Tensor:
                return Tensor(self.array.reshape(shape))

            def __getitem__(self, part: slice) -> Tensor:
                return Tensor(self.array[part])

        half = types.SimpleNamespace(itemsize=2, name="float16")
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(from_numpy=Tensor))
        pages[0].tensor(half, (2, 2)).array[1, 1] = 1.0
        assert pages[0].array(np.float16)[3] == 1.0
        assert pages[0].tensor().array.nbytes == 4096


def test_pinning_says_what_it_did(stub: StubAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[int] = []
    code = 0

    def register(address: int, size: int, flags: int) -> int:
        assert (size, flags) == (64 * 4096, 1)
        registered.append(address)
        return code

    cudart = types.SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=registered.remove)
    cuda = types.SimpleNamespace(is_available=lambda: bool(cudart.__dict__), cudart=lambda: cudart)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with kvferry.connect(stub.path) as client:
        code = 2
        failed = client.pin_memory()
        assert (failed.done, failed.bytes) == (False, 0)
        assert "error 2" in failed.text
        registered.clear()
        code = 0
        done = client.pin_memory()
        assert (done.done, done.bytes) == (True, 64 * 4096)
        assert client.pin_memory() == done
        first = list(registered)
        assert len(first) == 1
        _restart(stub, client)
        assert len(registered) == 1  # That of the life before is not registered any more.
        assert registered != first
    assert registered == []
    assert callable(unpin)


def test_a_failed_put_has_its_result(stub: StubAgent) -> None:
    stub.agent.executes = answers(Case("put", {}, {}, {"code": 4, "held": True, "peer": "h:1"}, lambda r: r, None))
    with kvferry.connect(stub.path) as client, client.reserve(1) as pages:
        with pytest.raises(Error, match="h:1") as failed:
            client.put(peer=PEER, keys=["k"], pages=pages)
        assert type(failed.value) is Error  # The peer is lost, not the agent.
        assert not pages.void
        result = failed.value.result
        assert result.held
        assert not result.wait_returned(0)
        result.take_back()
        put = stub.heard("put")["id"]
        assert stub.heard("take_back")["target"] == put
        stub.do(lambda agent: agent.give_back(put))
        assert result.wait_returned(PATIENCE)
        pages.await_return(1.0)
        assert wire_of(stub.heard("await_return")) == {"target": pages.number, "patience_ns": 10**9}


def test_what_is_wrong_is_said_before_it_is_sent(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(2) as pages:
        for wrong in (
            lambda: client.reserve(-1),
            lambda: client.reserve(True),
            lambda: client.reserve(1, patience=-1),
            lambda: client.contains("keys"),
            lambda: client.contains([1]),  # type: ignore[list-item]
            lambda: client.put(peer=PEER, keys=["a", "b", "c"], pages=pages),
            lambda: client.put(peer=PEER, keys=[], pages=pages),
            lambda: client.put(peer=kvferry.Peer("h", 70000, 1), keys=["a"], pages=pages),
            lambda: client.store(["a"], pages, 2),
            lambda: client.contains(["a"] * 17),
        ):
            with pytest.raises(kvferry.InvalidError):
                wrong()
        assert [m["op"] for m in stub.agent.heard[1:]] == ["reserve"]
        with pytest.raises(kvferry.InvalidError, match="KVFERRY_SOCKET"):
            kvferry.connect("")


def test_pages_that_are_still_read_go_back_by_themselves(stub: StubAgent, caplog: pytest.LogCaptureFixture) -> None:
    with kvferry.connect(stub.path, bound=0.05, longest=0.05) as client:
        three = [client.reserve(1) for _ in range(3)]
        stub.agent.executes = silent
        with pytest.raises(kvferry.ExpiredError):
            three[0].release(0.01)
        three[1].release(0)
        with three[2]:
            pass
        assert "release: expired" in caplog.text
        assert {stub.heard("release", n + 1)["target"] for n in range(3)} == {pages.number for pages in three}
        assert not [m for m in stub.agent.heard if m.get("op") == "abort"]


def test_a_withdraw_that_had_no_answer_may_come_again(stub: StubAgent) -> None:
    with kvferry.connect(stub.path, bound=0.05) as client, client.reserve(1) as pages:
        shared = client.share(["k"], pages)
        stub.agent.executes = silent
        with pytest.raises(kvferry.ExpiredError):
            shared.withdraw(0.01)
        assert not shared.released
        stub.agent.executes = answers(Case("withdraw", {}, {}, {"code": 13}, lambda r: r, None))
        shared.withdraw(1.0)
        assert shared.released


def coded(op: str, code: Code) -> Callable[[ModelAgent, Task], None]:
    """Answer an operation with a code."""
    return answers(Case(op, {}, {}, {"code": int(code)}, lambda r: r, None))


@pytest.mark.parametrize("code", [Code.TOO_MANY, Code.INVALID])
def test_what_is_not_given_back_yet_may_be_given_back_again(stub: StubAgent, code: Code) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        shared = client.share(["k"], pages)
        for handle, op, back in (
            (shared, "withdraw", shared.withdraw),
            (pages, "release", pages.release),
            (prefill := client.begin_prefill(keys=["k"], request="r"), "drop_prefill", prefill.drop),
        ):
            for _ in range(2):
                stub.agent.executes = coded(op, code)
                with pytest.raises(Error) as failed:
                    back()
                assert failed.value.code == code
                assert not handle.released
            # The end that was under way is over.
            stub.agent.executes = coded(op, Code.NOT_FOUND)
            back()
            assert handle.released


@pytest.mark.parametrize("code", [Code.TOO_MANY, Code.INVALID])
def test_a_prefill_that_did_not_finish_stands(stub: StubAgent, code: Code) -> None:
    with kvferry.connect(stub.path) as client:
        prefill = client.begin_prefill(keys=["k"], request="r")
        stub.agent.executes = coded("finish_prefill", code)
        with pytest.raises(Error):
            prefill.finish()
        assert not prefill.released
        stub.agent.executes = coded("finish_prefill", Code.NOT_FOUND)
        with pytest.raises(kvferry.MissingError):
            prefill.finish()
        assert prefill.released


def test_a_prefill_that_stands_is_given_back_by_the_collector(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        prefill = client.begin_prefill(keys=["k"], request="r")
        number = prefill.number
        stub.agent.executes = coded("drop_prefill", Code.TOO_MANY)
        with pytest.raises(Error):
            prefill.drop()
        stub.agent.executes = execute
        with pytest.warns(ResourceWarning, match="forgotten"):
            del prefill
            gc.collect()
        assert stub.heard("drop_prefill", 2)["prefill"] == number


def test_a_release_that_cannot_be_made_releases_nothing(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(1) as pages:
        with pytest.raises(kvferry.InvalidError):
            pages.release(-1)
        assert not pages.released


def hang_up(stub: StubAgent, op: str, after: int) -> None:
    """Cut each connection on which a call comes, so many times."""
    for count in range(1, after + 1):
        stub.heard(op, count)
        stub.cut()


def test_a_call_on_which_the_agent_hangs_up_holds_nobody_up(stub: StubAgent) -> None:
    stub.agent.executes = silent
    with kvferry.connect(stub.path) as client:
        pending = client.finished(request="r", blocks=[kvferry.Blocks([1])])
        hang_up(stub, "finished", 3)
        with pytest.raises(LostError, match="cut 3 times"):
            pending.result(PATIENCE)
        assert not pending.wait_returned(0)  # The agent may have it after all.
        stub.agent.executes = execute
        assert client.stats() == {}
        assert client.epoch == 1
        _restart(stub, client)
        assert pending.wait_returned(PATIENCE)


def test_a_name_that_is_too_long_is_not_sent(stub: StubAgent) -> None:
    with pytest.raises(kvferry.InvalidError, match="1025 bytes"):
        kvferry.connect(stub.path, name="n" * 1025)
    gc.collect()


def test_stored_pages_are_the_caches(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(3) as pages:
        client.store(["a"], pages, 1)
        pages[0].array()
        with pytest.raises(kvferry.InvalidError, match="stored"):
            pages[1].array()
        with pytest.raises(kvferry.InvalidError, match="stored"):
            client.share(["a", "b"], pages)
        stub.agent.executes = answers(Case("store", {}, {}, {"code": 8, "count": 1}, lambda r: r, None))
        with pytest.raises(Error):
            client.store(["b"], pages, 2)
        pages[2].array()


def test_shared_pages_are_withdrawn_before_they_are_released(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        with client.share(["a"], pages) as shared:
            with pytest.raises(kvferry.InvalidError, match="withdraw"):
                pages.release()
            assert not pages.released
        assert stub.heard("withdraw")["target"] == shared.number
        pages.release()


def test_a_prefill_goes_layer_by_layer(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(2) as pages:
        with client.begin_prefill(keys=["a"], request="r", peer=PEER) as prefill:
            prefill.save_layer(1, 256, pages)
            saved = stub.heard("save_layer")
            assert wire_of(saved) == {"prefill": prefill.number, "target": pages.number, "layer": 1, "tokens": 256}
            prefill.preempt()
            assert wire_of(stub.heard("preempt_prefill")) == {"prefill": prefill.number}
            assert not prefill.finish(2.0).held
            assert wire_of(stub.heard("finish_prefill")) == {"prefill": prefill.number, "patience_ns": 2 * 10**9}
        with client.begin_prefill(keys=["a"], request="r") as prefill:
            pass
        assert wire_of(stub.heard("drop_prefill")) == {"prefill": prefill.number}


def test_a_save_that_nobody_waits_for_fails_later(stub: StubAgent) -> None:
    stub.agent.executes = answers(Case("save_layer", {}, {}, {"code": 8}, lambda r: r, None))
    with kvferry.connect(stub.path) as client, client.begin_prefill(keys=["a"], request="r") as prefill:
        prefill.save_layer(0, 256, wait=False)
        client.stats()  # What was answered before this was is known.
        with pytest.raises(Error) as failed:
            prefill.save_layer(0, 512, wait=False)
        assert failed.value.code == Code.TOO_MANY
        prefill.finish()


# ---- fetches ----


def test_a_fetch_hands_chunks_over_on_the_callers_thread(stub: StubAgent) -> None:
    for page in range(2):
        stub.fill(page, bytes([65 + page]) * 8)
    got: list[tuple[int, list[bytes], int]] = []

    def scatter(first: int, chunks: list[Any]) -> None:
        assert not chunks[0].flags.writeable
        got.append((first, [chunk.tobytes() for chunk in chunks], threading.get_ident()))

    with kvferry.connect(stub.path) as client:
        assert client.fetch(list("abcd"), scatter) == kvferry.Prefix(4)
        assert wire_of(stub.heard("fetch")) == {"keys": list("abcd")}
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


def test_a_cut_while_chunks_are_read_does_not_show_them_again(stub: StubAgent) -> None:
    seen: list[int] = []

    def scatter(first: int, _: list[Any]) -> None:
        seen.append(first)
        if first:
            return
        attachments = len([m for m in stub.agent.heard if m["type"] == "KvfAttachRequest"])
        stub.cut()
        stub.wait(lambda a: len([m for m in a.heard if m["type"] == "KvfAttachRequest"]) > attachments)

    with kvferry.connect(stub.path) as client:
        assert client.fetch(list("abcd"), scatter).count == 4
    assert seen == [0, 2]
    assert stub.agent.shown == [(1, 0, 0), (1, 2, 0)]


# ---- an agent that goes away ----


def _restart(stub: StubAgent, client: Client) -> None:
    epoch = client.epoch
    stub.kill()
    stub.start()
    with client._driver.lock:
        assert client._driver.changed.wait_for(lambda: client.attached and client.epoch > epoch, PATIENCE)


def test_a_cut_loses_nothing(stub: StubAgent) -> None:
    stub.agent.executes = silent
    with kvferry.connect(stub.path) as client:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(client.get(["k"], patience=PATIENCE)))
        thread.start()
        call = stub.heard("get")
        stub.cut()
        stub.heard("get", 2)  # It came again.
        stub.do(lambda agent: agent.answer(call["id"], pages=(3,), lengths=(4,)))
        thread.join()
        (pages,) = results
        assert (pages.numbers, pages.void) == ((3,), False)
        stub.agent.executes = execute
        pages.release()
        assert client.epoch == 1


def test_a_restart_is_a_miss_and_no_more(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        view = pages[0].array()
        shared = client.share(["k"], pages)
        prefill = client.begin_prefill(keys=["k"], request="r")
        stub.agent.executes = silent
        failures: list[BaseException] = []

        def get() -> None:
            try:
                client.get(["k"], patience=PATIENCE)
            except LostError as error:
                failures.append(error)

        thread = threading.Thread(target=get)
        thread.start()
        stub.heard("get")
        stub.agent.executes = execute
        _restart(stub, client)
        thread.join()
        (failure,) = failures
        assert isinstance(failure, LostError)
        assert failure.code == Code.PEER_LOST
        assert client.info.life == LIVES[1]
        for handle in (pages, shared, prefill):
            assert handle.void
        for use in (
            pages[0].array,
            lambda: client.put(peer=PEER, keys=["k"], pages=pages),
            lambda: prefill.save_layer(0, 1),
            prefill.finish,
        ):
            with pytest.raises(LostError):
                use()
        view[:] = 1  # It harms nobody: it is no memory of the agent that is there now.
        assert stub.page(0) == bytes(4096)
        shared.withdraw()
        prefill.drop()
        pages.release()
        with client.reserve(1) as pages:
            pages[0].array()[:] = 3
            assert stub.page(0) == b"\x03" * 4096
        ops = [m["op"] for m in stub.agent.heard if m["type"] == "KvfCall"]
        assert ops == ["reserve", "share", "begin_prefill", "get", "reserve", "release"]


def test_an_agent_that_stays_away_is_a_miss_at_once(stub: StubAgent) -> None:
    with kvferry.connect(stub.path, grace=0.05) as client:
        pages = client.reserve(1)
        stub.kill()
        with pytest.raises(LostError):
            client.get(["k"], patience=PATIENCE)  # It may be made before that is known, and waits no longer than that.
        with pytest.raises(LostError, match="no agent"):
            client.stats()
        assert pages.void
        assert not client.attached
        stub.start()
        with client._driver.lock:
            assert client._driver.changed.wait_for(lambda: client.attached, PATIENCE)
        client.reserve(1).release()


def test_an_agent_that_is_stopped_holds_nobody_up(stub: StubAgent) -> None:
    stub.agent.executes = silent
    with kvferry.connect(stub.path, bound=0.05, longest=0.05) as client:
        before = time.monotonic()
        for _ in range(3):
            with pytest.raises(kvferry.ExpiredError, match="without an answer"):
                client.reserve(1)
        with pytest.raises(TimeoutError):
            client.fetch(["k"], lambda *_: None)
        assert time.monotonic() - before < PATIENCE
        call = stub.heard("reserve")
        assert stub.heard("abort")["target"] == call["id"]
        # It goes on after all. What it gives nobody waits for: it has it back.
        stub.agent.executes = execute
        stub.do(lambda agent: agent.answer(call["id"], pages=(0,), lengths=(1,)))
        assert stub.heard("release")["target"] == call["id"]
        stub.wait(lambda agent: not agent.held)


def test_nobody_is_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Error, match="start kvferry agent") as failed:
        kvferry.connect(tmp_path / "none", timeout=0.05)
    assert failed.value.code == Code.UNREACHABLE
    assert "No such file" in str(failed.value)
    assert not [t for t in threading.enumerate() if t.name == "kvferry"]


def test_an_agent_may_come_later(tmp_path: pathlib.Path) -> None:
    clients: list[Client] = []
    thread = threading.Thread(target=lambda: clients.append(kvferry.connect(tmp_path / "agent.sock", timeout=PATIENCE)))
    thread.start()
    with StubAgent(tmp_path) as stub:
        thread.join()
        with clients[0] as client:
            assert client.stats() == {}
        assert stub.agent.sessions == 1


def test_an_agent_that_has_no_room_says_so(tmp_path: pathlib.Path) -> None:
    with StubAgent(tmp_path, ModelAgent(refuses=8)) as stub, pytest.raises(Error, match="no room") as failed:
        kvferry.connect(stub.path)
    assert failed.value.code == Code.TOO_MANY


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\1\0\0\0\xc1", b"\xff" * 64], ids=["http", "msgpack", "length"]
)
def test_somebody_else_listens(tmp_path: pathlib.Path, garbage: bytes) -> None:
    path = str(tmp_path / "other.sock")
    stopping = threading.Event()

    def serve(listener: socket.socket) -> None:
        with listener:
            while not stopping.is_set():
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(garbage)
                    connection.recv(4096)

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    thread = threading.Thread(target=serve, args=(listener,))
    thread.start()
    try:
        with pytest.raises(Error, match="does not speak this protocol") as failed:
            kvferry.connect(path, timeout=1.0)
        assert failed.value.code == Code.UNREACHABLE
    finally:
        stopping.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(path)
        thread.join()
    assert ATTACH_TIME > 1.0


# ---- who forgets ----


def test_a_forgotten_handle_is_given_back(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        for make, op in (
            (lambda: client.reserve(1), "release"),
            (lambda: client.begin_prefill(keys=["k"], request="r"), "drop_prefill"),
        ):
            handle: Any = make()
            number = handle.number
            with pytest.warns(ResourceWarning, match="forgotten"):
                del handle
                gc.collect()
            call = stub.heard(op)
            assert call.get("target", call.get("prefill")) == number
        with client.reserve(1) as pages:
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del pages
            gc.collect()


def test_a_forgotten_client_detaches(stub: StubAgent) -> None:
    client = kvferry.connect(stub.path)
    thread = client._thread
    with pytest.warns(ResourceWarning, match="client was forgotten"):
        del client
        gc.collect()
    thread.join()
    stub.wait(lambda agent: not agent.connected)


def test_a_closed_client_serves_nobody(stub: StubAgent) -> None:
    stub.agent.executes = silent
    client = kvferry.connect(stub.path)
    failures: list[BaseException] = []

    def get() -> None:
        try:
            client.get(["k"], patience=PATIENCE)
        except kvferry.ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    stub.heard("get")
    client.close()
    thread.join()
    assert len(failures) == 1
    client.close()
    with pytest.raises(kvferry.ClosedError):
        client.stats()
    stub.wait(lambda agent: not agent.connected)


CHILD = """
import os, sys, warnings
import kvferry
warnings.simplefilter("ignore")  # That threads and forks do not go together is what this is about.
client = kvferry.connect(sys.argv[1])
pages = client.reserve(1)
child = os.fork()
if child:  # The parent goes on, and then ends without a word.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.stats()
    child = os.fork()
    if child:
        print(child, flush=True)
        os.kill(os.getpid(), 9)
    sys.stdin.read()  # It outlives its parent.
    os._exit(0)
for use in (client.stats, lambda: pages[0].array()):
    try:
        use()
    except kvferry.ClosedError as error:
        assert "fork" in str(error)
    else:
        os._exit(1)
pages.release()
del pages
client.close()
os._exit(0)
"""


# Of one pool a view is left, and one is whole; neither is any client's.
MAPPINGS = """
import ctypes, gc, os
import kvferry.core
from kvferry.messages import Attached
from kvferry.pool import Pool
SIZE = 4 * 4096
fd = os.memfd_create("pool")
os.ftruncate(fd, SIZE)
pools = [Pool(fd, Attached(v=1, page_bytes=4096, pages=4)) for _ in range(2)]
addresses = [pool.bytes.ctypes.data for pool in pools]
views = [pools.pop().bytes[4096:]]
child = os.fork()
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for address in addresses:
    # private, anonymous, at that address and only if nothing is there
    assert libc.mmap(address, SIZE, 3, 0x02 | 0x20 | 0x100000, -1, 0) == address
    ctypes.memset(address, 7, SIZE)
pools.clear()
views.clear()
gc.collect()
for address in addresses:
    assert ctypes.string_at(address, SIZE) == bytes([7]) * SIZE
"""


def test_a_child_does_not_unmap_what_it_does_not_have() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", MAPPINGS], env=environment, check=False, timeout=PATIENCE)
    assert done.returncode == 0


def test_a_fork_does_not_keep_the_attachment(stub: StubAgent) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, stub.path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline()
        assert process.wait() == -9
        stub.wait(lambda agent: not agent.connected)  # The grandchild still runs, and reads.
        process.stdin.close()
    assert [m["op"] for m in stub.agent.heard[1:]] == ["reserve", "stats"]


def test_many_threads_call_at_once(stub: StubAgent) -> None:
    stub.agent.executes = None
    failures: list[BaseException] = []
    with kvferry.connect(stub.path) as client:

        def work(n: int) -> None:
            try:
                for i in range(40):
                    with client.reserve(1, patience=PATIENCE) as pages:
                        pages[0].array()[:] = n
                        client.put(peer=PEER, keys=[f"{n}-{i}"], pages=pages, request=str(n))
                        assert stub.page(pages[0].number) == bytes([n]) * 4096
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for n in range(3):
            stub.heard("put", 30 * (n + 1))
            stub.cut()
        for thread in threads:
            thread.join()
        assert failures == []
        assert stub.agent.held == {}
        assert len(stub.agent.executed) == 8 * 40 * 3
        assert stub.agent.sessions == 1
    assert NAMED["host"] == PEER.host


def test_what_is_large_goes_too(tmp_path: pathlib.Path) -> None:
    with StubAgent(tmp_path, ModelAgent(keys=100_000, most=1 << 24)) as stub, kvferry.connect(stub.path) as client:
        keys = [f"{n:0100d}" for n in range(50_000)]  # More than a socket takes at once.
        client.contains(keys)
        assert stub.heard("contains")["keys"] == keys
