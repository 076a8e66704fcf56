"""The memory of the agent's pool, mapped into this process once for each incarnation of the agent."""

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

from kvferry.values import PinResult

if TYPE_CHECKING:
    from kvferry.messages import Attached
    from kvferry.npu import DeviceBytes, DevicePool

Bytes = npt.NDArray[np.uint8]

# The seals that fix the size of the agent's file, whichever process has it open.
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

# Finalizers that unmap memory, by address. They include mappings of earlier incarnations and of closed clients for as
# long as a view refers to them.
_mappings: dict[int, weakref.finalize[..., Any]] = {}


class PoolError(OSError):
    """The received file is not the described pool."""


def _map_memory(length: int, flags: int, fd: int) -> int:
    """Map memory that child processes do not inherit (they would write into pages of others) and core dumps omit."""
    address = _libc.mmap(None, length, _READ_WRITE, flags, fd, 0)
    if address == _FAILED:
        raise _os_error("mmap")
    for advice in (mmap.MADV_DONTFORK, mmap.MADV_DONTDUMP):
        if _libc.madvise(address, length, advice):
            error = _os_error("madvise")
            _unmap_memory(address, length)
            raise error
    return int(address)


def _unmap_memory(address: int, length: int) -> None:
    _mappings.pop(address, None)
    _libc.munmap(address, length)


def _os_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


class _Memory:
    """A mapping that is removed when no view refers to it any more. A mapping of the module mmap would keep the file
    open.
    """

    def __init__(self, fd: int, length: int) -> None:
        """Map the beginning of a file, shared and writable."""
        self._length = length
        self._address = _map_memory(length, mmap.MAP_SHARED, fd)
        # Views refer to this array, and the array refers to the mapping.
        # Each mapping has its own class, because only instances of such classes can have a finalizer.
        kind: Any = type("_Array", (ctypes.c_ubyte * length,), {})
        self.array = kind.from_address(self._address)
        end = weakref.finalize(self.array, _unmap_memory, self._address, length)
        end.atexit = False  # Threads may still use the memory.
        _mappings[self._address] = end

    def replace_by_zeros(self) -> None:
        """Replace the file's memory by private memory that is all zeros. Views stay valid and see the zeros."""
        # The new memory exists before the file's mapping is removed: if there is no room for it, nothing changes.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        zeros, size = _map_memory(self._length, flags, -1), self._length
        if _libc.mremap(zeros, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, self._address) == _FAILED:
            error = _os_error("mremap")
            _unmap_memory(zeros, size)
            raise error


class Pool:
    """The pages of one incarnation of an agent.

    When the session ends the memory is released, so that a restarted agent finds room for its own pool. Remaining views
    then read zeros, and writes to them are lost; no access faults.

    An agent may have a second pool in memory of an NPU, whose pages have their own page numbers.
    """

    def __init__(self, fd: int, info: Attached, device_pool: DevicePool | None = None) -> None:
        """Map the file. The caller keeps the descriptor."""
        self.device_pool = device_pool
        self._first_device_page = info.device_from
        self.incarnation = info.life
        self.page_bytes = info.page_bytes
        self.page_count = info.pages
        self._memory: _Memory | None = None
        self._is_kept = False
        length = info.pages * info.page_bytes
        _check_sealed(fd)
        status = os.fstat(fd)
        size = status.st_size  # The seals ensure that the size cannot change from here on.
        if info.offset + length > size:  # An access beyond the end of a file would kill the process.
            raise PoolError(f"the pool ends at byte {info.offset + length}, its file at {size}")
        if not length:
            self.bytes: Bytes = np.empty(0, np.uint8)
            return
        # A mapping of huge pages must end at the end of a huge page, or it could not be unmapped.
        unit = max(status.st_blksize, 1)
        end = -(-(info.offset + length) // unit) * unit
        self._memory = _Memory(fd, min(end, size))
        self.bytes = np.frombuffer(self._memory.array, np.uint8, length, info.offset)

    def page_memory(self, number: int, length: int | None = None) -> Bytes | DeviceBytes:
        """Return the memory of a page of either pool: a view, or DeviceBytes for memory of an NPU."""
        if self.device_pool is not None and number >= self._first_device_page:
            return self.device_pool.page(number - self._first_device_page, length)
        return self.page(number, length)

    def page(self, number: int, length: int | None = None) -> Bytes:
        """Return a view of the first bytes of a page of the file; by default of all its bytes."""
        begin = number * self.page_bytes
        return self.bytes[begin : begin + (self.page_bytes if length is None else length)]

    def keep_mapped(self) -> Bytes:
        """Return all pages, and keep them mapped after the end of the session, because an engine computes in them."""
        self._is_kept = True
        return self.bytes

    def release(self) -> None:
        """Release the memory; see the class. Memory of keep_mapped stays until no view refers to it."""
        if self.device_pool is not None:
            self.device_pool.release()
        memory, self._memory = self._memory, None
        if memory is not None and not self._is_kept:
            memory.replace_by_zeros()


def _check_sealed(fd: int) -> None:
    """Raise PoolError if the file could shrink under the mapping: an access to removed pages would kill the process."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise PoolError(f"the received file is not a memfd, as an agent's pool is: {error}") from error
    if seals & _SEALS != _SEALS:
        raise PoolError(f"the received file has seals {seals:#x}, and an agent's has {_SEALS:#x}: its size may change")


def forget_mappings() -> None:
    """Keep a child process from unmapping its parent's memory: the same addresses may have another use there."""
    for end in list(_mappings.values()):
        end.detach()
    _mappings.clear()


def torch_module() -> Any:
    """Import torch, which kvferry needs only for tensors."""
    return importlib.import_module("torch")


# cudaHostRegisterPortable: the registration is valid in every CUDA context of the process, so that every thread and
# device can copy.
_PORTABLE = 1


def pin_pool(pool: Pool | DevicePool) -> PinResult:
    """Register the pool's memory with CUDA, so that copies between the pool and devices need no intermediate buffer."""
    if not isinstance(pool, Pool):
        return PinResult(False, 0, f"nothing was pinned: the pool is in memory of {pool.name}")
    try:
        torch = torch_module()
    except ImportError as error:
        return PinResult(False, 0, f"nothing was pinned: torch is not installed ({error})")
    if not torch.cuda.is_available():
        return PinResult(False, 0, "nothing was pinned: torch finds no CUDA device")
    if not pool.bytes.nbytes:
        return PinResult(False, 0, "nothing was pinned: the pool has no memory here")
    code = int(torch.cuda.cudart().cudaHostRegister(pool.bytes.ctypes.data, pool.bytes.nbytes, _PORTABLE))
    if code:
        return PinResult(False, 0, f"nothing was pinned: cudaHostRegister gave error {code}")
    return PinResult(True, pool.bytes.nbytes, f"{pool.bytes.nbytes} bytes of the pool are registered with CUDA")


def unpin_pool(pool: Pool | DevicePool) -> None:
    """Undo a registration that succeeded."""
    if not isinstance(pool, Pool):
        return
    torch_module().cuda.cudart().cudaHostUnregister(pool.bytes.ctypes.data)
