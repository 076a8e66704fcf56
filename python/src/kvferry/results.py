"""What goes on after a call was made, or after it ended. Here is what both clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvferry.asking import Ask, described, done_if_there, void
from kvferry.core import Core
from kvferry.errors import Error

if TYPE_CHECKING:
    from kvferry.attachment import Attachment
    from kvferry.call import Call
    from kvferry.waiting import Waiting

T = TypeVar("T")


class PendingBase(Generic[T]):
    """A call that is under way. What it came to is for whoever asks; nobody has to."""

    def __init__(self, client: Attachment, ask: Ask[T], call: Call, waiting: Waiting[Any]) -> None:
        """Follow a call."""
        self._client, self._ask, self._call, self._waiting = client, ask, call, waiting

    def __repr__(self) -> str:
        """Say which call it is, and whether it has ended."""
        return described(self, f"{self._ask.op}, {'ended' if self.done() else 'under way'}")

    def done(self) -> bool:
        """Say whether it has ended."""
        ended: bool = self._waiting.ended.done()
        return ended

    def cancel(self) -> None:
        """Take it back. It still has a result, mostly CANCELLED."""
        self._client._driver.tell("abort", Core.abort, self._call)


class PutResultBase:
    """What a put did."""

    def __init__(self, client: Attachment, waiting: Waiting[Any]) -> None:
        """Take an answer."""
        self._client, self._waiting = client, waiting
        reply = waiting.reply()
        self._call = reply.call
        # Chunks that were brought to the peer, and those that it had already.
        self.sent = reply.answer.sent
        self.skipped = reply.answer.skipped
        # Whether the pages may still have been read when the put ended: until they are back nobody may write them.
        self.held = reply.answer.held

    def __repr__(self) -> str:
        """Say what it came to, and whether the pages may still be read."""
        return described(self, f"{self.sent} sent, {self.skipped} skipped, {self._memory()}")

    def _memory(self) -> str:
        return "its pages may still be read" if not self._waiting.back.done() else "its pages are back"

    def _read(self, ask: Ask[None]) -> None:
        """Read how it ended. An error has this result."""
        try:
            ask.read(self._waiting.reply())
        except Error as error:
            error.result = self
            raise

    def _take_back(self) -> Ask[None] | None:
        """Ask to end its offer; None: the agent has nothing of it."""
        if self._call.epoch != self._client.epoch:
            return None
        return Ask("take_back", {"target": self._call.number}, 0.0, done_if_there, void)


class RecallResultBase(PutResultBase):
    """What a recall came to."""

    def __init__(self, client: Attachment, waiting: Waiting[Any]) -> None:
        """Take an answer."""
        super().__init__(client, waiting)
        reply = waiting.reply()
        # How many chunks came, from the first key on, and the bytes of each.
        self.hits = reply.answer.hits
        self.lengths = reply.answer.lengths[: self.hits]
        # Why not more came, where that is an error; compute the others.
        self.short = reply.error

    def __repr__(self) -> str:
        """Say what came, and whether the pages may still be read."""
        short = f", short: {self.short}" if self.short is not None else ""
        return described(self, f"{self.hits} chunks, {self._memory()}{short}")
