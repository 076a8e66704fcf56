"""Results of calls: the parts that both clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvferry.call_spec import CallSpec, check_done_or_missing, format_repr, ignore_lost
from kvferry.core import Core
from kvferry.errors import Error

if TYPE_CHECKING:
    from kvferry.attachment import Attachment
    from kvferry.call import Call
    from kvferry.call_waiter import CallWaiter

T = TypeVar("T")


class PendingCallBase(Generic[T]):
    """A call in progress. Reading its result is optional."""

    def __init__(self, client: Attachment, spec: CallSpec[T], call: Call, waiter: CallWaiter[Any]) -> None:
        """Track a call."""
        self._client, self._spec, self._call, self._waiter = client, spec, call, waiter

    def __repr__(self) -> str:
        """Return the operation, and whether it has ended."""
        return format_repr(self, f"{self._spec.op}, {'ended' if self.done() else 'in progress'}")

    def done(self) -> bool:
        """Report whether the call has ended."""
        is_done: bool = self._waiter.end_event.done()
        return is_done

    def cancel(self) -> None:
        """Cancel the call. It still has a result, usually CANCELLED."""
        self._client._driver.run_on_core("abort", Core.abort_call, self._call)


class PutResultBase:
    """The result of a put."""

    def __init__(self, client: Attachment, waiter: CallWaiter[Any]) -> None:
        """Read a reply."""
        self._client, self._waiter = client, waiter
        reply = waiter.reply()
        self._call = reply.call
        # Number of chunks that were sent to the peer, and of those that it had already.
        self.sent = reply.answer.sent
        self.skipped = reply.answer.skipped
        # Whether the pages could still be read when the put ended. They must not be written until wait_until_unused
        # returns True.
        self.in_use = reply.answer.held

    def __repr__(self) -> str:
        """Return the counts, and whether the pages may still be read."""
        return format_repr(self, f"{self.sent} sent, {self.skipped} skipped, {self._memory_state()}")

    def _memory_state(self) -> str:
        return "its pages may still be read" if not self._waiter.return_event.done() else "its pages are unused"

    def _raise_error(self, spec: CallSpec[None]) -> None:
        """Raise the error of the put, if it failed, with this result."""
        try:
            spec.read(self._waiter.reply())
        except Error as error:
            error.result = self
            raise

    def _withdraw_offer(self) -> CallSpec[None] | None:
        """Return the call that withdraws the offer; None if the agent has nothing of it."""
        if self._call.epoch != self._client.epoch:
            return None
        return CallSpec("take_back", {"target": self._call.number}, 0.0, check_done_or_missing, ignore_lost)


class RecallResultBase(PutResultBase):
    """The result of a recall."""

    def __init__(self, client: Attachment, waiter: CallWaiter[Any]) -> None:
        """Read a reply."""
        super().__init__(client, waiter)
        reply = waiter.reply()
        # How many chunks were read, from the first key on, and the bytes of each.
        self.hits = reply.answer.hits
        self.lengths = reply.answer.lengths[: self.hits]
        # Why not more chunks were read, if that is an error. Compute the missing chunks.
        self.shortfall = reply.error

    def __repr__(self) -> str:
        """Return the count, and whether the pages may still be read."""
        shortfall = f", shortfall: {self.shortfall}" if self.shortfall is not None else ""
        return format_repr(self, f"{self.hits} chunks, {self._memory_state()}{shortfall}")
