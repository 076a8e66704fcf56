"""Real agents of a sender and a receiver. These tests run if KVFERRY_BIN names the command."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import kvferry
from kvferry import Client, agent

needs_binary = pytest.mark.skipif(agent.BINARY_VARIABLE not in os.environ, reason="KVFERRY_BIN is not set")

# How long any step may take, in seconds; long enough for slow machines.
TIMEOUT = 120.0

HOST = "127.0.0.1"

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

# Two layers, keys and values, of 16 tokens with 64 elements of 2 bytes.
CHUNK = 2 * 2 * 16 * 64 * 2


def receiver_config() -> str:
    """Return the configuration of a receiver."""
    init, alloc = free_ports(2)
    address = f"pd_peer_host: {HOST}\npd_peer_init_port: {init}\npd_peer_alloc_port: {alloc}\n"
    return address + SENDER.replace("pd_role: sender", "pd_role: receiver")


# The next port to try. The kernel gives ports from 32768 on to connections of any process, so that such a port may be
# taken before an agent listens on it.
_PORTS = itertools.count(20000 + os.getpid() % 8000)


def free_ports(count: int) -> list[int]:
    """Return unused ports, which no later call returns."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            ports.append(port)
    return ports


def chunk_key(number: int) -> str:
    """Return a key in LMCache's format."""
    return f"model@1@0@{number:x}@bfloat16"


@dataclass
class Node:
    """An agent that can be restarted at the same socket."""

    folder: pathlib.Path
    config: str
    agent: agent.Agent | None = None

    @property
    def socket(self) -> str:
        return str(self.folder / "a.sock")

    def start(self) -> Node:
        path = self.folder / "node.yaml"
        path.write_text(self.config)
        with (self.folder / "log").open("ab") as log:
            self.agent = agent.start(path, self.socket, timeout=TIMEOUT, stderr=log)
        return self

    def kill(self) -> None:
        assert self.agent is not None
        self.agent.kill()

    @property
    def peer(self) -> kvferry.Peer:
        assert self.agent is not None
        return kvferry.Peer(HOST, self.agent.init_port, self.agent.alloc_port)


@contextlib.contextmanager
def run_node(folder: pathlib.Path, config: str) -> Iterator[Node]:
    """Run an agent in its own folder, and stop it."""
    folder.mkdir()
    node = Node(folder, config).start()
    try:
        yield node
    finally:
        if node.agent is not None:
            node.agent.stop(TIMEOUT)


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Stop a process with SIGSTOP, and wait until it has stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@contextlib.contextmanager
def stopped_process(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop a process for the length of a block."""
    stop_process(process)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def attach_client(node: Node) -> Client:
    return kvferry.connect(node.socket, timeout=TIMEOUT, reply_margin=TIMEOUT)


def max_reservable(client: Client) -> int:
    """Return how many pages one engine can reserve."""
    for count in range(client.info.pages, 0, -1):
        try:
            client.reserve(count, timeout=TIMEOUT).release()
        except kvferry.InvalidError:  # More than the engine's share.
            continue
        return count
    raise AssertionError("no page can be reserved")
