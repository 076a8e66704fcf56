"""Tests of dropped handles, dropped clients, and of what a child process inherits."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

import kvferry
from kvferry import Code, Error
from model_agent import execute, ignore_call
from operation_cases import answer_code
from stub_agent import TIMEOUT, StubAgent


def test_a_forgotten_handle_is_given_back(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        for make, op in (
            (lambda: client.reserve(1), "release"),
            (lambda: client.begin_prefill(keys=["k"], request="r"), "drop_prefill"),
        ):
            handle: Any = make()
            number = handle.number
            with pytest.warns(ResourceWarning, match="dropped"):
                del handle
                gc.collect()
            call = stub.wait_for_call(op)
            assert call.get("target", call.get("prefill")) == number
        with client.reserve(1) as pages:
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del pages
            gc.collect()


def test_a_prefill_that_stands_is_given_back_by_the_collector(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        prefill = client.begin_prefill(keys=["k"], request="r")
        number = prefill.number
        stub.agent.on_call = answer_code("drop_prefill", Code.TOO_MANY)
        with pytest.raises(Error):
            prefill.abort()
        stub.agent.on_call = execute
        with pytest.warns(ResourceWarning, match="dropped"):
            del prefill
            gc.collect()
        assert stub.wait_for_call("drop_prefill", 2)["prefill"] == number


def test_a_forgotten_client_detaches(stub: StubAgent) -> None:
    client = kvferry.connect(stub.path)
    thread = client._thread
    with pytest.warns(ResourceWarning, match="client was dropped"):
        del client
        gc.collect()
    thread.join()
    stub.wait_for(lambda agent: not agent.connected)


def test_a_closed_client_serves_nobody(stub: StubAgent) -> None:
    stub.agent.on_call = ignore_call
    client = kvferry.connect(stub.path)
    failures: list[BaseException] = []

    def get() -> None:
        try:
            client.get(["k"], timeout=TIMEOUT)
        except kvferry.ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    stub.wait_for_call("get")
    client.close()
    thread.join()
    assert len(failures) == 1
    client.close()
    with pytest.raises(kvferry.ClosedError):
        client.stats()
    stub.wait_for(lambda agent: not agent.connected)


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


# One pool has a view left and one is complete; no client refers to either.
MAPPINGS = """
import ctypes, fcntl, gc, os
import kvferry.core
from kvferry.messages import Attached
from kvferry.pool import Pool
SIZE = 4 * 4096
fd = os.memfd_create("pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.ftruncate(fd, SIZE)
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
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
    done = subprocess.run([sys.executable, "-c", MAPPINGS], env=environment, check=False, timeout=TIMEOUT)
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
        stub.wait_for(lambda agent: not agent.connected)  # The grandchild still runs, and reads.
        process.stdin.close()
    assert [m["op"] for m in stub.agent.received[1:]] == ["reserve", "stats"]


def test_what_the_agent_has_no_room_to_take_back_does_not_wait_for_another_call(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        stub.agent.on_call = answer_code("release", Code.TOO_MANY)
        pages.release(timeout=0)
        stub.wait_for_call("release", 2)
        stub.agent.on_call = execute
        stub.wait_for(lambda agent: not agent.held_pages)
