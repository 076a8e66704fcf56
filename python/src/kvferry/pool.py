"""The pool's memory, which is the agent's and is mapped here once for each life of the agent."""

from __future__ import annotations

import importlib
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvferry.values import Pinned

if TYPE_CHECKING:
    from kvferry.messages import Attached

Bytes = npt.NDArray[np.uint8]


class PoolError(OSError):
    """The file that came is not the pool that was described."""


class Pool:
    """The pages of one life of an agent.

    The memory stays mapped for as long as anything looks at it, also when the agent is gone: what is read there then
    means nothing, but reading it harms nobody.
    """

    def __init__(self, fd: int, info: Attached) -> None:
        """Map the file. The descriptor stays the caller's."""
        self.life = info.life
        self.page_bytes = info.page_bytes
        self.count = info.pages
        length = info.pages * info.page_bytes
        size = os.fstat(fd).st_size
        if info.offset + length > size:  # To touch what is behind the end of a file ends the process.
            raise PoolError(f"the pool ends at byte {info.offset + length}, its file at {size}")
        if not length:
            self.bytes: Bytes = np.empty(0, np.uint8)
            return
        memory = mmap.mmap(fd, info.offset + length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        # A child would keep the memory, and write into what is no longer this process's.
        memory.madvise(mmap.MADV_DONTFORK)
        self.bytes = np.frombuffer(memory, np.uint8, length, info.offset)

    def page(self, number: int, length: int | None = None) -> Bytes:
        """Give the first bytes of a page, all of them by default: a view."""
        begin = number * self.page_bytes
        return self.bytes[begin : begin + (self.page_bytes if length is None else length)]


def torch_module() -> Any:
    """Import torch, which kvferry needs only for tensors."""
    return importlib.import_module("torch")


# cudaHostRegisterPortable: every context of the process knows it, so each of its threads and devices may copy.
_PORTABLE = 1


def pin(pool: Pool) -> Pinned:
    """Have CUDA know the pool's memory, so that copies between it and devices need no copy in between."""
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


def unpin(pool: Pool) -> None:
    """Undo a pin that was done."""
    torch_module().cuda.cudart().cudaHostUnregister(pool.bytes.ctypes.data)
