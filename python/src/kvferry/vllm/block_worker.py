"""The worker's side where the agent's pages are the engine's own blocks: they are lent and registered by number.

A prefill engine lends the blocks of a request that it has computed (Client.finished), and a decode engine registers
those that it wants written (Client.register) with the agents of that prefill engine. The agents move the bytes from the
one memory to the other, and nothing is copied here, unless kvferry.vllm.block_memory says that it must be.

Nothing here waits: what is under way is looked at in each step. Threads are for copies, where there are any, and for
word to agents that nobody waits for. Blocks that an agent was given go back to vLLM when the agent says that nobody
touches them, or its process has ended, and never before: not for a patience that is over, nor a connection that was
cut.
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

# How long a word that somebody's KV is not needed may take, in seconds, and how many are said, or blocks copied, at a
# time.
_NOTICE_TIMEOUT, _NOTICE_THREADS, _COPY_THREADS = 2.0, 2, 4


@dataclass
class _BlockTransfer:
    """What is under way with the blocks of a request."""

    local_id: str
    blocks: tuple[int, ...]
    # Of time.monotonic(): when it was asked for, and when it is not begun any more.
    started: float
    deadline: float
    # The call, once it was made, and of which session its blocks are.
    pending: Any = None
    epoch: int = 0
    # The copy to the pool before the call, or from the pool after it; None: there is none.
    copy: Future[int] | None = None
    # The blocks of the pool that it has, in the order of the request's.
    places: tuple[int, ...] = ()
    save: Save | None = None
    load: Load | None = None
    is_unneeded: bool = False


class BlockWorker:
    """See the module. It is called as kvferry.vllm.connector_worker is."""

    def __init__(self, client: Any, cache: Cache, memory: BlockMemory, rank: int, settings: Settings) -> None:
        """Serve one rank."""
        self._client = client
        self._cache = cache
        self._memory = memory
        self._rank = rank
        self._settings = settings
        self.counts = Counters()
        self._transfers: list[_BlockTransfer] = []
        self._busy_blocks: set[int] = set()  # blocks of the pool that the agent has, or that are copied
        self._sent_requests: set[str] = set()
        self._received_requests: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._started_work: Work | None = None
        self._notice_threads = ThreadPoolExecutor(_NOTICE_THREADS, "kvferry-word")
        self._copy_threads = ThreadPoolExecutor(
            _COPY_THREADS, "kvferry-copy"
        )  # It has no threads before they are needed.
        self._closing = threading.Event()

    # ---- for the engine, once per step ----

    @property
    def is_agent_away(self) -> bool:
        """Whether the agent is away, or the blocks are not in its pool."""
        return not self._memory.is_current

    def begin_step(self, work: Work) -> None:
        """Do nothing: blocks are lent when all is computed."""

    def layer_computed(self, layer: str) -> None:
        """Do nothing."""

    def start_work(self, work: Work) -> None:
        """Do what a step asks for. Blocks to be lent were computed by earlier steps."""
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
        """Know that the step is over."""
        del failed  # Of what is lent a step computes nothing.
        self.start_work(work)
        self._started_work = None

    def take_results(self) -> tuple[set[str], set[str]]:
        """Give the requests whose blocks were read, and those whose blocks are written, or never will be; once each."""
        self._advance_transfers()
        sent, self._sent_requests = self._sent_requests, set()
        received, self._received_requests = self._received_requests, set()
        return sent, received

    def take_bad_blocks(self) -> set[int]:
        """Give the blocks of those requests that were not written; once each."""
        bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def close(self) -> None:
        """End. The engine computes nothing any more."""
        self._closing.set()
        self._notice_threads.shutdown(wait=True, cancel_futures=True)
        self._copy_threads.shutdown(wait=True, cancel_futures=True)
        self._memory.release()
        self._client.close()

    # ---- within ----

    def _advance_transfers(self) -> None:
        # A copy reads and writes at addresses, which must not be others' memory before it is over.
        if all(transfer.copy is None or transfer.copy.done() for transfer in self._transfers):
            self._memory.follow_session()
        for transfer in list(self._transfers):
            if transfer.pending is None:
                self._start_call(transfer)
            if transfer.pending is not None and self._is_finished(transfer) and self._is_filled(transfer):
                self._finish_transfer(transfer, None)

    def _start_call(self, transfer: _BlockTransfer) -> None:
        """Make a call, if it can be made now; end what is not wanted any more, or waited too long."""
        if transfer.copy is not None and not transfer.copy.done():
            return
        if transfer.is_unneeded or time.monotonic() >= transfer.deadline:
            details = ErrorDetails(
                stage="command", theirs="no agent that has the engine's blocks", remedy="look at the agent"
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
            self._release_places(transfer)  # Once more with the next agent, while there is time.
        except Exception as error:
            self._finish_transfer(transfer, error)

    def _reserve_places(self, transfer: _BlockTransfer) -> bool:
        """Find blocks of the pool for a request's, if there are; they are the same ones.

        A block is lent once at a time: of one that another request lends, as of a prefix that both have, a copy is
        lent. Where there is no room for that it waits until the other one is through.
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
        """Begin to copy what is lent and is not in its place yet; say whether there is something."""
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
            raise AssertionError("BUG: nothing is to be done")
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
        """Say whether a call has ended, and nothing touches its blocks any more."""
        return bool(
            transfer.pending.done()
            and transfer.pending.wait_until_unused(0)
            and self._memory.is_returned(transfer.epoch)
        )

    def _is_filled(self, transfer: _BlockTransfer) -> bool:
        """Say whether what came is in the engine's blocks. Where it is copied, that begins when all of it came."""
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
            log_outcome("its KV did not get to the decode engine", save.local_id, error)

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
            log_outcome(f"none of its KV came in {seconds:.1f} s; it is computed", load.local_id, error)
            self._decline_load(load)

    def _decline_load(self, load: Load) -> None:
        """Have a prefill engine told that nobody comes for what it lends."""
        self._submit_notice(lambda: self._decline_request(load.request, load.producers))

    def _decline_abandoned(self, abandoned: AbandonedLoad) -> None:
        if abandoned.producers:
            self._submit_notice(lambda: self._decline_request(abandoned.request, abandoned.producers))

    def _submit_notice(self, notice: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):
            self._notice_threads.submit(notice)

    def _decline_request(self, request: str, producers: tuple[str, ...]) -> None:
        """Say so; nobody waits for that, and what is lent goes back by its time."""
        with contextlib.suppress(Error):
            if not self._closing.is_set():
                peers = [_producer(producers[self._rank])]
                self._client.decline_request(
                    request=request, transfer=request, producers=peers, timeout=_NOTICE_TIMEOUT
                )


def _producer(text: str) -> ProducerPeer:
    host, init_port, port = text.rsplit(":", 2)
    return ProducerPeer(host, int(init_port), int(port))
