"""Handles and results of the client for threads."""

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
        """Release the pages. The agent first waits until nothing reads the pages of earlier puts any more.

        A void handle has nothing to release. A second release raises.

        Args:
            timeout: how long to wait for the agent, in seconds; None means the client's default, and 0 means not to
                wait.

        Raises:
            ExpiredError: the agent needs longer. It releases the pages later without another call.
        """
        try:
            self._client._run_optional(self._release(timeout))
        except Error:
            raise
        except BaseException:  # An interrupt: the release may not have been sent yet.
            self._release_interrupted()
            raise

    def wait_until_unused(self, timeout: float | None = None) -> None:
        """Wait until nothing reads the pages of earlier puts and saves, so that the pages may be written again."""
        self._client._run(self._wait_until_unused(timeout))

    def __enter__(self) -> Pages:
        """Return the pages; they are released at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release the pages, unless that was done.

        It raises LostError if the session ended during the block, because the block may have read zeros.
        """
        if self.released:
            return
        lost_error = self._lost_while_reading() if error is None else None
        try:
            self.release()
        except ExpiredError as release_error:
            log.warning("%s", release_error)  # The agent releases them later.
        except Error as release_error:
            if error is None:
                raise
            log.warning("%s", release_error)  # The error of the block is more precise.
        if lost_error is not None:
            raise lost_error


@contextmanager
def release_without_wait(pages: Pages) -> Iterator[Pages]:
    """Release pages at the end of a block without waiting for the agent, which may be stopped."""
    try:
        yield pages
    finally:
        pages.release(0)


class SharedPages(SharedPagesBase):
    """Pages that peers may read until stop_sharing. It is a context manager."""

    _client: Client

    def stop_sharing(self, timeout: float | None = None) -> None:
        """Stop sharing the pages, and wait until no peer reads them or may still read them.

        Args:
            timeout: how long to wait, in seconds.

        Raises:
            Error: the timeout passed, or the agent has no room for the call (TOO_MANY). The call may be repeated.
        """
        self._client._run_optional(self._stop_sharing(timeout))

    def __enter__(self) -> SharedPages:
        """Return the handle; sharing stops at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Stop sharing, unless that was done."""
        if not self.released:
            self.stop_sharing()


class PendingCall(PendingCallBase[T]):
    """A call in progress. Reading its result is optional."""

    _waiter: CallWaiter[CompletionEvent]

    def result(self, timeout: float | None) -> T:
        """Wait for the result of the call for at most so many seconds (None: without limit).

        Raises:
            Error: the call failed.
            TimeoutError: the call has not ended in time.
        """
        if not self._waiter.end_event.wait(timeout):
            raise no_answer_error(self._spec.op, timeout or 0.0)
        return self._spec.read(self._waiter.reply())

    def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing accesses the memory of the call any more, whatever its result is.

        It returns False if the timeout passed first.
        """
        return self._waiter.return_event.wait(timeout)


class PutResult(PutResultBase):
    """The result of a put."""

    _client: Client
    _waiter: CallWaiter[CompletionEvent]

    def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more. It returns False if the timeout passed first."""
        return self._waiter.return_event.wait(timeout)

    def withdraw_offer(self) -> None:
        """Withdraw the offer of a put whose pages are still lent. No peer starts to read them afterwards."""
        self._client._run_optional(self._withdraw_offer())


class RecallResult(RecallResultBase, PutResult):
    """The result of a recall."""


class Prefill(PrefillBase):
    """A request whose chunks are pushed layer by layer while they are computed.

    It is a context manager: at the end of the block it is aborted, unless it was finished.
    """

    _client: Client

    def save_layer(self, layer: int, tokens: int, pages: Pages | None = None, *, wait: bool = True) -> None:
        """Push one layer of the first tokens of the prompt. Chunks that become complete are sent now.

        The pages must not be written until Pages.wait_until_unused or release returns. An error with TOO_MANY means
        that nothing has happened: repeat the call.

        Args:
            layer: the layer that was computed.
            tokens: the number of tokens, from the first one on, for which it was computed.
            pages: the pages with the layer; the layer of the i-th chunk is in page i*layers+layer.
            wait: whether to wait for the agent. If False, a later call raises the error of this one.
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
        """Discard what was computed of the request, because it is computed again. Saves start from the first token."""
        self._client._run(self._preempt())

    def finish(self, timeout: float | None = None) -> PutResult:
        """Complete the prefill after all layers of all tokens were saved, and wait until the peer has every chunk.

        The prefill is over even if this raises, except with INVALID or TOO_MANY: then it may be finished again or
        aborted.
        """
        return self._client._run_put(self._finish(timeout))

    def abort(self, *, wait: bool = True) -> None:
        """Abort the prefill. No more chunks are sent, and the proxy is not notified.

        An error with TOO_MANY means that nothing has happened: repeat the call.

        Args:
            wait: whether to wait for the agent.
        """
        try:
            self._client._run_optional(self._abort(wait=wait))
        except Error:
            raise
        except BaseException:  # As in release.
            self._release_interrupted()
            raise

    def __enter__(self) -> Prefill:
        """Return the prefill; it is aborted at the end of the block, unless it was finished."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Abort the prefill, unless it is over."""
        if not self.released:
            self.abort()
