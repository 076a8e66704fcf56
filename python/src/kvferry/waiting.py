"""Who waits for a call, and how it was answered."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvferry.codes import Code
from kvferry.errors import Error, Why, error_of
from kvferry.npu import DeviceBytes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kvferry.call import Call
    from kvferry.messages import Answer, Show
    from kvferry.npu import DevicePool
    from kvferry.pool import Pool
    from kvferry.thread import Once

    # The place of the first chunk among the keys, and the chunks, only to be read: arrays of numpy, or DeviceBytes.
    Chunks = tuple[int, list[Any]]

# What says that something has come: of threads, or of an event loop.
F = TypeVar("F", "Once", "asyncio.Future[None]")


@dataclass(frozen=True, eq=False)
class Reply:
    """How a call was answered, and where what it brought is."""

    call: Call
    answer: Answer
    pool: Pool | DevicePool
    epoch: int
    # Gives back what it brought, if nobody takes it: who waits may be interrupted before it has a handle.
    _untaken: list[weakref.finalize[..., Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def keep(self, untaken: weakref.finalize[..., Any]) -> None:
        """Be given what gives back what it brought."""
        untaken.atexit = False
        self._untaken.append(untaken)

    def taken(self) -> None:
        """Know that a handle gives back what it brought."""
        for untaken in self._untaken:
            untaken.detach()

    @property
    def error(self) -> Error | None:
        """How it did not end as wanted; None where it ended well."""
        answer = self.answer
        if answer.code == Code.OK:
            return None
        why = Why(
            count=answer.count,
            peer=answer.peer,
            stage=answer.stage,
            field=answer.field,
            ours=answer.ours,
            theirs=answer.theirs,
            said=answer.said,
            remedy=answer.remedy,
        )
        return error_of(self.call.op, Code.of(answer.code), why)


class Waiting(Generic[F]):
    """Who waits for a call. The core calls its methods, which only store something and wake somebody."""

    def __init__(
        self,
        future: Callable[[], F],
        shown: Callable[[Chunks], None] | None = None,
        then: Callable[[Waiting[Any]], None] | None = None,
    ) -> None:
        """Make what is waited for by future. Shown takes what is shown; then is called when the call has ended."""
        self.ended: F = future()  # It was answered, or is lost.
        self.back: F = future()  # Nothing touches its memory any more; that may be before any answer.
        self._shown, self._then = shown, then
        self._reply: Reply | None = None
        self._error: Error | None = None

    def reply(self) -> Reply:
        """Say how a call that has ended was answered. It raises the error of one that is lost."""
        if self._reply is None:
            raise self._error or AssertionError("BUG: nothing has come yet")
        return self._reply

    def answered(self, reply: Reply) -> None:
        """Take the answer."""
        self._reply = reply
        self._end(back=not reply.answer.held)

    def lost(self, error: Error, *, adrift: bool = False) -> None:
        """Know that nothing comes any more. Where it is adrift, came_back is called when the session is over."""
        if self.ended.done():  # The views of its memory are void: there is nothing to wait for.
            self.came_back()
            return
        self._error = error
        self._end(back=not adrift)

    def came_back(self) -> None:
        """Know that its memory is back."""
        if not self.back.done():
            self.back.set_result(None)

    def showing(self, show: Show, pool: Pool | DevicePool) -> None:
        """Take what is shown."""
        if self._shown is None:
            raise AssertionError("BUG: chunks are shown to nobody")
        chunks = [pool.at(number, length) for number, length in zip(show.pages, show.lengths, strict=True)]
        for chunk in chunks:
            if isinstance(chunk, DeviceBytes):
                chunk.writable = False
            else:
                chunk.flags.writeable = False
        self._shown((show.first, chunks))

    def _end(self, *, back: bool) -> None:
        if back:
            self.came_back()
        self.ended.set_result(None)
        if self._then is not None:
            self._then(self)
