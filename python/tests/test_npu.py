"""Pools in memory of NPUs: real agents over the software NPU, whose library KVFERRY_SOFTNPU names."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kvferry
from kvferry import npu
from nodes import (
    CHUNK,
    SENDER,
    TIMEOUT,
    Node,
    attach_client,
    chunk_key,
    free_ports,
    needs_binary,
    receiver_config,
    run_node,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = os.environ.get("KVFERRY_SOFTNPU", "")

pytestmark = [needs_binary, pytest.mark.skipif(not LIBRARY, reason="KVFERRY_SOFTNPU is not set")]


def npu_config(device: str, config: str, number: int) -> str:
    """Return a configuration for HCCL with its pool in NPU memory."""
    text = config.replace("pd_buffer_device: cpu", f"pd_buffer_device: {device}")
    text = text.replace("transfer_channel: auto", "transfer_channel: hccl")
    server = "a" if device.startswith("npu") else f"a{number}"  # HCCS cannot access host memory; RoCE can.
    return text + f"    hccl: {{server_id: {server}, device_ip: 192.0.2.{number}}}\n"


@pytest.fixture(scope="session")
def use_softnpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Let this process and its children use the software NPU; check that they follow the vendor's rules."""
    folder = tmp_path_factory.mktemp("npu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANNEMU_DIR", str(folder / "run"))
        patch.setenv("CANNEMU_REPORT", str(folder))
        for variable in ("KVFERRY_ASCENDCL", "KVFERRY_HCCL"):
            patch.setenv(variable, LIBRARY)
        patch.setenv("PYTHONPATH", str(pathlib.Path(kvferry.__file__).parent.parent))
        for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
            patch.setenv(variable, "")
        yield folder
    broken = [line for path in folder.glob("*.violations") for line in path.read_text().strip("\0\n").splitlines()]
    assert not broken


@pytest.fixture
def pair(use_softnpu: pathlib.Path, tmp_path: pathlib.Path, request: Any) -> Iterator[tuple[Node, Node]]:
    memory = request.param
    first, second = ("cpu", "cpu") if memory == "cpu" else ("npu:0", "npu:1")
    with ExitStack() as stack:
        sender = stack.enter_context(run_node(tmp_path / "s", npu_config(first, SENDER, 1)))
        receiver = stack.enter_context(run_node(tmp_path / "r", npu_config(second, receiver_config(), 2)))
        yield sender, receiver


def content(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, CHUNK, np.uint8)


@pytest.mark.parametrize("pair", ["cpu", "npu"], indirect=True)
def test_put_and_get(pair: tuple[Node, Node]) -> None:
    """One engine writes into its NPU's memory, and another engine reads it from its own."""
    with attach_client(pair[0]) as sends, attach_client(pair[1]) as gets:
        for round_ in range(3):
            keys = [chunk_key(10 * round_ + number) for number in range(4)]
            with sends.reserve(4) as pages:
                for number, page in enumerate(pages):
                    page.write(content(10 * round_ + number))
                sends.put(peer=pair[1].peer, keys=keys, pages=pages)
            with gets.get(keys, timeout=TIMEOUT) as found:
                assert len(found) == 4
                for number, page in enumerate(found):
                    assert np.array_equal(page.read(), content(10 * round_ + number))


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_addresses(pair: tuple[Node, Node]) -> None:
    """An engine's own work on the NPU stores into pages by address."""
    with attach_client(pair[0]) as sends, attach_client(pair[1]) as gets:
        with sends.reserve(1) as pages:
            (page,) = pages
            lib, stored = npu.load_library(), content(1)
            with lib.in_context(lib.activate_device(0)):
                lib.call("aclrtMemcpy", page.address, CHUNK, stored.ctypes.data, CHUNK, npu.HOST_TO_DEVICE)
            assert np.array_equal(page.read(), content(1))
            sends.put(peer=pair[1].peer, keys=[chunk_key(1)], pages=pages)
        with gets.get([chunk_key(1)], timeout=TIMEOUT) as found:
            assert np.array_equal(found[0].read(), content(1))
            with pytest.raises(kvferry.Error, match="read-only"):
                found[0].write(content(2))
            with pytest.raises(kvferry.Error, match="memory of NPU 1"):
                found[0].array()
        with pytest.raises(kvferry.Error, match="memory of NPU 0"):
            sends.pool_array()


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_slices(pair: tuple[Node, Node]) -> None:
    """A slice of a page is DeviceBytes, and does not extend beyond the page."""
    with attach_client(pair[0]) as sends, sends.reserve(1) as pages:
        memory = pages[0].memory()
        assert isinstance(memory, npu.DeviceBytes)
        memory.write(content(3))
        assert np.array_equal(memory[64:128].read(), content(3)[64:128])
        memory[64:128].write(bytes(64))
        assert np.array_equal(memory.read()[128:], content(3)[128:])
        with pytest.raises(kvferry.Error, match="at most 64"):
            memory[64:128].write(bytes(65))


ENGINE = """
import sys
import kvferry
client = kvferry.connect(sys.argv[1], timeout=120, reply_margin=120)
pages = client.reserve(4)
for page in pages:
    page.write(bytes(page.nbytes))
print(len(pages), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_killed_engine(pair: tuple[Node, Node]) -> None:
    """The pages of a killed engine are released, and its agent stops without a process in its memory."""
    sender = pair[0]
    with attach_client(sender) as watches:
        free = watches.stats()["node"]["pages_free"]
        with subprocess.Popen(
            [sys.executable, "-c", ENGINE, sender.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as engine:
            assert engine.stdout is not None
            assert engine.stdout.readline() == b"4\n"
            assert watches.stats()["node"]["pages_free"] == free - 4
            engine.kill()
        with watches.reserve(free, timeout=TIMEOUT) as pages:
            assert len(pages) == free


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_killed_agent(pair: tuple[Node, Node]) -> None:
    """A killed agent takes its memory with it: copies are lost, and everything works with the next agent."""
    sender = pair[0]
    with attach_client(sender) as sends:
        pages = sends.reserve(1)
        memory = pages[0].memory()
        sender.kill()
        sender.start()
        with sends.reserve(1, timeout=TIMEOUT) as again:
            again[0].write(content(5))
            assert np.array_equal(again[0].read(), content(5))
        assert isinstance(memory, npu.DeviceBytes)
        with pytest.raises(kvferry.LostError):
            memory.read()


def test_no_library(use_softnpu: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An engine without AscendCL gets an error that names what is missing."""
    with run_node(tmp_path / "s", npu_config("npu:0", SENDER, 1)) as node:
        tried = subprocess.run(
            [sys.executable, "-c", ENGINE, node.socket],
            env={**os.environ, npu.LIBRARY_VARIABLE: "/nowhere/libascendcl.so"},
            capture_output=True,
            check=False,
        )
    assert tried.returncode == 1
    assert b"/nowhere/libascendcl.so" in tried.stderr
    assert b"memory of NPU 0" in tried.stderr


def test_another_device(use_softnpu: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An engine that does not see the pool's NPU gets an error."""
    with run_node(tmp_path / "s", npu_config("npu:1", SENDER, 1)) as node:
        tried = subprocess.run(
            [sys.executable, "-c", ENGINE, node.socket],
            env={**os.environ, "ASCEND_RT_VISIBLE_DEVICES": "0"},
            capture_output=True,
            check=False,
        )
    assert tried.returncode == 1
    assert b"does not see NPU 1" in tried.stderr


def test_bindings() -> None:
    """All called functions exist, with arguments that ctypes checks."""
    loaded = ctypes.CDLL(LIBRARY)
    assert all(hasattr(loaded, name) for name in npu._FUNCTIONS)


# The files of LMCache-Ascend's example of disaggregated prefill, with hosts and ports filled in and sizes reduced: the
# prefill's sizes are a 4096th, so that its NPU's memory has room for one of 640 chunks.
PREFILL = """
local_cpu: False
chunk_size: 16
enable_pd: True
transfer_channel: "hccl"
pd_role: "sender"
pd_pull_mode: True
pd_delay_pull: True
pd_pull_done_port: [{done}, {spare}]
pd_use_cpu_offload: True
pd_cpu_buffer_size: 5242880
pd_peer_host: "127.0.0.1"
pd_skip_proxy_notification: True
pd_buffer_size: 7867
pd_buffer_device: "npu"
"""
DECODE = """
local_cpu: False
chunk_size: 16
enable_pd: True
transfer_channel: "hccl"
pd_role: "receiver"
pd_peer_host: "127.0.0.1"
pd_pull_mode: True
pd_delay_pull: True
pd_peer_init_port: [{init}, {spare}]
pd_peer_alloc_port: [{alloc}, {other}]
pd_buffer_size: 262144
pd_buffer_device: "npu"
"""
OWN = """extra_config:
  kvferry:
    layout: {{num_layers: 2, num_kv_heads: 1, head_size: 64, dtype: bfloat16}}
    hccl: {{server_id: a{number}, device_ip: [192.0.2.{number}, 192.0.2.9]}}
"""


def test_files_of_the_example(use_softnpu: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A request of 100 chunks goes through a prefill's host memory: a decode's NPU reads them when it fetches.

    pd_buffer_size has room for one chunk only.
    """
    done, spare, init, alloc, other, more = free_ports(6)
    sends = PREFILL.format(done=done, spare=spare) + OWN.format(number=1)
    gets = DECODE.format(init=init, spare=more, alloc=alloc, other=other) + OWN.format(number=2)
    with ExitStack() as stack:
        sender = stack.enter_context(run_node(tmp_path / "s", sends))
        receiver = stack.enter_context(run_node(tmp_path / "r", gets))
        prefill, decode = stack.enter_context(attach_client(sender)), stack.enter_context(attach_client(receiver))
        keys = [chunk_key(number) for number in range(100)]
        with prefill.reserve(len(keys), timeout=TIMEOUT) as pages:
            for number, page in enumerate(pages):
                page.write(content(number))
            prefill.put(peer=receiver.peer, keys=keys, pages=pages, request="r", last_batch=True)
            pages.release(0)  # They are lent until the decode has read them.
        found: dict[int, Any] = {}

        def take(first: int, chunks: list[Any]) -> None:
            for place, chunk in enumerate(chunks, first):
                found[place] = chunk.read()

        assert decode.fetch(keys, take, request="r", timeout=TIMEOUT).count == len(keys)
        assert all(np.array_equal(found[number], content(number)) for number in range(len(keys)))


# The files of its example of sharing: an instance that fetches with its NPU, and one that pushes from host memory.
BY_NPU = """
p2p_use_npu: True
p2p_pull_mode: True
p2p_delay_pull: True
p2p_npu_buffer_size: 262144
"""
SHARES = """
chunk_size: 16
local_cpu: True
max_local_cpu_size: 0.001
enable_async_loading: True
enable_p2p: True
p2p_host: "127.0.0.1"
p2p_init_ports: [{init}, {spare}]
p2p_lookup_ports: [{lookup}, {other}]
transfer_channel: "hccl"
{npu}enable_controller: True
lmcache_instance_id: "lmcache_instance_{number}"
controller_pull_url: "127.0.0.1:{pull}"
controller_reply_url: "127.0.0.1:{reply}"
lmcache_worker_ports: [{worker}, {more}]
"""


def shares(number: int, directory: dict[str, int], npu_keys: str) -> str:
    names = ("init", "spare", "lookup", "other", "worker", "more")
    given = dict(zip(names, free_ports(len(names)), strict=True))
    text = SHARES.format(number=number, pull=directory["pull"], reply=directory["reply"], npu=npu_keys, **given)
    return text + "extra_config:\n  lookup_backoff_time: 0.001\n" + OWN.format(number=number).partition("\n")[2]


# Each mode of sharing, as the requesting instance sees it.
MODES = {
    "push": "",
    "pull": "p2p_pull_mode: True\n",
    "delayed": "p2p_pull_mode: True\np2p_delay_pull: True\n",
}


@pytest.mark.parametrize("mode", MODES)
def test_two_pools(use_softnpu: pathlib.Path, tmp_path: pathlib.Path, mode: str) -> None:
    """Engines of two agents, each with a second pool on its NPU, share chunks in that pool."""
    second = MODES[mode] + "p2p_use_npu: True\np2p_npu_buffer_size: 131072\n"
    with ExitStack() as stack:
        directory = stack.enter_context(controller())
        nodes = [
            stack.enter_context(run_node(tmp_path / str(number), shares(number, directory, second)))
            for number in (1, 2)
        ]
        engines = [stack.enter_context(attach_client(node)) for node in nodes]
        for owner, asker in ((0, 1), (1, 0)):
            keys = [chunk_key(100 * owner + number) for number in range(4)]
            with engines[owner].reserve(4, timeout=TIMEOUT) as pages:
                for number, page in enumerate(pages):
                    page.array()[:] = content(100 * owner + number)  # Engines fill host memory.
                engines[owner].store(keys, pages)
            while engines[asker].lookup(keys).remote < 4:
                pass
            seen: list[Any] = []

            def take(_: int, chunks: list[Any], seen: list[Any] = seen) -> None:
                assert all(isinstance(chunk, npu.DeviceBytes) for chunk in chunks)
                seen.extend(chunk.read() for chunk in chunks)

            if mode == "delayed":
                assert engines[asker].shared_fetch(keys, take, request="f", timeout=TIMEOUT).count == 4
            else:
                with engines[asker].shared_get(keys, request="g", timeout=TIMEOUT) as pages:
                    assert all(page.address for page in pages)  # Host memory has no device address.
                    seen.extend(page.read() for page in pages)
            assert all(np.array_equal(seen[number], content(100 * owner + number)) for number in range(4))


@contextlib.contextmanager
def controller() -> Iterator[dict[str, int]]:
    """Run a directory, and yield its ports."""
    directory = dict(zip(("pull", "reply", "heartbeat"), free_ports(3), strict=True))
    with ExitStack() as stack:
        run = subprocess.Popen(
            [kvferry.agent.find_binary(), "directory", "--ports", json.dumps(directory), "--json"],
            stdout=subprocess.PIPE,
        )
        for end in (run.wait, run.kill):
            stack.callback(end)
        assert run.stdout is not None
        stack.callback(run.stdout.close)
        assert run.stdout.readline()
        yield directory


def test_files_of_sharing(use_softnpu: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Each instance loads what the other instance's engine stored."""
    with ExitStack() as stack:
        directory = stack.enter_context(controller())
        nodes = [
            stack.enter_context(run_node(tmp_path / str(number), shares(number, directory, keys)))
            for number, keys in ((1, BY_NPU), (2, ""))
        ]
        engines = [stack.enter_context(attach_client(node)) for node in nodes]
        for owner, asker in ((0, 1), (1, 0)):
            keys = [chunk_key(100 * owner + number) for number in range(4)]
            with engines[owner].reserve(4, timeout=TIMEOUT) as pages:
                for number, page in enumerate(pages):
                    page.write(content(100 * owner + number))
                engines[owner].store(keys, pages)
            while engines[asker].lookup(keys).remote < 4:  # Stored chunks are announced after that.
                pass
            seen: list[Any] = []

            def take(_: int, chunks: list[Any], seen: list[Any] = seen) -> None:
                seen.extend(chunk.read() if isinstance(chunk, npu.DeviceBytes) else chunk.copy() for chunk in chunks)

            if asker == 0:  # Its NPU reads when the engine fetches.
                assert engines[0].shared_fetch(keys, take, request="f", timeout=TIMEOUT).count == 4
            else:
                with engines[1].shared_get(keys, request="g", timeout=TIMEOUT) as pages:
                    seen.extend(page.read() for page in pages)
            assert all(np.array_equal(seen[number], content(100 * owner + number)) for number in range(4))
