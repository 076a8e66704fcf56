"""Handles: resources at the agent, named by the number of the call that created them. Both clients share this part.

A handle that is dropped is released by the garbage collector, with a ResourceWarning. A handle of an earlier session is
void: there is nothing left to release, and using it raises a LostError.
"""

from __future__ import annotations

import weakref
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvferry.call_spec import (
    CallSpec,
    check_done,
    check_done_or_missing,
    check_number,
    check_reply,
    format_repr,
    ignore_lost,
    to_nanoseconds,
    wait_nanoseconds,
)
from kvferry.codes import Code
from kvferry.core import release_forgotten
from kvferry.errors import Error, ErrorDetails, MissingError, invalid_error, lost_error
from kvferry.npu import DeviceBytes, device_memory_error
from kvferry.pool import torch_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvferry.attachment import Attachment
    from kvferry.call_waiter import Reply


# With these codes the agent has done nothing, or an earlier release is still in progress: the release may be repeated.
_UNCHANGED_CODES = frozenset((Code.INVALID, Code.TOO_MANY))


class Handle:
    """A resource at the agent that must be released."""

    # The kind of the resource, for people.
    description = "a handle"
    # The operation that releases it.
    release_op = "release"

    def __init__(self, client: Attachment, reply: Reply, *, has_content: bool = True) -> None:
        """Own the result of a call, if the call has one."""
        self._client = client
        self._core = client._driver.core
        self._number = reply.call.number if has_content else 0
        self._epoch = reply.epoch
        self._finalizer: weakref.finalize[..., Any] | None = None
        if has_content:
            self._arm_finalizer()
        reply.disarm_release()

    @property
    def number(self) -> int:
        """The number of the call that created the handle, which names it at the agent."""
        return self._number

    @property
    def void(self) -> bool:
        """Whether the session of the handle is over."""
        return self._epoch != self._core.epoch or self._core.closing or self._core.forked

    @property
    def released(self) -> bool:
        """Whether the handle was released."""
        return self._finalizer is None or not self._finalizer.alive

    def _state(self) -> str:
        """Return the state of the handle, for people."""
        if self.void and not self.released:
            return "void"
        return "released" if self.released else "held"

    def _arm_finalizer(self) -> None:
        self._finalizer = weakref.finalize(
            self, release_forgotten, self._core, self.release_op, self._number, self._epoch, self.description
        )
        self._finalizer.atexit = False  # The agent releases everything at the end of the process.

    def _take_release(self, op: str) -> bool:
        """Disarm the finalizer, because the caller releases the handle. Report whether there is something to
        release.
        """
        if not self._number:
            return False
        if self._finalizer is None or self._finalizer.detach() is None:
            remedy = f"nothing is to be done: the handle was released before; call {op} once, or use a with block"
            details = ErrorDetails(stage="command", field="the handle", theirs="released", remedy=remedy)
            raise MissingError(op, Code.NOT_FOUND, details)
        return not self.void

    def _release_interrupted(self) -> None:
        """Release the handle after an interrupt, whether the release was sent or not."""
        if self._number and self.released and not self.void:
            self._core.queue_release(self.release_op, self._number, self._epoch)

    def _read_release(self, reply: Reply) -> None:
        """Read the reply to a release. A handle that the agent does not know was released before."""
        if Code.of(reply.answer.code) in _UNCHANGED_CODES:
            self._arm_finalizer()
        check_done_or_missing(reply)

    def check_valid(self, op: str) -> None:
        """Raise if the handle must not be used, because it is void, released or of a closed client."""
        self._core.check_usable(op)
        if self._epoch != self._core.epoch:
            raise lost_error(op, "the handle is void, because its session is over; treat it as a miss")
        if self._number and self.released:
            raise invalid_error(op, "the handle", "released", "a valid handle", "do not release it while you use it")


class Page:
    """One page of a handle. Its views must not be used after the handle was released or is void.

    Views of an earlier session stay readable and contain zeros. So call Pages.check_valid after copying and before
    using the data; the end of a with block does it, too.
    """

    def __init__(self, pages: PagesBase, index: int) -> None:
        """Name the page with an index in a handle."""
        self._pages = pages
        self.index = index

    def __repr__(self) -> str:
        """Return the index and the number of the page."""
        text = f"{self.index} of {len(self._pages)}, page {self.number} of the pool, {self.nbytes} bytes"
        return format_repr(self, text)

    @property
    def number(self) -> int:
        """The number of the page in the pool."""
        return self._pages.numbers[self.index]

    @property
    def nbytes(self) -> int:
        """The number of valid bytes; all bytes for a reserved page."""
        return self._pages.lengths[self.index]

    def array(self, dtype: npt.DTypeLike = np.uint8, shape: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Return the valid bytes as a numpy view, without a copy.

        Args:
            dtype: the type of the elements.
            shape: the shape; the first bytes that fill it are used. None means one dimension with all bytes.

        Returns:
            A view; it is read-only if the page is the result of a get.
        """
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            remedy = 'give a type of numpy; for bfloat16 use "uint16", or tensor(torch.bfloat16)'
            raise invalid_error("array", "dtype", repr(dtype)[:60], "a type of numpy", remedy) from error
        whole = self._host_bytes()
        if not self._pages.writable:
            whole = whole.view()
            whole.flags.writeable = False
        if shape is None:
            return whole.view(dtype)
        return whole[: self._check_size(prod(shape) * dtype.itemsize)].view(dtype).reshape(tuple(shape))

    def tensor(self, dtype: Any = None, shape: Sequence[int] | None = None) -> Any:
        """Return the same view as a torch tensor; torch must be installed.

        torch has no read-only tensors: pages of a get must not be written nevertheless.

        Args:
            dtype: a torch type; uint8 by default.
            shape: as for array.
        """
        torch = torch_module()
        whole = torch.from_numpy(self._host_bytes())
        if shape is not None:
            size = prod(shape) * (1 if dtype is None else dtype.itemsize)
            whole = whole[: self._check_size(size)]
        typed = whole if dtype is None else whole.view(dtype)
        return typed if shape is None else typed.reshape(tuple(shape))

    @property
    def address(self) -> int:
        """The address of the page in memory of the NPU, for work submitted to that NPU.

        Writes to the page must be complete before the page is put or released: synchronize the stream.
        """
        return self._device_bytes("address").address

    def memory(self) -> npt.NDArray[np.uint8] | DeviceBytes:
        """Return the valid bytes: a numpy view, or DeviceBytes if the pool is in memory of an NPU."""
        self._pages.check_page("array", self.index)
        whole = self._pages.pool.page_memory(self.number, self.nbytes)
        if isinstance(whole, DeviceBytes):
            whole.writable = self._pages.writable
        return whole

    def read(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the valid bytes in host memory, wherever the pool is."""
        whole = self.memory()
        return whole.read() if isinstance(whole, DeviceBytes) else whole.copy()

    def write(self, data: Any) -> None:
        """Copy a buffer to the beginning of the page, wherever the pool is."""
        whole = self.memory()
        if isinstance(whole, DeviceBytes):
            whole.write(data)
            return
        content = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        if not self._pages.writable:
            raise invalid_error("write", "the page", "read-only", "pages of a reserve", "reserve pages to write to")
        whole[: self._check_size(content.nbytes)] = content

    def _device_bytes(self, op: str) -> DeviceBytes:
        whole = self.memory()
        if isinstance(whole, DeviceBytes):
            return whole
        raise invalid_error(op, "the pool", "memory of the host", "memory of an NPU", "use array")

    def _host_bytes(self) -> npt.NDArray[np.uint8]:
        whole = self.memory()
        if isinstance(whole, DeviceBytes):
            raise device_memory_error("array", whole.pool)
        return whole

    def _check_size(self, size: int) -> int:
        if size > self.nbytes:
            raise invalid_error(
                "array", "shape", f"{size} bytes", f"at most {self.nbytes}", "give the shape of the chunk"
            )
        return size


class PagesBase(Handle):
    """Pages of the pool: writable after a reserve, read-only after a get."""

    description = "pages"

    def __init__(self, client: Attachment, reply: Reply, *, writable: bool = False) -> None:
        """Own the pages of a reply."""
        answer = reply.answer
        super().__init__(client, reply, has_content=bool(answer.pages))
        self.pool = reply.pool
        self.numbers = answer.pages
        self.lengths = answer.lengths
        self.writable = writable
        if writable:  # All bytes may be written.
            self.lengths = (reply.pool.page_bytes,) * len(answer.pages)
        # Why there are fewer pages than requested; None if all came.
        self.shortfall = reply.error
        self._stored_indices: set[int] = set()
        self._share_count = 0

    def __repr__(self) -> str:
        """Return the numbers of the pages, and their state."""
        numbers = ", ".join(map(str, self.numbers[:4])) + (", ..." if len(self) > 4 else "")
        text = f"{len(self)} pages{f' ({numbers})' if numbers else ''}, {'writable' if self.writable else 'read-only'}"
        shortfall = f", shortfall: {self.shortfall}" if self.shortfall is not None else ""
        return format_repr(self, f"{text}, {self._state() if self._number else 'empty'}{shortfall}")

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self.numbers)

    def __getitem__(self, index: int) -> Page:
        """Return a page."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"page {index} of {len(self)}")
        return Page(self, index % len(self))

    def __iter__(self) -> Iterator[Page]:
        """Iterate over the pages."""
        return (Page(self, index) for index in range(len(self)))

    def _lost_while_reading(self) -> Error | None:
        """Return the error if the session ended while the pages were being read, so that views may have contained
        zeros.
        """
        if self.writable or not self._number or self._epoch == self._core.epoch:
            return None
        return lost_error(
            "get", "the session ended while the pages were read; treat it as a miss: the views contain zeros since then"
        )

    def check_page(self, op: str, index: int) -> None:
        """Raise if a page must not be used."""
        self.check_valid(op)
        if index in self._stored_indices:
            raise invalid_error(
                op, "page", str(index), "a page that the handle owns", "the page was stored: the cache owns it"
            )

    def mark_stored(self, indices: range) -> None:
        """Record that the cache owns these pages now."""
        self._stored_indices.update(indices)

    def require_all(self) -> None:
        """Raise the shortfall, if fewer pages came than requested."""
        if self.shortfall is not None:
            raise self.shortfall

    def check_range(self, op: str, first: int, count: int) -> None:
        """Raise if a range of pages cannot be the target of a call."""
        self.check_valid(op)
        if not 0 <= first < len(self):
            raise invalid_error(
                op,
                "first_page",
                str(first),
                f"0 to {len(self) - 1}",
                "it is the index of the first key's page in the handle",
            )
        if not 0 < count <= len(self) - first:
            actual, expected = (
                f"{count}, from page {first} on",
                f"1 to {len(self) - first} of the handle's {len(self)} pages",
            )
            raise invalid_error(op, "keys", actual, expected, "each key needs a page, from first_page on")

    def _release(self, timeout: float | None) -> CallSpec[None] | None:
        """Return the call that releases the pages; None if there is nothing to wait for.

        The timeout is not sent to the agent, which releases the pages as soon as it can.
        """
        to_nanoseconds("release", "timeout", timeout)
        if self._share_count and not self.void:
            raise invalid_error(
                "release", "the handle", f"{self._share_count} parts shared", "none", "call stop_sharing first"
            )
        if not self._take_release("release"):
            return None
        if timeout == 0:
            self._core.queue_release("release", self._number, self._epoch)
            return None
        return CallSpec("release", {"target": self._number}, timeout, self._read_release, ignore_lost)

    def _wait_until_unused(self, timeout: float | None) -> CallSpec[None]:
        """Return the call that waits until nothing reads the pages."""
        self.check_valid("await_return")
        waits = wait_nanoseconds("await_return", timeout)
        return CallSpec("await_return", {"target": self._number, "patience_ns": waits}, timeout, check_done)


class SharedPagesBase(Handle):
    """Pages that peers may read until sharing stops."""

    description = "shared pages"
    release_op = "withdraw"

    def __init__(self, client: Attachment, reply: Reply, pages: PagesBase) -> None:
        """Own the share of a handle's pages."""
        super().__init__(client, reply)
        self._pages = pages
        pages._share_count += 1
        # How many chunks are shared. The agent had the other chunks already.
        self.hits = reply.answer.hits
        # Why fewer chunks are shared than requested; None if all are.
        self.shortfall = reply.error

    def __repr__(self) -> str:
        """Return the number of chunks, and the state."""
        return format_repr(self, f"{self.hits} chunks, {self._state()}")

    def _stop_sharing(self, timeout: float | None) -> CallSpec[None] | None:
        """Return the call that ends the share; None if the agent has nothing of it."""
        if self.void:
            self._mark_stopped()
            return None
        self.check_valid("withdraw")

        def read(reply: Reply) -> None:
            check_done_or_missing(reply)  # A call without a reply in time may have been executed.
            self._mark_stopped()

        waits = wait_nanoseconds("withdraw", timeout)
        return CallSpec("withdraw", {"target": self._number, "patience_ns": waits}, timeout, read)

    def _mark_stopped(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self._pages._share_count -= 1


class PrefillBase(Handle):
    """A request whose chunks are pushed layer by layer while they are computed."""

    description = "a prefill"
    release_op = "drop_prefill"

    def __init__(self, client: Attachment, reply: Reply, request: str) -> None:
        """Own a prefill."""
        super().__init__(client, reply)
        self.request = request
        # The error of a save without a waiter; the next call raises it.
        self._deferred_error: Error | None = None

    def __repr__(self) -> str:
        """Return the request id, and the state."""
        return format_repr(self, f"of request {self.request!r}, {self._state()}")

    def _check_usable(self, op: str) -> None:
        self.check_valid(op)
        if self._deferred_error is not None:
            error, self._deferred_error = self._deferred_error, None
            raise error

    def _save_layer(self, layer: int, tokens: int, pages: PagesBase | None) -> CallSpec[None]:
        """Return the call that pushes a layer."""
        op = "save_layer"
        self._check_usable(op)
        if pages is not None:
            pages.check_valid(op)
        entries = {
            "prefill": self._number,
            "target": 0 if pages is None else pages.number,
            "layer": check_number(op, "layer", layer),
            "tokens": check_number(op, "tokens", tokens),
        }
        return CallSpec(op, entries, 0.0, check_done)

    def _preempt(self) -> CallSpec[None]:
        """Return the call that restarts the prefill."""
        self.check_valid("preempt_prefill")
        self._deferred_error = None
        return CallSpec("preempt_prefill", {"prefill": self._number}, 0.0, check_done)

    def _finish(self, timeout: float | None) -> CallSpec[None]:
        """Return the call that completes the prefill."""
        self._check_usable("finish_prefill")

        def read(reply: Reply) -> None:
            if Code.of(reply.answer.code) not in _UNCHANGED_CODES and self._finalizer is not None:
                self._finalizer.detach()
            check_reply(reply)

        waits = wait_nanoseconds("finish_prefill", timeout)
        return CallSpec("finish_prefill", {"prefill": self._number, "patience_ns": waits}, timeout, read)

    def _abort(self, *, wait: bool = True) -> CallSpec[None] | None:
        """Return the call that aborts the prefill; None if there is nothing to wait for."""
        if not self._take_release("drop_prefill"):
            return None
        if not wait:
            self._core.queue_release("drop_prefill", self._number, self._epoch)
            return None
        return CallSpec("drop_prefill", {"prefill": self._number}, 0.0, self._read_release, ignore_lost)
