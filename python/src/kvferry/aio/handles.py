"""Handles of the client for event loops, and what its calls come to; see kvferry for what each method means."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from kvferry.aio.loop import wait
from kvferry.asking import unanswered
from kvferry.errors import Error, ExpiredError
from kvferry.holding import PagesBase, PrefillBase, SharedBase
from kvferry.results import PendingBase, PutResultBase, RecallResultBase
from kvferry.waiting import Waiting

if TYPE_CHECKING:
    from types import TracebackType

    from kvferry.aio.client import Client

log = logging.getLogger("kvferry")

T = TypeVar("T")


class Pages(PagesBase):
    """Pages of the pool, until they are released. It is an asynchronous context manager."""

    _client: Client

    async def release(self, patience: float | None = None) -> None:
        """Give the pages back, as kvferry.Pages.release."""
        await self._client._run_if(self._release(patience))

    async def await_return(self, patience: float | None = None) -> None:
        """Wait until nothing reads the pages that was put or saved of them so far: then they may be written again."""
        await self._client._run(self._await_return(patience))

    async def __aenter__(self) -> Pages:
        """Release them at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release them, if that was not done; as with kvferry.Pages, those that were read in vain are an error."""
        if self.released:
            return
        unread = self._read_in_vain() if error is None else None
        try:
            await self.release()
        except ExpiredError as failed:
            log.warning("%s", failed)  # They go back by themselves.
        except Error as failed:
            if error is None:
                raise
            log.warning("%s", failed)  # The block's own error says more.
        if unread is not None:
            raise unread


class Shared(SharedBase):
    """Pages that peers may read, until they are withdrawn. It is an asynchronous context manager."""

    _client: Client

    async def withdraw(self, patience: float | None = None) -> None:
        """Take the pages back, as kvferry.Shared.withdraw."""
        await self._client._run_if(self._withdraw(patience))

    async def __aenter__(self) -> Shared:
        """Withdraw them at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Withdraw them, if that was not done."""
        if not self.released:
            await self.withdraw()


class Pending(PendingBase[T]):
    """A call that is under way. What it came to is for whoever asks; nobody has to."""

    _waiting: Waiting[asyncio.Future[None]]

    async def result(self, timeout: float | None) -> T:
        """Wait for its end, so many seconds; None: for as long as it takes. It raises how it ended, or TimeoutError."""
        if not await wait(self._waiting.ended, timeout):
            raise unanswered(self._ask.op, timeout or 0.0)
        return self._ask.read(self._waiting.reply())

    async def wait_returned(self, timeout: float | None) -> bool:
        """Wait until nothing touches its memory any more, whatever it came to; False where the time was over first."""
        return await wait(self._waiting.back, timeout)


class PutResult(PutResultBase):
    """What a put did; see kvferry.PutResult."""

    _client: Client
    _waiting: Waiting[asyncio.Future[None]]

    async def wait_returned(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more; False where the time was over first."""
        return await wait(self._waiting.back, timeout)

    async def take_back(self) -> None:
        """End the offer of a put whose pages are still lent: nobody begins to read them any more."""
        await self._client._run_if(self._take_back())


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

    async def finish(self, patience: float | None = None) -> PutResult:
        """Say that every layer was saved of all tokens, as kvferry.Prefill.finish."""
        return await self._client._put(self._finish(patience))

    async def drop(self) -> None:
        """End it; nothing more of it goes, and the proxy is not told."""
        await self._client._run_if(self._drop())

    async def __aenter__(self) -> Prefill:
        """Drop it at the end of the block, unless it was finished."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Drop it, if it is not over."""
        if not self.released:
            await self.drop()
