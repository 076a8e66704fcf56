"""Tests of a connection: bytes and descriptors over a real socket pair, and the mapped memory."""

from __future__ import annotations

import array
import fcntl
import os
import pathlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

import kvferry
from kvferry.link import ForeignUserError, Link, LinkError, ReconnectBackoff
from kvferry.messages import Attached, encode
from kvferry.pool import Pool, PoolError
from kvferry.session import Session, SessionAttached

LIFE = "6f1c2d3e-4a5b-6c7d-8e9f-001122334455"


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    yield link, theirs
    link.close()
    theirs.close()


SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def sealed(size: int, seals: int = SEALS) -> int:
    fd = os.memfd_create("pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@pytest.fixture
def memory() -> Iterator[int]:
    fd = sealed(5 * 4096)
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
    session.handle_connected()
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
        events += session.receive_bytes(data)
    assert link.receive() is None
    (event,) = events
    assert isinstance(event, SessionAttached)
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
    link.close_fds()
    assert open_fds() == before


def test_other_ancillary_data_is_nobodys(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i").tobytes())])
    assert link.receive() == b"x"
    assert link.take_fd() is None


def test_what_does_not_go_at_once_goes_later(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    session = Session()
    session.handle_connected()
    payload = encode(attached(window=64))
    session.receive_bytes(len(payload).to_bytes(4, "little") + payload)
    for _ in range(20):
        session.calls.submit("get", {"keys": ["k" * 500] * 200})
    with session.pending_bytes() as rest:
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
    session.handle_connected()
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


def test_a_pool_in_huge_pages() -> None:
    """The mapping must end at a huge page: otherwise it could be neither excluded from core dumps nor unmapped."""
    fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    unit = os.fstat(fd).st_blksize
    os.ftruncate(fd, 2 * unit)
    try:
        os.posix_fallocate(fd, 0, 2 * unit)
    except OSError as error:
        os.close(fd)
        pytest.skip(f"no huge pages are free ({error}): make huge-test")
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    pool, maps = Pool(fd, attached(pages=unit // 2048 + 1, offset=0)), pathlib.Path("/proc/self/maps")
    view = pool.page(unit // 2048)
    view[:] = 7
    assert inode(fd) in maps.read_text()
    pool.release()
    assert inode(fd) not in maps.read_text()
    assert view.max() == 0
    del pool, view
    os.close(fd)


@pytest.mark.parametrize("lacking", [fcntl.F_SEAL_SEAL, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, SEALS])
def test_a_file_that_could_be_cut_off_is_not_mapped(lacking: int) -> None:
    fd = sealed(5 * 4096, SEALS & ~lacking)
    with pytest.raises(PoolError, match="its size may change"):
        Pool(fd, attached())
    os.close(fd)


def test_a_file_that_is_no_memfd_is_not_mapped(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "pool").open("w+b") as file:
        os.ftruncate(file.fileno(), 5 * 4096)
        with pytest.raises(PoolError, match="not a memfd"):
            Pool(file.fileno(), attached())


def inode(fd: int) -> str:
    """Return a file's name in /proc."""
    return f" {os.fstat(fd).st_ino} "


def test_memory_that_is_dropped_is_zeros_to_its_views(memory: int) -> None:
    os.pwrite(memory, b"\x07" * 4096 * 4, 4096)
    pool = Pool(memory, attached())
    maps = pathlib.Path("/proc/self/maps")
    assert inode(memory) in maps.read_text()
    before, other = pool.page(3), pool.page(4).data
    assert before.min() == 7
    pool.release()
    pool.release()
    assert inode(memory) not in maps.read_text()  # The system gets the memory back when the agent is gone.
    assert before.max() == other[0] == pool.page(5).max() == 0
    before[:] = 3
    assert os.pread(memory, 2048, 4096 + 3 * 2048) == b"\x07" * 2048
    del pool, other
    assert before.sum() == 3 * 2048


def test_children_and_core_files_have_none_of_it(memory: int) -> None:
    pool = Pool(memory, attached())
    for _ in range(2):
        entry = pathlib.Path("/proc/self/smaps").read_text().split(f"{pool.bytes.ctypes.data - 4096:x}-")[1]
        flags = entry.split("VmFlags:")[1].splitlines()[0].split()
        assert {"dc", "dd"} <= set(flags)  # Not inherited by a fork, and not in core dumps.
        pool.release()


STRANGER = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
if len(sys.argv) > 2:
    os.chown(sys.argv[1], 4711, -1)
else:
    os.setuid(4711)
server.listen()
print(flush=True)
print(len(server.accept()[0].recv(100)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be two users")
@pytest.mark.parametrize("file", [False, True])
def test_nothing_is_sent_to_another_users_process(tmp_path: pathlib.Path, *, file: bool) -> None:
    path = str(tmp_path / "s")
    command = [sys.executable, "-c", STRANGER, path, *(["file"] if file else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        with pytest.raises(kvferry.Error, match=r"user of the (process|socket) at .* is 4711, want 0 or 0") as refused:
            kvferry.connect(path)
        assert refused.value.code == kvferry.Code.REFUSED
        assert stranger.stdout.readline() == "0\n"  # It was connected to, and received nothing.


def test_a_user_without_a_number_here_is_a_stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    link = Link.connect(str(tmp_path / "s"))
    assert link.server_pid == os.getpid()
    link.close()
    (tmp_path / "overflowuid").write_text(f"{os.geteuid()}\n")
    monkeypatch.setattr("kvferry.link._OVERFLOW_UID_FILE", tmp_path / "overflowuid")
    with pytest.raises(ForeignUserError):
        Link.connect(str(tmp_path / "s"))
    listener.close()


def test_a_path_that_is_too_long_is_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / ("x" * (108 - len(str(tmp_path))))
    with pytest.raises(kvferry.InvalidError, match=f"path is {len(str(path))} bytes, want at most 107; .*shorter"):
        kvferry.connect(path)
    with pytest.raises(kvferry.InvalidError, match="abstract"):
        kvferry.connect("\0agent")


@pytest.mark.parametrize("kind", ["a directory", "a file", "no socket"])
def test_what_can_never_be_a_socket_is_not_waited_for(tmp_path: pathlib.Path, kind: str) -> None:
    path = {"a directory": tmp_path, "a file": tmp_path / "node.yaml", "no socket": pathlib.Path("/dev/null")}[kind]
    if kind == "a file":
        path.write_text("enable_pd: true")
    with pytest.raises(kvferry.InvalidError, match=f"path is {re.escape(str(path))}, {kind}, want a socket; "):
        kvferry.connect(path)


def test_a_pool_may_be_empty(memory: int) -> None:
    assert Pool(memory, attached(pages=0)).bytes.size == 0


def test_views_keep_the_memory(memory: int) -> None:
    view = Pool(memory, attached()).page(0)  # Nothing else refers to the pool.
    view[:] = 3
    assert view.sum() == 3 * 2048


CHILD = """
import fcntl, os, sys
from kvferry.messages import Attached
from kvferry.pool import Pool
fd = os.memfd_create("pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.ftruncate(fd, 4096)
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
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
    pace = ReconnectBackoff()
    delays = [pace.next_delay() for _ in range(12)]
    assert delays[0] == 0.0
    assert delays == sorted(delays)
    assert delays[-1] == ReconnectBackoff.MAX_DELAY
    pace.reset()
    assert pace.next_delay() == 0.0
