"""Tests against real agents: bytes from one to another, and what agents and engines do to each other when they die.

KVFERRY_BIN names a kvferry that has the command agent; without it they are skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import kvferry
from kvferry import Client, LostError, aio
from kvferry.agent import Agent, start
from kvferry.frames import FRAME_MAX

BINARY = os.environ.get("KVFERRY_BIN", "")

# How long anything may take here, in seconds: a machine that is slow is no failure.
PATIENCE = 120.0


def why_not() -> str:
    """Say why these tests cannot run; empty where they can."""
    if not BINARY:
        return "KVFERRY_BIN names no kvferry"
    done = subprocess.run([BINARY, "agent", "--help"], check=False, capture_output=True, text=True)
    return "" if "--socket" in done.stdout else f"{BINARY} has no command agent"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

SENDER = """
enable_pd: true
pd_role: sender
pd_skip_proxy_notification: true
transfer_channel: auto
pd_buffer_size: 512KiB
pd_buffer_device: cpu
chunk_size: 16
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 64, dtype: bfloat16}
"""

RECEIVER = """
enable_pd: true
pd_role: receiver
pd_peer_host: 127.0.0.1
pd_peer_init_port: INIT
pd_peer_alloc_port: ALLOC
transfer_channel: auto
pd_buffer_size: 512KiB
pd_buffer_device: cpu
chunk_size: 16
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 64, dtype: bfloat16}
"""

# Two layers, keys and values, of 16 tokens with 64 elements of 2 bytes.
CHUNK = 2 * 2 * 16 * 64 * 2


def key(number: int) -> str:
    """Name a chunk as LMCache does."""
    return f"model@1@0@{number:x}@bfloat16"


def free_ports() -> tuple[int, int]:
    """Find ports that nobody has now."""
    with socket.socket() as one, socket.socket() as other:
        for s in (one, other):
            s.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@dataclass
class Node:
    """An agent that may be started again at the same socket."""

    folder: pathlib.Path
    config: str
    agent: Agent | None = None

    @property
    def socket(self) -> str:
        return str(self.folder / "a.sock")

    def start(self) -> Node:
        path = self.folder / "node.yaml"
        path.write_text(self.config)
        with (self.folder / "log").open("ab") as log:
            self.agent = start(path, self.socket, binary=BINARY, timeout=PATIENCE, stderr=log)
        return self

    def kill(self) -> None:
        assert self.agent is not None
        self.agent.kill()

    @property
    def peer(self) -> kvferry.Peer:
        assert self.agent is not None
        return kvferry.Peer("127.0.0.1", self.agent.init_port, self.agent.alloc_port)


def node(tmp_path: pathlib.Path, name: str, config: str) -> Iterator[Node]:
    folder = tmp_path / name
    folder.mkdir()
    made = Node(folder, config).start()
    try:
        yield made
    finally:
        if made.agent is not None:
            made.agent.stop(PATIENCE)


@pytest.fixture
def sender(tmp_path: pathlib.Path) -> Iterator[Node]:
    yield from node(tmp_path, "s", SENDER)


@pytest.fixture
def receiver(tmp_path: pathlib.Path) -> Iterator[Node]:
    init, alloc = free_ports()
    yield from node(tmp_path, "r", RECEIVER.replace("INIT", str(init)).replace("ALLOC", str(alloc)))


def attach(node: Node) -> Client:
    return kvferry.connect(node.socket, timeout=PATIENCE, bound=PATIENCE)


def most(client: Client) -> int:
    """Find how many pages one engine may have."""
    for count in range(client.info.pages, 0, -1):
        try:
            client.reserve(count, patience=PATIENCE).release()
        except kvferry.InvalidError:  # More than its share.
            continue
        return count
    raise AssertionError("no page can be reserved")


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


def test_an_agent_is_killed_and_another_comes(sender: Node) -> None:
    with attach(sender) as client:
        life = client.info.life
        pages = client.reserve(2, patience=PATIENCE)
        view = pages[0].array()
        view[:] = 1
        sender.kill()
        sender.start()
        fresh = _until_it_works(client)
        assert client.info.life != life
        assert pages.void
        with pytest.raises(LostError):
            pages[0].array()
        view[:] = 2  # It is no memory of the one that is there now, and harms nobody.
        pages.release()
        with fresh:
            fresh[0].array()[:] = 3


def _until_it_works(client: Client) -> kvferry.Pages:
    """Call until an agent is there again, as an engine does from request to request."""
    while True:
        try:
            return client.reserve(1, patience=PATIENCE)
        except LostError:
            continue


def test_a_cut_at_any_time_loses_nothing(sender: Node, receiver: Node) -> None:
    drawn = random.Random(8)
    with attach(sender) as sends, attach(receiver) as gets:
        for n in range(100):
            chunk = drawn.randbytes(CHUNK)
            for client in (sends, gets):
                if drawn.random() < 0.5:
                    _cut(client)
            with sends.reserve(1, patience=PATIENCE) as pages:
                pages[0].array(shape=(CHUNK,))[:] = memoryview(chunk)
                thread = threading.Timer(drawn.random() * 0.002, _cut, (sends,))
                thread.start()
                put = sends.put(peer=receiver.peer, keys=[key(n)], pages=pages, request=str(n), last=True)
                thread.join()
                assert put.sent == 1
                _cut(sends)
            with gets.get([key(n)], request=str(n), patience=20.0) as got:
                got.check()
                _cut(gets)
                assert got[0].array().tobytes() == chunk
        sends.reserve(most(sends), patience=PATIENCE).release()
        assert (sends.epoch, gets.epoch) == (1, 1)


def _cut(client: Client) -> None:
    """Cut a connection, as nobody does on purpose."""
    with client._driver.lock:
        if client._driver.core.link is not None:
            client._driver.core.link._sock.shutdown(socket.SHUT_RDWR)


def test_an_agent_that_is_stopped_holds_nobody_up(sender: Node) -> None:
    assert sender.agent is not None
    with kvferry.connect(sender.socket, timeout=PATIENCE, bound=0.2) as client:
        sender.agent.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sender.agent.process.pid, os.WSTOPPED)
        try:
            with pytest.raises(kvferry.ExpiredError):
                client.reserve(2, patience=0.1)
        finally:
            sender.agent.process.send_signal(signal.SIGCONT)
        assert client.epoch == 1
    with attach(sender) as client:  # What was asked for in vain is nobody's.
        client.reserve(most(client), patience=PATIENCE).release()


def test_engines_come_and_go(sender: Node) -> None:
    with attach(sender) as first:
        count = most(first)
        before = _descriptors(sender)
        for n in range(1000):
            with attach(sender) as client:
                if n % 50 == 0:  # What it holds goes back with it.
                    pages = client.reserve(1, patience=PATIENCE)
                    pages[0].array()[:] = 1
        _wait_for_descriptors(sender, first, before)
        first.reserve(count, patience=PATIENCE).release()


def _descriptors(node: Node) -> int:
    assert node.agent is not None
    return len(os.listdir(f"/proc/{node.agent.process.pid}/fd"))


def _wait_for_descriptors(node: Node, client: Client, most_of_them: int) -> None:
    """Wait until the agent has closed what it had for engines that are gone; a call is a turn of its."""
    for _ in range(100_000):
        if _descriptors(node) <= most_of_them:
            return
        client.stats()
    raise AssertionError(f"{_descriptors(node)} descriptors are open, {most_of_them} were before")


@pytest.mark.filterwarnings("ignore:pages were forgotten:ResourceWarning")
def test_the_agent_takes_as_much_as_is_checked_here(receiver: Node) -> None:
    with attach(receiver) as client:
        text, host = "r" * 1024, "h" * 1016
        most = max(client.info.keys, client.info.window)
        producers = [kvferry.ProducerPeer(host, 1000, 10), *([kvferry.ProducerPeer("h", 1, 2)] * (most - 1))]
        lists = [kvferry.Blocks([7] * (65_536 - most + 1)), *([kvferry.Blocks([1])] * (most - 1))]
        few: dict[str, Any] = {"request": text, "transfer": text, "engine": text}
        for producing, blocks in ((producers[:1], lists), (producers, lists[1:])):
            pending = client.register(producers=producing, blocks=blocks, patience=1.0, **few)
            with pytest.raises(kvferry.Error) as failed:  # It says what it does not do, and does not hang up.
                pending.result(PATIENCE)
            assert not isinstance(failed.value, kvferry.LostError)
        with contextlib.suppress(kvferry.InvalidError):  # It may be none of the agent's keys.
            client.contains(["k" * 512])
        assert client.epoch == 1
        client.stats()


def test_a_call_that_the_agent_cannot_read_holds_nobody_up(receiver: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with attach(receiver) as client:
        for keys, request in ((["k"], "r" * 1025), (["k" * 513], "r")):
            with pytest.raises(kvferry.InvalidError):
                client.get(keys, request=request)
        with monkeypatch.context() as patched:
            patched.setattr("kvferry.calls.fit", lambda *_: None)  # As if a limit were not known here.
            with pytest.raises(kvferry.Error, match="request is 1025 bytes") as refused:
                client.get(["k"], request="r" * 1025, patience=PATIENCE)
            assert refused.value.code == kvferry.Code.MALFORMED
        client.stats()
        assert client.epoch == 1


def test_garbage_harms_nobody(sender: Node) -> None:
    drawn = random.Random(6)
    with attach(sender) as client, client.reserve(1, patience=PATIENCE) as pages:
        pages[0].array()[:] = 9
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"",
            b"\xff" * 4,
            (FRAME_MAX + 1).to_bytes(4, "little"),
            b"\1\0\0\0\xc1",
            b"\0\0\0\0",
            *(drawn.randbytes(drawn.randint(1, 400)) for _ in range(50)),
            *(n.to_bytes(4, "little") + drawn.randbytes(n) for n in range(1, 50)),
        ):
            with socket.socket(socket.AF_UNIX) as other:
                other.settimeout(PATIENCE)
                other.connect(sender.socket)
                try:
                    other.sendall(garbage)
                    other.shutdown(socket.SHUT_WR)
                    while other.recv(4096):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
        client.stats()
        assert pages[0].array()[0] == 9
        assert client.epoch == 1


HOLDER = """
import sys
import kvferry
client = kvferry.connect(sys.argv[1])
pages = client.reserve(int(sys.argv[2]))
pages[0].array()[:] = 5
print("holds", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_engine_held_is_free_again(sender: Node) -> None:
    with attach(sender) as client:
        count = most(client)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, sender.socket, str(count)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"holds\n"
            free = client.info.pages - count
            with pytest.raises(kvferry.OutOfMemoryError):
                client.reserve(min(count, free + 1), patience=0.2)
            holder.kill()
        client.reserve(count, patience=PATIENCE).release()
