"""Delivers the reply of a call to the caller that waits for it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvferry.codes import Code
from kvferry.errors import Error, ErrorDetails, make_error
from kvferry.npu import DeviceBytes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kvferry.call import Call
    from kvferry.messages import Answer, Show
    from kvferry.npu import DevicePool
    from kvferry.pool import Pool
    from kvferry.thread_driver import CompletionEvent

    # The index of the first chunk among the keys, and the chunks, read-only: numpy arrays or DeviceBytes.
    Chunks = tuple[int, list[Any]]

# A one-shot event, of threads or of an event loop.
F = TypeVar("F", "CompletionEvent", "asyncio.Future[None]")


@dataclass(frozen=True, eq=False)
class Reply:
    """The reply of a call, and the memory of its pages."""

    call: Call
    answer: Answer
    pool: Pool | DevicePool
    epoch: int
    # Finalizers that release the pages if no handle takes them, for example because the caller is interrupted before it
    # has created one.
    _releases: list[weakref.finalize[..., Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def set_release(self, release: weakref.finalize[..., Any]) -> None:
        """Set the finalizer that releases the result."""
        release.atexit = False
        self._releases.append(release)

    def disarm_release(self) -> None:
        """Disarm the finalizer, because a handle releases the result."""
        for release in self._releases:
            release.detach()

    @property
    def error(self) -> Error | None:
        """The error of the call; None if it succeeded."""
        answer = self.answer
        if answer.code == Code.OK:
            return None
        details = ErrorDetails(
            count=answer.count,
            peer=answer.peer,
            stage=answer.stage,
            field=answer.field,
            ours=answer.ours,
            theirs=answer.theirs,
            said=answer.said,
            remedy=answer.remedy,
        )
        return make_error(self.call.op, Code.of(answer.code), details)


class CallWaiter(Generic[F]):
    """Waits for a call. The core calls its handle methods, which only store the event and wake the waiter."""

    def __init__(
        self,
        make_event: Callable[[], F],
        on_shown: Callable[[Chunks], None] | None = None,
        on_end: Callable[[CallWaiter[Any]], None] | None = None,
    ) -> None:
        """Create a waiter.

        Args:
            make_event: creates one-shot events.
            on_shown: called with shown chunks.
            on_end: called when the call has ended.
        """
        self.end_event: F = make_event()  # Set when the call was answered or lost.
        # Set when nothing accesses its memory any more, which may be before any answer.
        self.return_event: F = make_event()
        self._on_shown, self._on_end = on_shown, on_end
        self._reply: Reply | None = None
        self._error: Error | None = None

    def reply(self) -> Reply:
        """Return the reply of a call that has ended. It raises the error of a lost call."""
        if self._reply is None:
            raise self._error or AssertionError("BUG: the call has not ended yet")
        return self._reply

    def handle_answer(self, reply: Reply) -> None:
        """Handle the reply."""
        self._reply = reply
        self._signal_end(returned=not reply.answer.held)

    def handle_loss(self, error: Error, *, memory_in_use: bool = False) -> None:
        """Handle the loss of the call. If its memory is in use, handle_return is called when the session ends."""
        if self.end_event.done():  # The views of its memory are void, so there is nothing to wait for.
            self.handle_return()
            return
        self._error = error
        self._signal_end(returned=not memory_in_use)

    def handle_return(self) -> None:
        """Handle the return of the call's memory."""
        if not self.return_event.done():
            self.return_event.set_result(None)

    def handle_shown(self, show: Show, pool: Pool | DevicePool) -> None:
        """Pass shown chunks on."""
        if self._on_shown is None:
            raise AssertionError("BUG: chunks are shown to a call that expects none")
        chunks = [pool.page_memory(number, length) for number, length in zip(show.pages, show.lengths, strict=True)]
        for chunk in chunks:
            if isinstance(chunk, DeviceBytes):
                chunk.writable = False
            else:
                chunk.flags.writeable = False
        self._on_shown((show.first, chunks))

    def _signal_end(self, *, returned: bool) -> None:
        if returned:
            self.handle_return()
        self.end_event.set_result(None)
        if self._on_end is not None:
            self._on_end(self)
