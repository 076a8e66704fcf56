"""Tests of a connection: bytes and descriptors over a real pair of sockets, and the memory that comes so."""

from __future__ import annotations

import array
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvferry.link import Link, LinkError, Pace
from kvferry.messages import Attached, encode
from kvferry.pool import Pool, PoolError
from kvferry.session import Joined, Session

LIFE = "6f1c2d3e-4a5b-6c7d-8e9f-001122334455"


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    yield link, theirs
    link.close()
    theirs.close()


@pytest.fixture
def memory() -> Iterator[int]:
    fd = os.memfd_create("pool")
    os.ftruncate(fd, 5 * 4096)
    yield fd
    os.close(fd)


def attached(**values: int) -> Attached:
    fields = {"session": 1, "offset": 4096, "page_bytes": 2048, "pages": 8, "window": 4, **values}
    return Attached(v=1, life=LIFE, **fields)  # type: ignore[arg-type]


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_the_descriptor_comes_with_the_first_byte(pair: tuple[Link, socket.socket], memory: int) -> None:
    link, theirs = pair
    session = Session()
    session.connected()
    assert link.send(session)
    assert theirs.recv(4096)[4:].startswith(b"\x82\xa4type\xb0KvfAttachRequest")
    payload = encode(attached())
    said = len(payload).to_bytes(4, "little") + payload
    socket.send_fds(theirs, [said[:1]], [memory])
    events = []
    for byte in (None, *said[1:]):  # One by one.
        if byte is not None:
            theirs.send(bytes([byte]))
        data = link.receive()
        assert data is not None
        events += session.receive(data)
    assert link.receive() is None
    (event,) = events
    assert isinstance(event, Joined)
    fd = link.take_fd()
    assert fd is not None
    assert not os.get_inheritable(fd)
    pool = Pool(fd, event.info)
    os.close(fd)
    os.pwrite(memory, b"theirs", 4096 + 3 * 2048)
    assert bytes(pool.page(3, 6)) == b"theirs"
    pool.page(7)[:] = 9
    assert os.pread(memory, 2048, 4096 + 7 * 2048) == b"\x09" * 2048


def test_descriptors_that_nobody_takes_are_closed(pair: tuple[Link, socket.socket], memory: int) -> None:
    link, theirs = pair
    before = open_fds()
    for _ in range(3):
        socket.send_fds(theirs, [b"x"], [memory, memory])
        assert link.receive() == b"x"
    assert len(open_fds()) == len(before) + 6
    fd = link.take_fd()
    assert fd is not None
    assert len(open_fds()) == len(before) + 1
    os.close(fd)
    assert open_fds() == before
    socket.send_fds(theirs, [b"x"], [memory] * 20)
    with pytest.raises(LinkError, match="more descriptors"):
        link.receive()
    link.drop_fds()
    assert open_fds() == before


def test_other_ancillary_data_is_nobodys(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i").tobytes())])
    assert link.receive() == b"x"
    assert link.take_fd() is None


def test_what_does_not_go_at_once_goes_later(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    session = Session()
    session.connected()
    payload = encode(attached(window=64))
    session.receive(len(payload).to_bytes(4, "little") + payload)
    for _ in range(20):
        session.calls.submit("get", {"keys": ["k" * 500] * 200})
    with session.outgoing() as rest:
        want = bytes(rest)
    assert len(want) > 1 << 20
    theirs.setblocking(False)
    got, refused = b"", 0
    while len(got) < len(want):
        refused += not link.send(session)
        try:
            got += theirs.recv(65536)
        except BlockingIOError:
            continue
    assert got == want
    assert refused > 1


def test_the_end_of_the_stream_is_an_error(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    theirs.send(b"last")
    theirs.close()
    assert link.receive() == b"last"
    with pytest.raises(LinkError, match="closed"):
        link.receive()
    session = Session()
    session.connected()
    with pytest.raises(LinkError):
        link.send(session)


def test_nobody_listens(tmp_path: pathlib.Path) -> None:
    before = open_fds()
    with pytest.raises(FileNotFoundError):
        Link.connect(str(tmp_path / "none"))
    assert open_fds() == before


@pytest.mark.parametrize("values", [{"pages": 9}, {"offset": 4097}, {"page_bytes": 2049}, {"offset": 1 << 63}])
def test_a_pool_beyond_its_file_is_not_mapped(memory: int, values: dict[str, int]) -> None:
    with pytest.raises(PoolError, match="its file at 20480"):
        Pool(memory, attached(**values))


def test_a_pool_may_be_empty(memory: int) -> None:
    assert Pool(memory, attached(pages=0)).bytes.size == 0


def test_views_keep_the_memory(memory: int) -> None:
    view = Pool(memory, attached()).page(0)  # Nothing else keeps the pool.
    view[:] = 3
    assert view.sum() == 3 * 2048


CHILD = """
import os, sys
from kvferry.messages import Attached
from kvferry.pool import Pool
fd = os.memfd_create("pool")
os.ftruncate(fd, 4096)
pool = Pool(fd, Attached(v=1, life="x", page_bytes=4096, pages=1))
pool.page(0)[:] = 5
child = os.fork()
if not child:
    pool.page(0)[0]  # It is not there: this ends the child.
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + 100)
"""


def test_a_child_has_none_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == 100 - 11  # SIGSEGV


def test_attempts_come_less_and_less_often() -> None:
    pace = Pace()
    delays = [pace.delay() for _ in range(12)]
    assert delays[0] == 0.0
    assert delays == sorted(delays)
    assert delays[-1] == Pace.MOST
    pace.worked()
    assert pace.delay() == 0.0
