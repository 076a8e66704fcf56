"""Handles: what is held at the agent under the number of the call that brought it. Here is what both clients share.

A handle that is forgotten is given back by the collector, with a ResourceWarning. A handle of a session that is over is
void: nothing is left to give back, and using it raises a LostError.
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


# With these the agent has done nothing, or an end that was asked for before is under way: the holder may try again.
_UNCHANGED_CODES = frozenset((Code.INVALID, Code.TOO_MANY))


class Handle:
    """Something that is held at the agent until it is given back."""

    # What it is, for people.
    description = "a handle"
    # The operation that gives it back.
    release_op = "release"

    def __init__(self, client: Attachment, reply: Reply, *, has_content: bool = True) -> None:
        """Hold what a call brought, if it brought anything."""
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
        """The number of the call that brought it, which names it at the agent."""
        return self._number

    @property
    def void(self) -> bool:
        """Whether the session that it belongs to is over."""
        return self._epoch != self._core.epoch or self._core.closing or self._core.forked

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return self._finalizer is None or not self._finalizer.alive

    def _state(self) -> str:
        """Say for people whether it is held."""
        if self.void and not self.released:
            return "void"
        return "released" if self.released else "held"

    def _arm_finalizer(self) -> None:
        self._finalizer = weakref.finalize(
            self, release_forgotten, self._core, self.release_op, self._number, self._epoch, self.description
        )
        self._finalizer.atexit = False  # The end of the process gives all of it back.

    def _take_release(self, op: str) -> bool:
        """Have it given back by the caller, once; say whether there is something to give back."""
        if not self._number:
            return False
        if self._finalizer is None or self._finalizer.detach() is None:
            remedy = f"nothing is to be done: it was given back before; call {op} once, or leave it to a with block"
            details = ErrorDetails(stage="command", field="the handle", theirs="released", remedy=remedy)
            raise MissingError(op, Code.NOT_FOUND, details)
        return not self.void

    def _release_interrupted(self) -> None:
        """Have it given back, whether that was on its way or not."""
        if self._number and self.released and not self.void:
            self._core.queue_release(self.release_op, self._number, self._epoch)

    def _read_release(self, reply: Reply) -> None:
        """Take how giving back ended. What the agent does not know was given back before."""
        if Code.of(reply.answer.code) in _UNCHANGED_CODES:
            self._arm_finalizer()
        check_done_or_missing(reply)

    def check_valid(self, op: str) -> None:
        """Raise where it must not be used."""
        self._core.check_usable(op)
        if self._epoch != self._core.epoch:
            raise lost_error(op, "the handle is void: what it held is gone; treat it as a miss")
        if self._number and self.released:
            raise invalid_error(op, "the handle", "released", "one that is not", "keep it while you use it")


class Page:
    """One page of a handle. Its views must not be used after the handle was released, or is void.

    Views of a session that is over stay readable, and have zeros. So look at the handle (look) when what was read is
    copied, before it is used; the end of a with block does.
    """

    def __init__(self, pages: PagesBase, index: int) -> None:
        """Name the page with this place in a handle."""
        self._pages = pages
        self.index = index

    def __repr__(self) -> str:
        """Say which page it is."""
        text = f"{self.index} of {len(self._pages)}, page {self.number} of the pool, {self.nbytes} bytes"
        return format_repr(self, text)

    @property
    def number(self) -> int:
        """Which page of the pool it is."""
        return self._pages.numbers[self.index]

    @property
    def nbytes(self) -> int:
        """How many bytes of it are valid: of a page that was reserved all."""
        return self._pages.lengths[self.index]

    def array(self, dtype: npt.DTypeLike = np.uint8, shape: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """View its valid bytes, without a copy; with a shape the first of them that it takes.

        What a get gave is only to be read, and the view cannot be written to.
        """
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            remedy = 'give one of numpy\'s; for bfloat16 take "uint16", or tensor(torch.bfloat16)'
            raise invalid_error("array", "dtype", repr(dtype)[:60], "a type of numpy", remedy) from error
        whole = self._host_bytes()
        if not self._pages.writable:
            whole = whole.view()
            whole.flags.writeable = False
        if shape is None:
            return whole.view(dtype)
        return whole[: self._check_size(prod(shape) * dtype.itemsize)].view(dtype).reshape(tuple(shape))

    def tensor(self, dtype: Any = None, shape: Sequence[int] | None = None) -> Any:
        """View the same as a tensor of torch, which must be installed; dtype is one of torch's, uint8 by default.

        torch has no tensors that are only to be read: what a get gave must not be written all the same.
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
        """Where it begins in memory of the NPU that has the pool, for work that is given to that NPU.

        What was stored so must be done before the page is put or released: wait for the stream.
        """
        return self._device_bytes("address").address

    def memory(self) -> npt.NDArray[np.uint8] | DeviceBytes:
        """Give its valid bytes, wherever the pool is: a view, or what stands for memory of an NPU."""
        self._pages.check_page("array", self.index)
        whole = self._pages.pool.page_memory(self.number, self.nbytes)
        if isinstance(whole, DeviceBytes):
            whole.writable = self._pages.writable
        return whole

    def read(self) -> npt.NDArray[np.uint8]:
        """Copy its valid bytes to memory of Python's, wherever the pool is."""
        whole = self.memory()
        return whole.read() if isinstance(whole, DeviceBytes) else whole.copy()

    def write(self, data: Any) -> None:
        """Fill its first bytes with all that a buffer has, wherever the pool is."""
        whole = self.memory()
        if isinstance(whole, DeviceBytes):
            whole.write(data)
            return
        content = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        if not self._pages.writable:
            raise invalid_error(
                "write", "the page", "only to be read", "pages of a reserve", "reserve pages to write to"
            )
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
    """Pages of the pool: of a reserve to be filled, of a get only to be read."""

    description = "pages"

    def __init__(self, client: Attachment, reply: Reply, *, writable: bool = False) -> None:
        """Hold what an answer brought."""
        answer = reply.answer
        super().__init__(client, reply, has_content=bool(answer.pages))
        self.pool = reply.pool
        self.numbers = answer.pages
        self.lengths = answer.lengths
        self.writable = writable
        if writable:  # All of it may be filled.
            self.lengths = (reply.pool.page_bytes,) * len(answer.pages)
        # Why it is not all that was asked for; None where it is.
        self.shortfall = reply.error
        self._stored_indices: set[int] = set()
        self._share_count = 0

    def __repr__(self) -> str:
        """Say which pages they are, and whether they are held."""
        some = ", ".join(map(str, self.numbers[:4])) + (", ..." if len(self) > 4 else "")
        text = f"{len(self)} pages{f' ({some})' if some else ''}, {'writable' if self.writable else 'to be read'}"
        shortfall = f", shortfall: {self.shortfall}" if self.shortfall is not None else ""
        return format_repr(self, f"{text}, {self._state() if self._number else 'nothing held'}{shortfall}")

    def __len__(self) -> int:
        """Count the pages."""
        return len(self.numbers)

    def __getitem__(self, index: int) -> Page:
        """Give a page."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"page {index} of {len(self)}")
        return Page(self, index % len(self))

    def __iter__(self) -> Iterator[Page]:
        """Give all pages."""
        return (Page(self, index) for index in range(len(self)))

    def _lost_while_reading(self) -> Error | None:
        """Make the error of pages that were to be read, and whose session ended while they were."""
        if self.writable or not self._number or self._epoch == self._core.epoch:
            return None
        return lost_error(
            "get", "the agent went away while the pages were read; treat it as a miss: views have zeros since"
        )

    def check_page(self, op: str, index: int) -> None:
        """Raise where the page must not be used."""
        self.check_valid(op)
        if index in self._stored_indices:
            raise invalid_error(op, "page", str(index), "one that the handle has", "it was stored: the cache has it")

    def mark_stored(self, indices: range) -> None:
        """Know that the cache has these pages now."""
        self._stored_indices.update(indices)

    def require_all(self) -> None:
        """Raise what short is, if it is less than was asked for."""
        if self.shortfall is not None:
            raise self.shortfall

    def check_range(self, op: str, first: int, count: int) -> None:
        """Raise where pages cannot be what a call is about."""
        self.check_valid(op)
        if not 0 <= first < len(self):
            raise invalid_error(
                op, "first_page", str(first), f"0 to {len(self) - 1}", "it is the handle's page of the first key"
            )
        if not 0 < count <= len(self) - first:
            given, wanted = (
                f"{count}, from page {first} on",
                f"1 to {len(self) - first} of the handle's {len(self)} pages",
            )
            raise invalid_error(op, "keys", given, wanted, "each key takes a page, from first on")

    def _release(self, timeout: float | None) -> CallSpec[None] | None:
        """Ask to take the pages back; None: there is nothing to wait for.

        How long it may take the agent is not told: it ends when it can.
        """
        to_nanoseconds("release", "timeout", timeout)
        if self._share_count and not self.void:
            raise invalid_error(
                "release", "the handle", f"{self._share_count} parts shared", "none", "withdraw them first"
            )
        if not self._take_release("release"):
            return None
        if timeout == 0:
            self._core.queue_release("release", self._number, self._epoch)
            return None
        return CallSpec("release", {"target": self._number}, timeout, self._read_release, ignore_lost)

    def _wait_until_unused(self, timeout: float | None) -> CallSpec[None]:
        """Ask for the moment when nothing reads them."""
        self.check_valid("await_return")
        waits = wait_nanoseconds("await_return", timeout)
        return CallSpec("await_return", {"target": self._number, "patience_ns": waits}, timeout, check_done)


class SharedPagesBase(Handle):
    """Pages that peers may read until they are withdrawn."""

    description = "shared pages"
    release_op = "withdraw"

    def __init__(self, client: Attachment, reply: Reply, pages: PagesBase) -> None:
        """Hold what was shared of a handle."""
        super().__init__(client, reply)
        self._pages = pages
        pages._share_count += 1
        # How many chunks are shared; the others were here already.
        self.hits = reply.answer.hits
        # Why not all of them are.
        self.shortfall = reply.error

    def __repr__(self) -> str:
        """Say how many chunks are shared, and whether they are still."""
        return format_repr(self, f"{self.hits} chunks, {self._state()}")

    def _stop_sharing(self, timeout: float | None) -> CallSpec[None] | None:
        """Ask to take the pages back; None: the agent has nothing of them."""
        if self.void:
            self._mark_stopped()
            return None
        self.check_valid("withdraw")

        def read(reply: Reply) -> None:
            check_done_or_missing(reply)  # One that had no answer in time may have been heard.
            self._mark_stopped()

        waits = wait_nanoseconds("withdraw", timeout)
        return CallSpec("withdraw", {"target": self._number, "patience_ns": waits}, timeout, read)

    def _mark_stopped(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self._pages._share_count -= 1


class PrefillBase(Handle):
    """A request whose chunks go layer by layer while they are computed."""

    description = "a prefill"
    release_op = "drop_prefill"

    def __init__(self, client: Attachment, reply: Reply, request: str) -> None:
        """Hold a prefill that has begun."""
        super().__init__(client, reply)
        self.request = request
        # Of a save that nobody waited for: the next call has it.
        self._deferred_error: Error | None = None

    def __repr__(self) -> str:
        """Say whose it is, and whether it goes on."""
        return format_repr(self, f"of request {self.request!r}, {self._state()}")

    def _check_usable(self, op: str) -> None:
        self.check_valid(op)
        if self._deferred_error is not None:
            error, self._deferred_error = self._deferred_error, None
            raise error

    def _save_layer(self, layer: int, tokens: int, pages: PagesBase | None) -> CallSpec[None]:
        """Ask to push a layer."""
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
        """Ask to begin anew."""
        self.check_valid("preempt_prefill")
        self._deferred_error = None
        return CallSpec("preempt_prefill", {"prefill": self._number}, 0.0, check_done)

    def _finish(self, timeout: float | None) -> CallSpec[None]:
        """Ask to end it well."""
        self._check_usable("finish_prefill")

        def read(reply: Reply) -> None:
            if Code.of(reply.answer.code) not in _UNCHANGED_CODES and self._finalizer is not None:
                self._finalizer.detach()
            check_reply(reply)

        waits = wait_nanoseconds("finish_prefill", timeout)
        return CallSpec("finish_prefill", {"prefill": self._number, "patience_ns": waits}, timeout, read)

    def _abort(self, *, wait: bool = True) -> CallSpec[None] | None:
        """Ask to end it; None: there is nothing to wait for."""
        if not self._take_release("drop_prefill"):
            return None
        if not wait:
            self._core.queue_release("drop_prefill", self._number, self._epoch)
            return None
        return CallSpec("drop_prefill", {"prefill": self._number}, 0.0, self._read_release, ignore_lost)
