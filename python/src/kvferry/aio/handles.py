"""Handles and results of the client for asyncio; kvferry documents each method."""

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
        """Release the pages, as kvferry.Pages.release."""
        await self._client._run_optional(self._release(timeout))

    async def wait_until_unused(self, timeout: float | None = None) -> None:
        """Wait until nothing reads the pages of earlier puts and saves, so that the pages may be written again."""
        await self._client._run(self._wait_until_unused(timeout))

    async def __aenter__(self) -> Pages:
        """Return the pages; they are released at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release the pages, unless that was done. It raises LostError if the session ended during the block."""
        if self.released:
            return
        lost_error = self._lost_while_reading() if error is None else None
        try:
            await self.release()
        except ExpiredError as release_error:
            log.warning("%s", release_error)  # The agent releases them later.
        except Error as release_error:
            if error is None:
                raise
            log.warning("%s", release_error)  # The error of the block is more precise.
        if lost_error is not None:
            raise lost_error


class SharedPages(SharedPagesBase):
    """Pages that peers may read until stop_sharing. It is an asynchronous context manager."""

    _client: Client

    async def stop_sharing(self, timeout: float | None = None) -> None:
        """Stop sharing the pages, as kvferry.SharedPages.stop_sharing."""
        await self._client._run_optional(self._stop_sharing(timeout))

    async def __aenter__(self) -> SharedPages:
        """Return the handle; sharing stops at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop sharing, unless that was done."""
        if not self.released:
            await self.stop_sharing()


class PendingCall(PendingCallBase[T]):
    """A call in progress. Reading its result is optional."""

    _waiter: CallWaiter[asyncio.Future[None]]

    async def result(self, timeout: float | None) -> T:
        """Wait for the result of the call, as kvferry.PendingCall.result."""
        if not await wait_for(self._waiter.end_event, timeout):
            raise no_answer_error(self._spec.op, timeout or 0.0)
        return self._spec.read(self._waiter.reply())

    async def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing accesses the memory of the call any more. It returns False if the timeout passed first."""
        return await wait_for(self._waiter.return_event, timeout)


class PutResult(PutResultBase):
    """The result of a put; see kvferry.PutResult."""

    _client: Client
    _waiter: CallWaiter[asyncio.Future[None]]

    async def wait_until_unused(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more. It returns False if the timeout passed first."""
        return await wait_for(self._waiter.return_event, timeout)

    async def withdraw_offer(self) -> None:
        """Withdraw the offer of a put whose pages are still lent. No peer starts to read them afterwards."""
        await self._client._run_optional(self._withdraw_offer())


class RecallResult(RecallResultBase, PutResult):
    """The result of a recall; see kvferry.RecallResult."""


class Prefill(PrefillBase):
    """A request whose chunks are pushed layer by layer while they are computed; see kvferry.Prefill."""

    _client: Client

    async def save_layer(self, layer: int, tokens: int, pages: Pages | None = None) -> None:
        """Push one layer of the first tokens of the prompt, as kvferry.Prefill.save_layer."""
        await self._client._run(self._save_layer(layer, tokens, pages))

    async def preempt(self) -> None:
        """Discard what was computed of the request, because it is computed again. Saves start from the first token."""
        await self._client._run(self._preempt())

    async def finish(self, timeout: float | None = None) -> PutResult:
        """Complete the prefill, as kvferry.Prefill.finish."""
        return await self._client._run_put(self._finish(timeout))

    async def abort(self) -> None:
        """Abort the prefill. No more chunks are sent, and the proxy is not notified."""
        await self._client._run_optional(self._abort())

    async def __aenter__(self) -> Prefill:
        """Return the prefill; it is aborted at the end of the block, unless it was finished."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Abort the prefill, unless it is over."""
        if not self.released:
            await self.abort()
