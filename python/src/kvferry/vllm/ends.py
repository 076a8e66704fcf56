"""How requests end between engines: a prefill engine's agent tells the decode engine's that no more of one comes.

That word needs no page and no chunk of the request to have come (KvfEndRequest of docs/protocol.md). It is repeated
until it was confirmed, or its patience is over, also by another life of the agent: so a decode engine waits for what
failed no longer than an agent is away.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, LostError
from kvferry.vllm.agents import left, peer_of, say
from kvferry.vllm.log import log

if TYPE_CHECKING:
    from kvferry.vllm.agents import Client
    from kvferry.vllm.words import Receiver

# How long one of the calls that give up may take, in seconds, and how many requests are served at a time.
_PATIENCE = 2.0
_THREADS = 2
# Until an agent that is away is asked again, in seconds.
_AGAIN = 0.1
# How long a receiver has to confirm a word before it is said anew, and how many words are out at a time: one that is
# away takes its turn like the others.
_ATTEMPT, _SHORTEST = 2.0, 0.01
_OUT = 64
# How an attempt ends whose receiver, or agent, is away.
_AWAY = (Code.EXPIRED, Code.UNREACHABLE, Code.TOO_MANY, Code.PEER_LOST, Code.DRAINING)
# Words that wait. More are not said: a decode engine waits its patience for those.
_QUEUED = 4096


@dataclass
class _Word:
    """One request's end, for its decode engine."""

    request: str
    receiver: Receiver
    code: int
    reason: str
    # Of time.monotonic(): it is not said later, nor before.
    until: float
    next: float = 0.0
    pending: Any = None


class Ends:
    """Tells, asks and forgets, for one rank. It has threads of its own: saves and loads do not wait for that."""

    def __init__(self, client: Client, rank: int, patience: float) -> None:
        """Use an agent. What is not done within the patience, in seconds, is not done at all."""
        self._client = client
        self._rank = rank
        self._patience = patience
        self._closing = float("inf")
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "kvferry-end")
        self._words: queue.Queue[_Word | None] = queue.Queue(_QUEUED)
        self._teller = threading.Thread(target=self._tell, name="kvferry-tell", daemon=True)
        self._teller.start()

    def failed(self, request: str, receiver: Receiver, error: Exception | None, reason: str = "") -> None:
        """Have a decode engine told that no more comes of a request, and why. It returns at once."""
        code = error.code if isinstance(error, Error) and error.code != Code.OK else Code.CANCELLED
        if error is not None and not isinstance(error, Error):
            code = Code.FAULTED
        self._say(request, receiver, code, reason or str(error or "it ended before its prompt was sent"))

    def sent(self, request: str, receiver: Receiver) -> None:
        """Have a decode engine told that all of a request was sent. It returns at once."""
        self._say(request, receiver, Code.OK, "")

    def abandon(self, request: str, reason: str = "") -> None:
        """Have all given up that is kept of a request, and what comes of it soon. It returns at once."""
        with contextlib.suppress(RuntimeError):
            self._threads.submit(self._abandon, request, reason, time.monotonic() + self._patience)

    def close(self) -> None:
        """End. What is not told soon is not told."""
        self._closing = time.monotonic() + _PATIENCE
        self._over.set()
        with contextlib.suppress(queue.Full):
            self._words.put_nowait(None)
        self._teller.join()
        self._threads.shutdown(wait=True)

    # ---- words ----

    def _say(self, request: str, receiver: Receiver, code: int, reason: str) -> None:
        try:
            self._words.put_nowait(_Word(request, receiver, code, reason, time.monotonic() + self._patience))
        except queue.Full:
            log.warning("request %s: its decode engine is not told how it ended: %d wait for that", request, _QUEUED)

    def _tell(self) -> None:
        """Say words until all are said, or their time is over: those that are out are looked at in turn."""
        words: list[_Word] = []
        while True:
            words.extend(self._more(words))
            now = time.monotonic()
            words = [word for word in words if not self._try(word, now)]
            if self._over.is_set() and (not words or now >= self._closing):
                return

    def _more(self, words: list[_Word]) -> list[_Word]:
        """Take what is to be said, as far as there is room; wait for it, but no longer than words that are out may."""
        more: list[_Word] = []
        wait: float | None = None
        if words or self._over.is_set():
            wait = _AGAIN / 10 if any(word.pending is not None for word in words) else _AGAIN
        with contextlib.suppress(queue.Empty):
            while len(words) + len(more) < _OUT:
                word = self._words.get(timeout=wait) if not more else self._words.get_nowait()
                if word is None:
                    break
                more.append(word)
        if not more and len(words) >= _OUT:
            self._over.wait(_AGAIN / 10)
        return more

    def _try(self, word: _Word, now: float) -> bool:
        """Go on with a word, and say whether it needs no more."""
        if word.pending is None and now < word.next:
            return now >= word.until
        try:
            return self._go_on(word, now)
        except Error as error:
            if isinstance(error, LostError) or error.code in _AWAY:
                return self._again(word, error)
            if error.code == Code.NOT_SENT:
                say("its KV was sent, and its decode engine has no use for it", word.request, error)
            else:
                log.debug("request %s: its decode engine was not told how it ended: %s", word.request, error)
        except Exception as error:
            say("its decode engine was not told how it ended", word.request, error)
        return True

    def _go_on(self, word: _Word, now: float) -> bool:
        """Say a word, or look what became of that."""
        if word.pending is None:
            patience = max(_SHORTEST, min(_ATTEMPT, word.until - now))
            peer = peer_of(word.receiver, self._rank)
            word.pending = self._client.end(
                request=word.request, peer=peer, code=word.code, reason=word.reason, patience=patience
            )
        if not word.pending.done():
            return now >= min(word.until + _PATIENCE, self._closing)
        word.pending.result(0.0)
        return True

    def _again(self, word: _Word, error: Exception) -> bool:
        """Say a word once more in a while, if there is time; say whether there is none."""
        now = time.monotonic()
        word.pending, word.next = None, now + _AGAIN
        if word.next < min(word.until, self._closing):
            return False
        log.debug("request %s: its decode engine was not told how it ended: %s", word.request, error)
        return True

    # ---- what is given up ----

    def _abandon(self, request: str, reason: str, until: float) -> None:
        """Abandon a name, be it that its agent comes back first: what is sent by then is kept by that one."""
        try:
            while True:
                self._left("abandon", until)
                try:
                    return self._client.abandon(request, reason)
                except LostError:
                    if self._over.wait(_AGAIN):
                        raise
        except Exception as error:
            log.debug("request %s could not be abandoned: %s", request, error)

    def _left(self, op: str, until: float) -> float:
        return min(_PATIENCE, left(op, min(until, self._closing)))
