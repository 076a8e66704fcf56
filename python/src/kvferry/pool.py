"""The pool's memory, which is the agent's and is mapped here once for each life of the agent."""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvferry.values import Pinned

if TYPE_CHECKING:
    from kvferry.messages import Attached
    from kvferry.npu import DeviceBytes, DevicePool

Bytes = npt.NDArray[np.uint8]

# What keeps the size of the agent's file, whoever has it.
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
# From Linux's mman.h.
_MAP_NORESERVE = 0x4000
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

# What unmaps all that is mapped here, by addresses: also of lives that are over and of clients that are closed, while a
# view is left.
_mapped: dict[int, weakref.finalize[..., Any]] = {}


class PoolError(OSError):
    """The file that came is not the pool that was described."""


def _map(length: int, flags: int, fd: int) -> int:
    """Map memory that children do not inherit, who would write into others' pages, and that core files leave out."""
    address = _libc.mmap(None, length, _READ_WRITE, flags, fd, 0)
    if address == _FAILED:
        raise _failed("mmap")
    for advice in (mmap.MADV_DONTFORK, mmap.MADV_DONTDUMP):
        if _libc.madvise(address, length, advice):
            error = _failed("madvise")
            _unmap(address, length)
            raise error
    return int(address)


def _unmap(address: int, length: int) -> None:
    _mapped.pop(address, None)
    _libc.munmap(address, length)


def _failed(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


class _Memory:
    """A mapping that ends when nothing looks at it any more. One of module mmap would keep the file open beside it."""

    def __init__(self, fd: int, length: int) -> None:
        """Map the beginning of a file, shared and writable."""
        self._length = length
        self._address = _map(length, mmap.MAP_SHARED, fd)
        # Views keep this array, and it keeps the mapping.
        kind: Any = type("_Array", (ctypes.c_ubyte * length,), {})  # Of a class of its own: only those are finalized.
        self.array = kind.from_address(self._address)
        end = weakref.finalize(self.array, _unmap, self._address, length)
        end.atexit = False  # Threads may still look at it.
        _mapped[self._address] = end

    def empty(self) -> None:
        """Put memory of this process alone in the file's place, all zeros. Views stay good, and look at that."""
        # It is there before the file's mapping goes: where there is no room for it all stays as it was.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        zeros, size = _map(self._length, flags, -1), self._length
        if _libc.mremap(zeros, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, self._address) == _FAILED:
            error = _failed("mremap")
            _unmap(zeros, size)
            raise error


class Pool:
    """The pages of one life of an agent.

    When the session is over the memory is dropped, so that an agent that is started anew finds room for its own. Views
    that are left read zeros then, and what is written to them goes nowhere: nothing faults.

    An agent may have a second pool beside the file's, in memory of an NPU, whose pages have numbers of their own.
    """

    def __init__(self, fd: int, info: Attached, second: DevicePool | None = None) -> None:
        """Map the file. The descriptor stays the caller's."""
        self.second = second
        self._second_from = info.device_from
        self.life = info.life
        self.page_bytes = info.page_bytes
        self.count = info.pages
        self._memory: _Memory | None = None
        self._kept = False
        length = info.pages * info.page_bytes
        _look_sealed(fd)
        status = os.fstat(fd)
        size = status.st_size  # From here on it cannot change.
        if info.offset + length > size:  # To touch what is behind the end of a file ends the process.
            raise PoolError(f"the pool ends at byte {info.offset + length}, its file at {size}")
        if not length:
            self.bytes: Bytes = np.empty(0, np.uint8)
            return
        # A mapping of huge pages ends with a whole one, or could not be unmapped.
        unit = max(status.st_blksize, 1)
        end = -(-(info.offset + length) // unit) * unit
        self._memory = _Memory(fd, min(end, size))
        self.bytes = np.frombuffer(self._memory.array, np.uint8, length, info.offset)

    def at(self, number: int, length: int | None = None) -> Bytes | DeviceBytes:
        """Give the same of a page of either pool: a view, or what stands for memory of an NPU."""
        if self.second is not None and number >= self._second_from:
            return self.second.page(number - self._second_from, length)
        return self.page(number, length)

    def page(self, number: int, length: int | None = None) -> Bytes:
        """Give the first bytes of a page of the file, all of them by default: a view."""
        begin = number * self.page_bytes
        return self.bytes[begin : begin + (self.page_bytes if length is None else length)]

    def keep(self) -> Bytes:
        """Give all pages, and have them stay what they are when the session is over: an engine computes there."""
        self._kept = True
        return self.bytes

    def drop(self) -> None:
        """Give the memory up; see the class. What is kept stays until nothing looks at it any more."""
        if self.second is not None:
            self.second.drop()
        memory, self._memory = self._memory, None
        if memory is not None and not self._kept:
            memory.empty()


def _look_sealed(fd: int) -> None:
    """Refuse a file that somebody could cut off under the mapping: to touch what is gone then ends the process."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise PoolError(f"the file that came is no memfd, as an agent's is: {error}") from error
    if seals & _SEALS != _SEALS:
        raise PoolError(f"the file that came has seals {seals:#x}, and an agent's has {_SEALS:#x}: its size may change")


def keep_inherited() -> None:
    """Have a child never unmap what its parent mapped: other things may be at those addresses there."""
    for end in list(_mapped.values()):
        end.detach()
    _mapped.clear()


def torch_module() -> Any:
    """Import torch, which kvferry needs only for tensors."""
    return importlib.import_module("torch")


# cudaHostRegisterPortable: every context of the process knows it, so each of its threads and devices may copy.
_PORTABLE = 1


def pin(pool: Pool | DevicePool) -> Pinned:
    """Have CUDA know the pool's memory, so that copies between it and devices need no copy in between."""
    if not isinstance(pool, Pool):
        return Pinned(False, 0, f"nothing was pinned: the pool is memory of {pool.name}")
    try:
        torch = torch_module()
    except ImportError as error:
        return Pinned(False, 0, f"nothing was pinned: no torch ({error})")
    if not torch.cuda.is_available():
        return Pinned(False, 0, "nothing was pinned: torch finds no CUDA device")
    if not pool.bytes.nbytes:
        return Pinned(False, 0, "nothing was pinned: the pool has no memory here")
    code = int(torch.cuda.cudart().cudaHostRegister(pool.bytes.ctypes.data, pool.bytes.nbytes, _PORTABLE))
    if code:
        return Pinned(False, 0, f"nothing was pinned: cudaHostRegister gave error {code}")
    return Pinned(True, pool.bytes.nbytes, f"{pool.bytes.nbytes} bytes of the pool are registered with CUDA")


def unpin(pool: Pool | DevicePool) -> None:
    """Undo a pin that was done."""
    if not isinstance(pool, Pool):
        return
    torch_module().cuda.cudart().cudaHostUnregister(pool.bytes.ctypes.data)
