"""The worker's side where the agent's pages are the engine's own blocks: they are lent and registered by number.

A prefill engine lends the blocks of a request that it has computed (Client.finished), and a decode engine registers
those that it wants written (Client.register) with the agents of that prefill engine. The agents move the bytes from the
one memory to the other, and nothing is copied here, unless kvferry.vllm.home says that it must be.

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
from kvferry.errors import Error, LostError, Why, error_of
from kvferry.values import Blocks, ProducerPeer
from kvferry.vllm.agents import say
from kvferry.vllm.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.results import PendingBase
    from kvferry.vllm.cache import Cache
    from kvferry.vllm.home import Home
    from kvferry.vllm.settings import Settings
    from kvferry.vllm.words import GivenUp, Load, Save, Work

# How long a word that somebody's KV is not needed may take, in seconds, and how many are said, or blocks copied, at a
# time.
_WORD, _WORDS, _COPIES = 2.0, 2, 4


@dataclass
class _Under:
    """What is under way with the blocks of a request."""

    ours: str
    blocks: tuple[int, ...]
    # Of time.monotonic(): when it was asked for, and when it is not begun any more.
    begun: float
    until: float
    # The call, once it was made, and of which session its blocks are.
    pending: Any = None
    epoch: int = 0
    # The copy to the pool before the call, or from the pool after it; None: there is none.
    copy: Future[int] | None = None
    # The blocks of the pool that it has, in the order of the request's.
    places: tuple[int, ...] = ()
    save: Save | None = None
    load: Load | None = None
    unneeded: bool = False


class Own:
    """See the module. It is called as kvferry.vllm.working is."""

    def __init__(self, client: Any, cache: Cache, home: Home, rank: int, settings: Settings) -> None:
        """Serve one rank."""
        self._client = client
        self._cache = cache
        self._home = home
        self._rank = rank
        self._settings = settings
        self.counts = Counts()
        self._under: list[_Under] = []
        self._busy: set[int] = set()  # blocks of the pool that the agent has, or that are copied
        self._sent: set[str] = set()
        self._received: set[str] = set()
        self._bad: set[int] = set()
        self._begun: Work | None = None
        self._words = ThreadPoolExecutor(_WORDS, "kvferry-word")
        self._copying = ThreadPoolExecutor(_COPIES, "kvferry-copy")  # It has no threads before they are needed.
        self._over = threading.Event()

    # ---- for the engine, once per step ----

    @property
    def away(self) -> bool:
        """Whether the agent is away, or the blocks are not in its pool."""
        return not self._home.here

    def before(self, work: Work) -> None:
        """Do nothing: blocks are lent when all is computed."""

    def computed(self, layer: str) -> None:
        """Do nothing."""

    def begin(self, work: Work) -> None:
        """Do what a step asks for. Blocks to be lent were computed by earlier steps."""
        if self._begun is work:
            return
        self._begun = work
        if self._home.why_copied and (work.saves or work.loads):
            self._cache.mark()
        now = time.monotonic()
        for save in work.saves:
            until = now + self._settings.save_patience
            self._under.append(_Under(save.ours, save.blocks, now, until, save=save))
        for load in work.loads:
            until = now + self._settings.load_patience
            self._under.append(_Under(load.ours, load.blocks, now, until, load=load))
        for under in self._under:
            if under.load is not None and under.ours in work.cancels:
                under.unneeded = True
                if under.pending is not None:
                    under.pending.cancel()
        for given_up in work.abandons:
            self._tell(given_up)
        self._go_on()

    def end(self, work: Work, failed: bool = False) -> None:
        """Know that the step is over."""
        del failed  # Of what is lent a step computes nothing.
        self.begin(work)
        self._begun = None

    def results(self) -> tuple[set[str], set[str]]:
        """Give the requests whose blocks were read, and those whose blocks are written, or never will be; once each."""
        self._go_on()
        sent, self._sent = self._sent, set()
        received, self._received = self._received, set()
        return sent, received

    def bad_blocks(self) -> set[int]:
        """Give the blocks of those requests that were not written; once each."""
        bad, self._bad = self._bad, set()
        return bad

    def close(self) -> None:
        """End. The engine computes nothing any more."""
        self._over.set()
        self._words.shutdown(wait=True, cancel_futures=True)
        self._copying.shutdown(wait=True, cancel_futures=True)
        self._home.leave()
        self._client.close()

    # ---- within ----

    def _go_on(self) -> None:
        # A copy reads and writes at addresses, which must not be others' memory before it is over.
        if all(under.copy is None or under.copy.done() for under in self._under):
            self._home.settle()
        for under in list(self._under):
            if under.pending is None:
                self._make(under)
            if under.pending is not None and self._is_over(under) and self._is_filled(under):
                self._ended(under, None)

    def _make(self, under: _Under) -> None:
        """Make a call, if it can be made now; end what is not wanted any more, or waited too long."""
        if under.copy is not None and not under.copy.done():
            return
        if under.unneeded or time.monotonic() >= under.until:
            why = Why(stage="command", theirs="no agent that has the engine's blocks", remedy="look at the agent")
            self._ended(under, error_of("register" if under.load else "finished", Code.EXPIRED, why))
            return
        if not self._home.here or not (under.places or self._take(under)):
            return
        try:
            if under.epoch != self._home.epoch and self._copies(under):
                under.epoch = self._home.epoch
                return
            under.epoch = self._home.epoch
            if under.copy is not None:
                self.counts.add(copied_bytes=under.copy.result())
                under.copy = None
            under.pending = self._lend(under.save, under) if under.save else self._register(under.load, under)
        except LostError:
            self._give_back(under)  # Once more with the next agent, while there is time.
        except Exception as error:
            self._ended(under, error)

    def _take(self, under: _Under) -> bool:
        """Find blocks of the pool for a request's, if there are; they are the same ones.

        A block is lent once at a time: of one that another request lends, as of a prefix that both have, a copy is
        lent. Where there is no room for that it waits until the other one is through.
        """
        shared = self._busy.intersection(under.blocks)
        free = (place for place in self._home.spare if place not in self._busy)
        spare = dict(zip(sorted(shared), free, strict=False))
        if len(spare) < len(shared):
            return False
        under.places = tuple(spare.get(block, block) for block in under.blocks)
        under.epoch = 0
        self._busy.update(under.places)
        return True

    def _give_back(self, under: _Under) -> None:
        self._busy.difference_update(under.places)
        under.places, under.copy = (), None

    def _copies(self, under: _Under) -> bool:
        """Begin to copy what is lent and is not in its place yet; say whether there is something."""
        if under.save is None:
            return False
        pairs = zip(under.blocks, under.places, strict=True)
        moved = [(block, place) for block, place in pairs if self._home.why_copied or block != place]
        if moved:
            blocks, places = zip(*moved, strict=True)
            under.copy = self._copying.submit(self._home.copy_out, blocks, places)
        return bool(moved)

    def _lend(self, save: Save, under: _Under) -> PendingBase[Any]:
        pending: PendingBase[Any] = self._client.finished(
            request=save.request,
            transfer=save.request,
            blocks=[Blocks(under.places)],
            lease=max(0.1, under.until - time.monotonic()),
            epoch=under.epoch,
        )
        return pending

    def _register(self, load: Load | None, under: _Under) -> PendingBase[Any]:
        if load is None:
            raise AssertionError("BUG: nothing is to be done")
        pending: PendingBase[Any] = self._client.register(
            request=load.request,
            transfer=load.request,
            producers=[_producer(load.producers[self._rank])],
            ranks=len(load.producers),
            blocks=[Blocks(under.places, first=load.first)],
            patience=max(0.01, under.until - time.monotonic()),
            epoch=under.epoch,
        )
        return pending

    def _is_over(self, under: _Under) -> bool:
        """Say whether a call has ended, and nothing touches its blocks any more."""
        return bool(under.pending.done() and under.pending.wait_returned(0) and self._home.is_back(under.epoch))

    def _is_filled(self, under: _Under) -> bool:
        """Say whether what came is in the engine's blocks. Where it is copied, that begins when all of it came."""
        if not self._home.why_copied or under.load is None or under.unneeded:
            return under.copy is None or under.copy.done()
        if under.copy is None:
            try:
                under.pending.result(0.0)
            except Exception:
                return True
            under.copy = self._copying.submit(self._home.copy_in, under.blocks)
        return under.copy.done()

    def _ended(self, under: _Under, error: Exception | None) -> None:
        self._under.remove(under)
        if under.pending is not None:
            try:
                under.pending.result(0.0)
                if under.copy is not None:
                    self.counts.add(copied_bytes=under.copy.result())
            except Exception as raised:
                error = raised
        self._give_back(under)
        if under.save is not None:
            self._lent(under.save, error)
        elif under.load is not None:
            self._came(under.load, under, error)

    def _lent(self, save: Save, error: Exception | None) -> None:
        self._sent.add(save.ours)
        if error is None:
            self.counts.add(saved_requests=1, saved_bytes=len(save.blocks) * self._cache.block_bytes)
        else:
            self.counts.add(failed_saves=1)
            say("its KV did not get to the decode engine", save.ours, error)

    def _came(self, load: Load, under: _Under, error: Exception | None) -> None:
        self._received.add(load.ours)
        seconds = time.monotonic() - under.begun
        if under.unneeded:
            self.counts.add(cancelled_loads=1)
            self._give_up(load)
        elif error is None:
            self.counts.add(
                loaded_requests=1,
                loaded_bytes=len(load.blocks) * self._cache.block_bytes,
                load_seconds=seconds,
            )
        else:
            self._bad.update(load.blocks)
            self.counts.add(failed_loads=1, failed_load_seconds=seconds)
            say(f"none of its KV came in {seconds:.1f} s; it is computed", load.ours, error)
            self._give_up(load)

    def _give_up(self, load: Load) -> None:
        """Have a prefill engine told that nobody comes for what it lends."""
        self._submit(lambda: self._not_needed(load.request, load.producers))

    def _tell(self, given_up: GivenUp) -> None:
        if given_up.producers:
            self._submit(lambda: self._not_needed(given_up.request, given_up.producers))

    def _submit(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):
            self._words.submit(what)

    def _not_needed(self, request: str, producers: tuple[str, ...]) -> None:
        """Say so; nobody waits for that, and what is lent goes back by its time."""
        with contextlib.suppress(Error):
            if not self._over.is_set():
                peers = [_producer(producers[self._rank])]
                self._client.not_needed(request=request, transfer=request, producers=peers, patience=_WORD)


def _producer(text: str) -> ProducerPeer:
    host, init_port, port = text.rsplit(":", 2)
    return ProducerPeer(host, int(init_port), int(port))
