"""The worker's side if the agent's pages are the engine's own blocks: blocks are lent and registered by number.

A prefill engine lends the blocks of a computed request (Client.lend_blocks). A decode engine registers the blocks to be
written (Client.register_blocks) with the agents of that prefill engine. The agents move the bytes from one engine's
memory to the other's, and this module copies nothing unless kvferry.vllm.block_memory requires it.

No method blocks: calls in progress are checked in each step. Threads are only for copies, if there are any, and for
notices to agents. Invariant: blocks given to an agent return to vLLM only when the agent reports that nothing accesses
them or when its process has ended; an expired timeout or a broken connection is not enough.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, ErrorDetails, LostError, make_error
from kvferry.values import Blocks, ProducerPeer
from kvferry.vllm.agent_client import log_outcome
from kvferry.vllm.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.results import PendingCallBase
    from kvferry.vllm.block_memory import BlockMemory
    from kvferry.vllm.cache import Cache
    from kvferry.vllm.settings import Settings
    from kvferry.vllm.step_work import AbandonedLoad, Load, Save, Work

# How long a notice may take, in seconds, and how many notices and copies run at the same time.
_NOTICE_TIMEOUT, _NOTICE_THREADS, _COPY_THREADS = 2.0, 2, 4


@dataclass
class _BlockTransfer:
    """The transfer of a request's blocks."""

    local_id: str
    blocks: tuple[int, ...]
    # On the clock of time.monotonic(): when it was requested, and after which time it is not started any more.
    started: float
    deadline: float
    # The call, once it was made, and the epoch of its session.
    pending: Any = None
    epoch: int = 0
    # The copy to the pool before the call or from the pool after it; None if there is none.
    copy: Future[int] | None = None
    # Its blocks of the pool, in the order of the request's blocks.
    places: tuple[int, ...] = ()
    save: Save | None = None
    load: Load | None = None
    is_unneeded: bool = False


class BlockWorker:
    """See the module. It has the interface of kvferry.vllm.connector_worker."""

    def __init__(self, client: Any, cache: Cache, memory: BlockMemory, rank: int, settings: Settings) -> None:
        """Serve one rank."""
        self._client = client
        self._cache = cache
        self._memory = memory
        self._rank = rank
        self._settings = settings
        self.counts = Counters()
        self._transfers: list[_BlockTransfer] = []
        self._busy_blocks: set[int] = set()  # blocks of the pool that the agent has, or that are being copied
        self._sent_requests: set[str] = set()
        self._received_requests: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._started_work: Work | None = None
        self._notice_threads = ThreadPoolExecutor(_NOTICE_THREADS, "kvferry-word")
        self._copy_threads = ThreadPoolExecutor(_COPY_THREADS, "kvferry-copy")  # It starts threads only when needed.
        self._closing = threading.Event()

    # ---- for the engine, once per step ----

    @property
    def is_agent_away(self) -> bool:
        """Whether the agent is unreachable, or the blocks are not in its pool."""
        return not self._memory.is_current

    def begin_step(self, work: Work) -> None:
        """Do nothing: blocks are lent after the whole prompt is computed."""

    def layer_computed(self, layer: str) -> None:
        """Do nothing."""

    def start_work(self, work: Work) -> None:
        """Start the work of a step. Blocks to be lent were computed by earlier steps."""
        if self._started_work is work:
            return
        self._started_work = work
        if self._memory.copy_reason and (work.saves or work.loads):
            self._cache.mark_computed()
        now = time.monotonic()
        for save in work.saves:
            deadline = now + self._settings.save_patience
            self._transfers.append(_BlockTransfer(save.local_id, save.blocks, now, deadline, save=save))
        for load in work.loads:
            deadline = now + self._settings.load_patience
            self._transfers.append(_BlockTransfer(load.local_id, load.blocks, now, deadline, load=load))
        for transfer in self._transfers:
            if transfer.load is not None and transfer.local_id in work.cancels:
                transfer.is_unneeded = True
                if transfer.pending is not None:
                    transfer.pending.cancel()
        for abandoned in work.abandons:
            self._decline_abandoned(abandoned)
        self._advance_transfers()

    def end_step(self, work: Work, failed: bool = False) -> None:
        """Handle the end of a step."""
        del failed  # A failed step does not affect lent blocks, which earlier steps computed.
        self.start_work(work)
        self._started_work = None

    def take_results(self) -> tuple[set[str], set[str]]:
        """Return the requests whose blocks were read, and those whose loads have ended, once each."""
        self._advance_transfers()
        sent, self._sent_requests = self._sent_requests, set()
        received, self._received_requests = self._received_requests, set()
        return sent, received

    def take_bad_blocks(self) -> set[int]:
        """Return the blocks of loads that failed, once each."""
        bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def close(self) -> None:
        """Shut down. The engine computes nothing any more."""
        self._closing.set()
        self._notice_threads.shutdown(wait=True, cancel_futures=True)
        self._copy_threads.shutdown(wait=True, cancel_futures=True)
        self._memory.release()
        self._client.close()

    # ---- internal ----

    def _advance_transfers(self) -> None:
        # A copy uses addresses, which must stay mapped until it is done.
        if all(transfer.copy is None or transfer.copy.done() for transfer in self._transfers):
            self._memory.follow_session()
        for transfer in list(self._transfers):
            if transfer.pending is None:
                self._start_call(transfer)
            if transfer.pending is not None and self._is_finished(transfer) and self._is_filled(transfer):
                self._finish_transfer(transfer, None)

    def _start_call(self, transfer: _BlockTransfer) -> None:
        """Make the call of a transfer if it can be made now; end the transfer if it is not needed or too late."""
        if transfer.copy is not None and not transfer.copy.done():
            return
        if transfer.is_unneeded or time.monotonic() >= transfer.deadline:
            details = ErrorDetails(
                stage="command", theirs="no agent with the engine's blocks", remedy="check the agent"
            )
            self._finish_transfer(
                transfer, make_error("register" if transfer.load else "finished", Code.EXPIRED, details)
            )
            return
        if not self._memory.is_current or not (transfer.places or self._reserve_places(transfer)):
            return
        try:
            if transfer.epoch != self._memory.epoch and self._start_copies(transfer):
                transfer.epoch = self._memory.epoch
                return
            transfer.epoch = self._memory.epoch
            if transfer.copy is not None:
                self.counts.add(copied_bytes=transfer.copy.result())
                transfer.copy = None
            transfer.pending = (
                self._lend_blocks(transfer.save, transfer)
                if transfer.save
                else self._register_blocks(transfer.load, transfer)
            )
        except LostError:
            self._release_places(transfer)  # Retry with the next agent, while there is time.
        except Exception as error:
            self._finish_transfer(transfer, error)

    def _reserve_places(self, transfer: _BlockTransfer) -> bool:
        """Reserve blocks of the pool for a request's blocks; report whether there are enough.

        A block can be lent only once at a time. If another request lends it already, for example as part of a common
        prefix, a copy in a spare block is lent. Without a spare block the request waits for the other one.
        """
        shared = self._busy_blocks.intersection(transfer.blocks)
        free = (place for place in self._memory.spare_blocks if place not in self._busy_blocks)
        spare = dict(zip(sorted(shared), free, strict=False))
        if len(spare) < len(shared):
            return False
        transfer.places = tuple(spare.get(block, block) for block in transfer.blocks)
        transfer.epoch = 0
        self._busy_blocks.update(transfer.places)
        return True

    def _release_places(self, transfer: _BlockTransfer) -> None:
        self._busy_blocks.difference_update(transfer.places)
        transfer.places, transfer.copy = (), None

    def _start_copies(self, transfer: _BlockTransfer) -> bool:
        """Start to copy blocks that are not in their reserved places yet; report whether there are any."""
        if transfer.save is None:
            return False
        pairs = zip(transfer.blocks, transfer.places, strict=True)
        moved = [(block, place) for block, place in pairs if self._memory.copy_reason or block != place]
        if moved:
            blocks, places = zip(*moved, strict=True)
            transfer.copy = self._copy_threads.submit(self._memory.copy_to_pool, blocks, places)
        return bool(moved)

    def _lend_blocks(self, save: Save, transfer: _BlockTransfer) -> PendingCallBase[Any]:
        pending: PendingCallBase[Any] = self._client.lend_blocks(
            request=save.request,
            transfer=save.request,
            blocks=[Blocks(transfer.places)],
            lease=max(0.1, transfer.deadline - time.monotonic()),
            epoch=transfer.epoch,
        )
        return pending

    def _register_blocks(self, load: Load | None, transfer: _BlockTransfer) -> PendingCallBase[Any]:
        if load is None:
            raise AssertionError("BUG: the transfer has no load")
        pending: PendingCallBase[Any] = self._client.register_blocks(
            request=load.request,
            transfer=load.request,
            producers=[_producer(load.producers[self._rank])],
            producer_ranks=len(load.producers),
            blocks=[Blocks(transfer.places, first=load.first_block)],
            timeout=max(0.01, transfer.deadline - time.monotonic()),
            epoch=transfer.epoch,
        )
        return pending

    def _is_finished(self, transfer: _BlockTransfer) -> bool:
        """Report whether a call has ended and nothing accesses its blocks any more."""
        return bool(
            transfer.pending.done()
            and transfer.pending.wait_until_unused(0)
            and self._memory.is_returned(transfer.epoch)
        )

    def _is_filled(self, transfer: _BlockTransfer) -> bool:
        """Report whether the received data are in the engine's blocks. If blocks are copied, the copy starts after
        the call.
        """
        if not self._memory.copy_reason or transfer.load is None or transfer.is_unneeded:
            return transfer.copy is None or transfer.copy.done()
        if transfer.copy is None:
            try:
                transfer.pending.result(0.0)
            except Exception:
                return True
            transfer.copy = self._copy_threads.submit(self._memory.copy_from_pool, transfer.blocks)
        return transfer.copy.done()

    def _finish_transfer(self, transfer: _BlockTransfer, error: Exception | None) -> None:
        self._transfers.remove(transfer)
        if transfer.pending is not None:
            try:
                transfer.pending.result(0.0)
                if transfer.copy is not None:
                    self.counts.add(copied_bytes=transfer.copy.result())
            except Exception as raised:
                error = raised
        self._release_places(transfer)
        if transfer.save is not None:
            self._finish_save(transfer.save, error)
        elif transfer.load is not None:
            self._finish_load(transfer.load, transfer, error)

    def _finish_save(self, save: Save, error: Exception | None) -> None:
        self._sent_requests.add(save.local_id)
        if error is None:
            self.counts.add(saved_requests=1, saved_bytes=len(save.blocks) * self._cache.block_bytes)
        else:
            self.counts.add(failed_saves=1)
            log_outcome("its KV did not reach the decode engine", save.local_id, error)

    def _finish_load(self, load: Load, transfer: _BlockTransfer, error: Exception | None) -> None:
        self._received_requests.add(load.local_id)
        seconds = time.monotonic() - transfer.started
        if transfer.is_unneeded:
            self.counts.add(cancelled_loads=1)
            self._decline_load(load)
        elif error is None:
            self.counts.add(
                loaded_requests=1,
                loaded_bytes=len(load.blocks) * self._cache.block_bytes,
                load_seconds=seconds,
            )
        else:
            self._bad_blocks.update(load.blocks)
            self.counts.add(failed_loads=1, failed_load_seconds=seconds)
            log_outcome(f"none of its KV arrived in {seconds:.1f} s; it is computed", load.local_id, error)
            self._decline_load(load)

    def _decline_load(self, load: Load) -> None:
        """Notify a prefill engine that its lent blocks are not needed."""
        self._submit_notice(lambda: self._decline_request(load.request, load.producers))

    def _decline_abandoned(self, abandoned: AbandonedLoad) -> None:
        if abandoned.producers:
            self._submit_notice(lambda: self._decline_request(abandoned.request, abandoned.producers))

    def _submit_notice(self, notice: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):
            self._notice_threads.submit(notice)

    def _decline_request(self, request: str, producers: tuple[str, ...]) -> None:
        """Decline a request. Errors are ignored, because the lease of the blocks expires anyway."""
        with contextlib.suppress(Error):
            if not self._closing.is_set():
                peers = [_producer(producers[self._rank])]
                self._client.decline_request(
                    request=request, transfer=request, producers=peers, timeout=_NOTICE_TIMEOUT
                )


def _producer(text: str) -> ProducerPeer:
    host, init_port, port = text.rsplit(":", 2)
    return ProducerPeer(host, int(init_port), int(port))
