"""Handles of the client for threads, and what its calls come to."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kvferry.call import Call
from kvferry.call_spec import check_done, no_answer_error
from kvferry.call_waiter import CallWaiter
from kvferry.errors import Error, ExpiredError
from kvferry.handle_base import PagesBase, PrefillBase, SharedPagesBase
from kvferry.results import PendingCallBase, PutResultBase, RecallResultBase
from kvferry.thread_driver import CompletionEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

    from kvferry.client import Client

log = logging.getLogger("kvferry")

T = TypeVar("T")


class Pages(PagesBase):
    """Pages of the pool, until they are released. It is a context manager."""

    _client: Client

    def release(self, timeout: float | None = None) -> None:
        """Give the pages back. The agent first waits until nothing reads them any more that was put of them.

        That is waited for here, too, for so many seconds, or as the client's options have it; with 0 not at all. Where
        it takes longer this raises an ExpiredError, and the pages go back by themselves. A handle that is void has
        nothing to give back. A second release raises.
        """
        try:
            self._client._run_optional(self._release(timeout))
        except Error:
            raise
        except BaseException:  # An interrupt: perhaps it was not asked for yet.
            self._release_interrupted()
            raise

    def wait_until_unused(self, timeout: float | None = None) -> None:
        """Wait until nothing reads the pages that was put or saved of them so far: then they may be written again."""
        self._client._run(self._wait_until_unused(timeout))

    def __enter__(self) -> Pages:
        """Release them at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release them, if that was not done.

        Where the session ended before, what the block read of the pages may have been zeros: that is a LostError.
        """
        if self.released:
            return
        lost = self._lost_while_reading() if error is None else None
        try:
            self.release()
        except ExpiredError as release_error:
            log.warning("%s", release_error)  # They go back by themselves.
        except Error as release_error:
            if error is None:
                raise
            log.warning("%s", release_error)  # The block's own error says more.
        if lost is not None:
            raise lost


@contextmanager
def release_without_wait(pages: Pages) -> Iterator[Pages]:
    """Hold pages for a while. That they are given back is not waited for: their agent may be stopped."""
    try:
        yield pages
    finally:
        pages.release(0)


class SharedPages(SharedPagesBase):
    """Pages that peers may read, until they are withdrawn. It is a context manager."""

    _client: Client

    def stop_sharing(self, timeout: float | None = None) -> None:
        """Take the pages back: on return nobody reads or expects them any more.

        Where the patience is over before, it raises, and may be called again. TOO_MANY says that it is not done yet.
        """
        self._client._run_optional(self._stop_sharing(timeout))

    def __enter__(self) -> SharedPages:
        """Withdraw them at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Withdraw them, if that was not done."""
        if not self.released:
            self.stop_sharing()


class PendingCall(PendingCallBase[T]):
    """A call that is under way. What it came to is for whoever asks; nobody has to."""

    _waiter: CallWaiter[CompletionEvent]

    def result(self, timeout: float | None) -> T:
        """Wait for its end, so many seconds; None: for as long as it takes. It raises how it ended, or TimeoutError."""
        if not self._waiter.end_event.wait(timeout):
            raise no_answer_error(self._spec.op, timeout or 0.0)
        return self._spec.read(self._waiter.reply())

    def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing touches its memory any more, whatever it came to; False where the time was over first."""
        return self._waiter.return_event.wait(timeout)


class PutResult(PutResultBase):
    """What a put did."""

    _client: Client
    _waiter: CallWaiter[CompletionEvent]

    def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more; False where the time was over first."""
        return self._waiter.return_event.wait(timeout)

    def withdraw_offer(self) -> None:
        """End the offer of a put whose pages are still lent: nobody begins to read them any more."""
        self._client._run_optional(self._withdraw_offer())


class RecallResult(RecallResultBase, PutResult):
    """What a recall came to."""


class Prefill(PrefillBase):
    """A request whose chunks go layer by layer while they are computed. At the end of a with block it is dropped,
    unless it was finished."""

    _client: Client

    def save_layer(self, layer: int, tokens: int, pages: Pages | None = None, *, wait: bool = True) -> None:
        """Say that one layer of the first so many tokens is computed, and lies in pages; what became whole goes now.

        Of the i-th chunk of pages, the layer is in page i*layers+layer. The bytes must not be written until the pages
        are back (Pages.await_return, or release). With wait=False it returns as soon as the call is on its way, and
        what was wrong with it is raised by a later call. TOO_MANY means that nothing has happened: save it again.
        """
        spec = self._save_layer(layer, tokens, pages)
        if wait:
            self._client._run(spec)
        else:
            call = Call(spec.op, spec.entries)
            self._client._driver.begin_call(
                call, CallWaiter[CompletionEvent](CompletionEvent, on_end=self._record_save_error)
            )

    def _record_save_error(self, waiter: CallWaiter[Any]) -> None:
        try:
            check_done(waiter.reply())
        except Error as error:
            self._deferred_error = self._deferred_error or error

    def preempt(self) -> None:
        """Say that what was computed of it is lost, and is computed again: its saves begin anew."""
        self._client._run(self._preempt())

    def finish(self, timeout: float | None = None) -> PutResult:
        """Say that every layer was saved of all tokens, and wait until the peer has every chunk. Then it is over.

        Whatever it raises, it is over, but for an error that is INVALID or TOO_MANY: then it stands, and may be
        finished again, or dropped.
        """
        return self._client._run_put(self._finish(timeout))

    def abort(self, *, wait: bool = True) -> None:
        """End it; nothing more of it goes, and the proxy is not told. TOO_MANY says that it is not done yet.

        With wait=False it returns at once, and is done when the agent comes to it.
        """
        try:
            self._client._run_optional(self._abort(wait=wait))
        except Error:
            raise
        except BaseException:  # As with a release.
            self._release_interrupted()
            raise

    def __enter__(self) -> Prefill:
        """Drop it at the end of the block, unless it was finished."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Drop it, if it is not over."""
        if not self.released:
            self.abort()
