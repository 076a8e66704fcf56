"""Pools in memory of NPUs: real agents over the software NPU, whose library KVFERRY_SOFTNPU names."""

from __future__ import annotations

import ctypes
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
from nodes import CHUNK, PATIENCE, SENDER, Node, attach, key, needed, receives, running

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = os.environ.get("KVFERRY_SOFTNPU", "")

pytestmark = [needed, pytest.mark.skipif(not LIBRARY, reason="KVFERRY_SOFTNPU is not set")]


def on(device: str, config: str, number: int) -> str:
    """Move a configuration to HCCL, with its pool in such memory."""
    text = config.replace("pd_buffer_device: cpu", f"pd_buffer_device: {device}")
    text = text.replace("transfer_channel: auto", "transfer_channel: hccl")
    server = "a" if device.startswith("npu") else f"a{number}"  # HCCS does not reach memory of a host; RoCE does.
    return text + f"    hccl: {{server_id: {server}, device_ip: 192.0.2.{number}}}\n"


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Have this process and those that it starts use the software NPU; no rule of the vendor's is broken."""
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
def pair(world: pathlib.Path, tmp_path: pathlib.Path, request: Any) -> Iterator[tuple[Node, Node]]:
    memory = request.param
    first, second = ("cpu", "cpu") if memory == "cpu" else ("npu:0", "npu:1")
    with ExitStack() as stack:
        sender = stack.enter_context(running(tmp_path / "s", on(first, SENDER, 1)))
        receiver = stack.enter_context(running(tmp_path / "r", on(second, receives(), 2)))
        yield sender, receiver


def content(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, CHUNK, np.uint8)


@pytest.mark.parametrize("pair", ["cpu", "npu"], indirect=True)
def test_put_and_get(pair: tuple[Node, Node]) -> None:
    """What one engine writes into its NPU's memory another reads out of its own."""
    with attach(pair[0]) as sends, attach(pair[1]) as gets:
        for round_ in range(3):
            keys = [key(10 * round_ + number) for number in range(4)]
            with sends.reserve(4) as pages:
                for number, page in enumerate(pages):
                    page.write(content(10 * round_ + number))
                sends.put(peer=pair[1].peer, keys=keys, pages=pages)
            with gets.get(keys, patience=PATIENCE) as found:
                assert len(found) == 4
                for number, page in enumerate(found):
                    assert np.array_equal(page.read(), content(10 * round_ + number))


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_addresses(pair: tuple[Node, Node]) -> None:
    """An engine's own work on the NPU stores into pages by their addresses."""
    with attach(pair[0]) as sends, attach(pair[1]) as gets:
        with sends.reserve(1) as pages:
            (page,) = pages
            lib, stored = npu.library(), content(1)
            with lib.inside(lib.use(0)):
                lib.call("aclrtMemcpy", page.address, CHUNK, stored.ctypes.data, CHUNK, npu.HOST_TO_DEVICE)
            assert np.array_equal(page.read(), content(1))
            sends.put(peer=pair[1].peer, keys=[key(1)], pages=pages)
        with gets.get([key(1)], patience=PATIENCE) as found:
            assert np.array_equal(found[0].read(), content(1))
            with pytest.raises(kvferry.Error, match="only to be read"):
                found[0].write(content(2))
            with pytest.raises(kvferry.Error, match="memory of NPU 1"):
                found[0].array()
        with pytest.raises(kvferry.Error, match="memory of NPU 0"):
            sends.pool()


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_slices(pair: tuple[Node, Node]) -> None:
    """A stretch of a page is one, too, and does not reach beyond it."""
    with attach(pair[0]) as sends, sends.reserve(1) as pages:
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
client = kvferry.connect(sys.argv[1], timeout=120, bound=120)
pages = client.reserve(4)
for page in pages:
    page.write(bytes(page.nbytes))
print(len(pages), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_killed_engine(pair: tuple[Node, Node]) -> None:
    """What a killed engine held comes back, and its agent then ends without a process in its memory."""
    sender = pair[0]
    with attach(sender) as watches:
        free = watches.stats()["node"]["pages_free"]
        with subprocess.Popen(
            [sys.executable, "-c", ENGINE, sender.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as engine:
            assert engine.stdout is not None
            assert engine.stdout.readline() == b"4\n"
            assert watches.stats()["node"]["pages_free"] == free - 4
            engine.kill()
        with watches.reserve(free, patience=PATIENCE) as pages:
            assert len(pages) == free


@pytest.mark.parametrize("pair", ["npu"], indirect=True)
def test_killed_agent(pair: tuple[Node, Node]) -> None:
    """An agent that was killed takes its memory with it: copies are lost, and with the next agent all goes on."""
    sender = pair[0]
    with attach(sender) as sends:
        pages = sends.reserve(1)
        memory = pages[0].memory()
        sender.kill()
        sender.start()
        with sends.reserve(1, patience=PATIENCE) as again:
            again[0].write(content(5))
            assert np.array_equal(again[0].read(), content(5))
        assert isinstance(memory, npu.DeviceBytes)
        with pytest.raises(kvferry.LostError):
            memory.read()


def test_no_library(world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An engine without AscendCL is told what is missing."""
    with running(tmp_path / "s", on("npu:0", SENDER, 1)) as node:
        tried = subprocess.run(
            [sys.executable, "-c", ENGINE, node.socket],
            env={**os.environ, npu.LIBRARY_VARIABLE: "/nowhere/libascendcl.so"},
            capture_output=True,
            check=False,
        )
    assert tried.returncode == 1
    assert b"/nowhere/libascendcl.so" in tried.stderr
    assert b"memory of NPU 0" in tried.stderr


def test_another_device(world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An engine that does not see the pool's NPU is told so."""
    with running(tmp_path / "s", on("npu:1", SENDER, 1)) as node:
        tried = subprocess.run(
            [sys.executable, "-c", ENGINE, node.socket],
            env={**os.environ, "ASCEND_RT_VISIBLE_DEVICES": "0"},
            capture_output=True,
            check=False,
        )
    assert tried.returncode == 1
    assert b"does not see NPU 1" in tried.stderr


def test_bindings() -> None:
    """All functions that are called are there, with arguments that ctypes checks."""
    loaded = ctypes.CDLL(LIBRARY)
    assert all(hasattr(loaded, name) for name in npu._FUNCTIONS)
