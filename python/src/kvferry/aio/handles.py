"""Handles of the client for event loops, and what its calls come to; see kvferry for what each method means."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from kvferry.aio.loop_driver import wait_for
from kvferry.call_spec import no_answer_error
from kvferry.call_waiter import CallWaiter
from kvferry.errors import Error, ExpiredError
from kvferry.handle_base import PagesBase, PrefillBase, SharedPagesBase
from kvferry.results import PendingCallBase, PutResultBase, RecallResultBase

if TYPE_CHECKING:
    from types import TracebackType

    from kvferry.aio.client import Client

log = logging.getLogger("kvferry")

T = TypeVar("T")


class Pages(PagesBase):
    """Pages of the pool, until they are released. It is an asynchronous context manager."""

    _client: Client

    async def release(self, timeout: float | None = None) -> None:
        """Give the pages back, as kvferry.Pages.release."""
        await self._client._run_optional(self._release(timeout))

    async def wait_until_unused(self, timeout: float | None = None) -> None:
        """Wait until nothing reads the pages that was put or saved of them so far: then they may be written again."""
        await self._client._run(self._wait_until_unused(timeout))

    async def __aenter__(self) -> Pages:
        """Release them at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release them, if that was not done; as with kvferry.Pages, those that were read in vain are an error."""
        if self.released:
            return
        lost = self._lost_while_reading() if error is None else None
        try:
            await self.release()
        except ExpiredError as release_error:
            log.warning("%s", release_error)  # They go back by themselves.
        except Error as release_error:
            if error is None:
                raise
            log.warning("%s", release_error)  # The block's own error says more.
        if lost is not None:
            raise lost


class SharedPages(SharedPagesBase):
    """Pages that peers may read, until they are withdrawn. It is an asynchronous context manager."""

    _client: Client

    async def stop_sharing(self, timeout: float | None = None) -> None:
        """Take the pages back, as kvferry.Shared.withdraw."""
        await self._client._run_optional(self._stop_sharing(timeout))

    async def __aenter__(self) -> SharedPages:
        """Withdraw them at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Withdraw them, if that was not done."""
        if not self.released:
            await self.stop_sharing()


class PendingCall(PendingCallBase[T]):
    """A call that is under way. What it came to is for whoever asks; nobody has to."""

    _waiter: CallWaiter[asyncio.Future[None]]

    async def result(self, timeout: float | None) -> T:
        """Wait for its end, so many seconds; None: for as long as it takes. It raises how it ended, or TimeoutError."""
        if not await wait_for(self._waiter.end_event, timeout):
            raise no_answer_error(self._spec.op, timeout or 0.0)
        return self._spec.read(self._waiter.reply())

    async def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing touches its memory any more, whatever it came to; False where the time was over first."""
        return await wait_for(self._waiter.return_event, timeout)


class PutResult(PutResultBase):
    """What a put did; see kvferry.PutResult."""

    _client: Client
    _waiter: CallWaiter[asyncio.Future[None]]

    async def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more; False where the time was over first."""
        return await wait_for(self._waiter.return_event, timeout)

    async def withdraw_offer(self) -> None:
        """End the offer of a put whose pages are still lent: nobody begins to read them any more."""
        await self._client._run_optional(self._withdraw_offer())


class RecallResult(RecallResultBase, PutResult):
    """What a recall came to; see kvferry.RecallResult."""


class Prefill(PrefillBase):
    """A request whose chunks go layer by layer while they are computed; see kvferry.Prefill."""

    _client: Client

    async def save_layer(self, layer: int, tokens: int, pages: Pages | None = None) -> None:
        """Say that one layer of the first so many tokens is computed, as kvferry.Prefill.save_layer."""
        await self._client._run(self._save_layer(layer, tokens, pages))

    async def preempt(self) -> None:
        """Say that what was computed of it is lost, and is computed again: its saves begin anew."""
        await self._client._run(self._preempt())

    async def finish(self, timeout: float | None = None) -> PutResult:
        """Say that every layer was saved of all tokens, as kvferry.Prefill.finish."""
        return await self._client._run_put(self._finish(timeout))

    async def abort(self) -> None:
        """End it; nothing more of it goes, and the proxy is not told."""
        await self._client._run_optional(self._abort())

    async def __aenter__(self) -> Prefill:
        """Drop it at the end of the block, unless it was finished."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Drop it, if it is not over."""
        if not self.released:
            await self.abort()
