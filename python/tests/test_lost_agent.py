"""Tests of the threaded client with an agent that disappears or is not there."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import sys
import threading
import time
import types
from typing import Any

import pytest

import kvferry
from kvferry import Client, Code, Error, LostError
from kvferry.call import Call
from kvferry.call_waiter import CallWaiter
from kvferry.core import ATTACH_TIME, Core
from kvferry.thread_driver import CompletionEvent
from model_agent import INCARNATIONS, ModelAgent, execute, ignore_call
from operation_cases import PEER
from stub_agent import TIMEOUT, StubAgent


def hang_up(stub: StubAgent, op: str, after: int) -> None:
    """Cut so many connections, each when it receives a call."""
    for count in range(1, after + 1):
        stub.wait_for_call(op, count)
        stub.disconnect()


def test_a_call_on_which_the_agent_hangs_up_holds_nobody_up(stub: StubAgent) -> None:
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path) as client:
        pending = client.lend_blocks(request="r", blocks=[kvferry.Blocks([1])])
        hang_up(stub, "finished", 3)
        with pytest.raises(LostError, match="cut 3 times"):
            pending.result(TIMEOUT)
        assert not pending.wait_until_unused(0)  # The agent may have the call nevertheless.
        stub.agent.on_call = execute
        assert client.stats() == {}
        assert client.epoch == 1
        _restart(stub, client)
        assert pending.wait_until_unused(TIMEOUT)


def _restart(stub: StubAgent, client: Client) -> None:
    epoch = client.epoch
    stub.kill()
    stub.start()
    with client._driver.lock:
        assert client._driver.changed.wait_for(lambda: client.attached and client.epoch > epoch, TIMEOUT)


def test_a_cut_loses_nothing(stub: StubAgent) -> None:
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path) as client:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(client.get(["k"], timeout=TIMEOUT)))
        thread.start()
        call = stub.wait_for_call("get")
        stub.disconnect()
        stub.wait_for_call("get", 2)  # The repetition.
        stub.run_on_agent(lambda agent: agent.answer(call["id"], pages=(3,), lengths=(4,)))
        thread.join()
        (pages,) = results
        assert (pages.numbers, pages.void) == ((3,), False)
        stub.agent.on_call = execute
        pages.release()
        assert client.epoch == 1


def test_a_restart_is_a_miss_and_no_more(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        view = pages[0].array()
        shared = client.share(["k"], pages)
        prefill = client.begin_prefill(keys=["k"], request="r")
        stub.agent.on_call = ignore_call
        failures: list[BaseException] = []

        def get() -> None:
            try:
                client.get(["k"], timeout=TIMEOUT)
            except LostError as error:
                failures.append(error)

        thread = threading.Thread(target=get)
        thread.start()
        stub.wait_for_call("get")
        stub.agent.on_call = execute
        _restart(stub, client)
        thread.join()
        (failure,) = failures
        assert isinstance(failure, LostError)
        assert failure.code == Code.PEER_LOST
        assert client.info.life == INCARNATIONS[1]
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
        view[:] = 1  # It is not memory of the current agent.
        assert stub.page(0) == bytes(4096)
        shared.stop_sharing()
        prefill.abort()
        pages.release()
        with client.reserve(1) as pages:
            pages[0].array()[:] = 3
            assert stub.page(0) == b"\x03" * 4096
        ops = [m["op"] for m in stub.agent.received if m["type"] == "KvfCall"]
        assert ops == ["reserve", "share", "begin_prefill", "get", "reserve", "release"]


def test_pinning_says_what_it_did(stub: StubAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[int] = []
    code = 0

    def register(address: int, size: int, flags: int) -> int:
        assert (size, flags) == (64 * 4096, 1)
        registered.append(address)
        return code

    cudart = types.SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=registered.remove)
    cuda = types.SimpleNamespace(is_available=lambda: True, cudart=lambda: cudart)
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
        assert len(registered) == 1  # The pool of the earlier incarnation is not registered any more.
        assert registered != first
    assert registered == []


def test_an_agent_that_stays_away_is_a_miss_at_once(stub: StubAgent) -> None:
    with kvferry.connect(stub.path, grace=0.05) as client:
        pages = client.reserve(1)
        stub.kill()
        with pytest.raises(LostError):
            # The call may be made before the client notices, and then waits no longer than that.
            client.get(["k"], timeout=TIMEOUT)
        with pytest.raises(LostError, match="no agent"):
            client.stats()
        assert pages.void
        assert not client.attached
        stub.start()
        with client._driver.lock:
            assert client._driver.changed.wait_for(lambda: client.attached, TIMEOUT)
        client.reserve(1).release()


def test_an_agent_that_is_stopped_holds_nobody_up(stub: StubAgent) -> None:
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path, reply_margin=0.05, default_timeout=0.05) as client:
        before = time.monotonic()
        for _ in range(3):
            with pytest.raises(kvferry.ExpiredError, match="without an answer"):
                client.reserve(1)
        with pytest.raises(TimeoutError):
            client.fetch(["k"], lambda *_: None)
        assert time.monotonic() - before < TIMEOUT
        call = stub.wait_for_call("reserve")
        assert stub.wait_for_call("abort")["target"] == call["id"]
        # The agent continues, and releases the results of abandoned calls.
        stub.agent.on_call = execute
        stub.run_on_agent(lambda agent: agent.answer(call["id"], pages=(0,), lengths=(1,)))
        assert stub.wait_for_call("release")["target"] == call["id"]
        stub.wait_for(lambda agent: not agent.held_pages)


def test_a_call_that_began_late_says_nothing_about_the_agent(stub: StubAgent) -> None:
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path) as client:
        with pytest.raises(kvferry.ExpiredError, match="request's time was nearly over"):
            client.get(["k"], timeout=0.008, reply_margin=0.0)
        with pytest.raises(kvferry.ExpiredError, match="the agent is stopped, overloaded or unreachable"):
            client.get(["k"], timeout=0.1, reply_margin=0.1)


def test_nobody_is_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Error, match="start kvferry agent") as failed:
        kvferry.connect(tmp_path / "none", timeout=0.05)
    assert failed.value.code == Code.UNREACHABLE
    assert "No such file" in str(failed.value)
    assert not [t for t in threading.enumerate() if t.name == "kvferry"]


def test_what_a_call_is_about_may_be_gone_before_it_is_made(tmp_path: pathlib.Path) -> None:
    core = Core(str(tmp_path / "none"), kvferry.Options(), lambda: None)
    about, other = Call("put", {"target": 3}), Call("get", {"keys": ["k"]})
    for call in (about, other):
        core.check_call(call)
    core.session.calls.epoch += 1  # As if another agent had accepted the attachment.
    made = {call: CallWaiter[CompletionEvent](CompletionEvent) for call in (about, other)}
    for call, waiting in made.items():
        core.begin_call(call, waiting)
    assert [waiting.end_event.done() for waiting in made.values()] == [True, False]
    with pytest.raises(LostError, match="void"):
        made[about].reply()
    core.close()


def test_somebody_is_there_and_does_not_answer(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "stopped"))
        listener.listen()
        with pytest.raises(Error, match="stopped or overloaded") as failed:
            kvferry.connect(tmp_path / "stopped", timeout=0.05)
        assert failed.value.code == Code.UNREACHABLE


def test_an_agent_may_come_later(tmp_path: pathlib.Path) -> None:
    clients: list[Client] = []
    thread = threading.Thread(target=lambda: clients.append(kvferry.connect(tmp_path / "agent.sock", timeout=TIMEOUT)))
    thread.start()
    with StubAgent(tmp_path) as stub:
        thread.join()
        with clients[0] as client:
            assert client.stats() == {}
        assert stub.agent.sessions == 1


def test_an_agent_that_has_no_room_says_so(tmp_path: pathlib.Path) -> None:
    with StubAgent(tmp_path, ModelAgent(refusal_code=8)) as stub, pytest.raises(Error, match="no room") as failed:
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


def test_a_call_of_a_session_is_not_made_in_the_next(stub: StubAgent) -> None:
    """Its block numbers mean other blocks there; a queued call is lost with its session."""
    stub.agent.on_call = ignore_call
    with kvferry.connect(stub.path) as client:
        epoch = client.epoch
        made = [client.lend_blocks(request=f"r{i}", blocks=[kvferry.Blocks([i])], epoch=epoch) for i in range(8)]
        other = client.lend_blocks(request="any", blocks=[kvferry.Blocks([8])])
        stub.wait_for_call("finished", 3)  # The window has no more room.
        _restart(stub, client)
        for pending in made:
            with pytest.raises(LostError):
                pending.result(TIMEOUT)
        with pytest.raises(LostError, match="the session of the call is over"):
            client.lend_blocks(request="late", blocks=[kvferry.Blocks([9])], epoch=epoch)
        stub.wait_for_call("finished", 4)
        assert [x["request"] for x in stub.agent.received if x.get("op") == "finished"][3:] == ["any"]
        stub.agent.on_call = execute
        other.cancel()


def test_memory_that_is_kept_stays_when_the_session_is_over(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, pytest.raises(Error, match="connect with owns_pool=True"):
        client.pool_memory()
    with kvferry.connect(stub.path, owns_pool=True) as client:
        memory = client.pool_memory()
        memory.bytes[:] = 7
        assert (memory.epoch, memory.incarnation) == (client.epoch, client.info.life)
        _restart(stub, client)
        again = client.pool_memory()
        assert again.epoch > memory.epoch
        assert not again.bytes.any()
        memory.bytes[0] += 1
    assert memory.bytes[0] == 8
    assert (memory.bytes[1:] == 7).all()
