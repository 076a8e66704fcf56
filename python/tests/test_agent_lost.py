"""Effects of killed, stopped and disconnected agents and engines, with real processes."""

from __future__ import annotations

import os
import pathlib
import random
import socket
import subprocess
import sys
import threading

import pytest

import kvferry
from kvferry import Client, LostError
from nodes import CHUNK, TIMEOUT, Node, attach_client, chunk_key, max_reservable, needs_binary, stopped_process

pytestmark = needs_binary


def test_an_agent_is_killed_and_another_comes(sender: Node) -> None:
    with attach_client(sender) as client:
        life = client.info.life
        pages = client.reserve(2, timeout=TIMEOUT)
        view = pages[0].array()
        view[:] = 1
        sender.kill()
        sender.start()
        fresh = _retry_until_success(client)
        assert client.info.life != life
        assert pages.void
        with pytest.raises(LostError):
            pages[0].array()
        view[:] = 2  # It is not memory of the new agent.
        pages.release()
        with fresh:
            fresh[0].array()[:] = 3


def test_a_killed_agents_memory_is_given_up_before_another_comes(receiver: Node, sender: Node) -> None:
    """The next agent may need the memory, so the grace period does not apply."""
    with kvferry.connect(receiver.socket, timeout=TIMEOUT, grace=2 * TIMEOUT) as client, attach_client(sender) as sends:
        with sends.reserve(1, timeout=TIMEOUT) as pages:
            pages[0].array()[:] = 7
            sends.put(peer=receiver.peer, keys=[chunk_key(1)], pages=pages, request="r", last_batch=True)
        assert _count_pools() == 2
        got = client.get([chunk_key(1)], request="r")
        view = got[0].array()
        assert view.min() == 7
        with pytest.raises(LostError, match="views contain zeros"), got:
            _kill_agent(receiver, client)
        assert got.void
        assert _count_pools() == 1
        assert view.max() == 0
        receiver.start()
        assert client.contains([chunk_key(1)]) == 0


def _count_pools() -> int:
    """Count the pools that are mapped in this process."""
    return pathlib.Path("/proc/self/maps").read_text().count("memfd:kvferry")


def _kill_agent(node: Node, client: Client) -> None:
    """Kill an agent, and wait until its client has noticed."""
    node.kill()
    while client.epoch == 1:
        client._driver.waker()
    with client._driver.lock:  # The thread is in the middle of a turn.
        pass


def _retry_until_success(client: Client) -> kvferry.Pages:
    """Repeat a call until an agent is there again, as an engine does with each request."""
    while True:
        try:
            return client.reserve(1, timeout=TIMEOUT)
        except LostError:
            continue


def test_a_cut_at_any_time_loses_nothing(sender: Node, receiver: Node) -> None:
    drawn = random.Random(8)
    with attach_client(sender) as sends, attach_client(receiver) as gets:
        for n in range(100):
            chunk = drawn.randbytes(CHUNK)
            for client in (sends, gets):
                if drawn.random() < 0.5:
                    _cut_connection(client)
            with sends.reserve(1, timeout=TIMEOUT) as pages:
                pages[0].array(shape=(CHUNK,))[:] = memoryview(chunk)
                thread = threading.Timer(drawn.random() * 0.002, _cut_connection, (sends,))
                thread.start()
                put = sends.put(peer=receiver.peer, keys=[chunk_key(n)], pages=pages, request=str(n), last_batch=True)
                thread.join()
                assert put.sent == 1
                _cut_connection(sends)
            with gets.get([chunk_key(n)], request=str(n), timeout=20.0) as got:
                got.require_all()
                _cut_connection(gets)
                assert got[0].array().tobytes() == chunk
        sends.reserve(max_reservable(sends), timeout=TIMEOUT).release()
        assert (sends.epoch, gets.epoch) == (1, 1)


def _cut_connection(client: Client) -> None:
    """Cut a connection."""
    with client._driver.lock:
        if client._driver.core.link is not None:
            client._driver.core.link._sock.shutdown(socket.SHUT_RDWR)


def test_an_agent_that_is_stopped_holds_nobody_up(sender: Node) -> None:
    assert sender.agent is not None
    with kvferry.connect(sender.socket, timeout=TIMEOUT, reply_margin=0.2) as client:
        with stopped_process(sender.agent.process), pytest.raises(kvferry.ExpiredError):
            client.reserve(2, timeout=0.1)
        assert client.epoch == 1
    with attach_client(sender) as client:  # Pages of abandoned calls are free.
        client.reserve(max_reservable(client), timeout=TIMEOUT).release()


def test_engines_come_and_go(sender: Node) -> None:
    with attach_client(sender) as first:
        count = max_reservable(first)
        before = _descriptors(sender)
        for n in range(1000):
            with attach_client(sender) as client:
                if n % 50 == 0:  # Its pages are released with it.
                    pages = client.reserve(1, timeout=TIMEOUT)
                    pages[0].array()[:] = 1
        _wait_for_descriptors(sender, first, before)
        first.reserve(count, timeout=TIMEOUT).release()


def _descriptors(node: Node) -> int:
    assert node.agent is not None
    return len(os.listdir(f"/proc/{node.agent.process.pid}/fd"))


def _wait_for_descriptors(node: Node, client: Client, most_of_them: int) -> None:
    """Wait until the agent has closed the descriptors of former engines; each call is one turn of its loop."""
    for _ in range(100_000):
        if _descriptors(node) <= most_of_them:
            return
        client.stats()
    raise AssertionError(f"{_descriptors(node)} descriptors are open, {most_of_them} were before")


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
    with attach_client(sender) as client:
        count = max_reservable(client)
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
                client.reserve(min(count, free + 1), timeout=0.2)
            holder.kill()
        client.reserve(count, timeout=TIMEOUT).release()
