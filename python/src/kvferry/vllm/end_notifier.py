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
from kvferry.vllm.agent_client import log_outcome, peer_for_rank, remaining_time
from kvferry.vllm.log import log

if TYPE_CHECKING:
    from kvferry.vllm.agent_client import Client
    from kvferry.vllm.step_work import Receiver

# How long one of the calls that give up may take, in seconds, and how many requests are served at a time.
_CALL_TIMEOUT = 2.0
_THREADS = 2
# Until an agent that is away is asked again, in seconds.
_RETRY_INTERVAL = 0.1
# How long a receiver has to confirm a word before it is said anew, and how many words are out at a time: one that is
# away takes its turn like the others.
_ATTEMPT_TIMEOUT, _MIN_ATTEMPT = 2.0, 0.01
_MAX_IN_FLIGHT = 64
# How an attempt ends whose receiver, or agent, is away.
_RETRY_CODES = (Code.EXPIRED, Code.UNREACHABLE, Code.TOO_MANY, Code.PEER_LOST, Code.DRAINING)
# Words that wait. More are not said: a decode engine waits its patience for those.
_MAX_QUEUED = 4096


@dataclass
class _EndNotice:
    """One request's end, for its decode engine."""

    request: str
    receiver: Receiver
    code: int
    reason: str
    # Of time.monotonic(): it is not said later, nor before.
    deadline: float
    next_attempt: float = 0.0
    pending: Any = None


class EndNotifier:
    """Tells, asks and forgets, for one rank. It has threads of its own: saves and loads do not wait for that."""

    def __init__(self, client: Client, rank: int, timeout: float) -> None:
        """Use an agent. What is not done within the patience, in seconds, is not done at all."""
        self._client = client
        self._rank = rank
        self._patience = timeout
        self._close_deadline = float("inf")
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "kvferry-end")
        self._notices: queue.Queue[_EndNotice | None] = queue.Queue(_MAX_QUEUED)
        self._thread = threading.Thread(target=self._run_notices, name="kvferry-tell", daemon=True)
        self._thread.start()

    def notify_failed(self, request: str, receiver: Receiver, error: Exception | None, reason: str = "") -> None:
        """Have a decode engine told that no more comes of a request, and why. It returns at once."""
        code = error.code if isinstance(error, Error) and error.code != Code.OK else Code.CANCELLED
        if error is not None and not isinstance(error, Error):
            code = Code.FAULTED
        self._queue_notice(request, receiver, code, reason or str(error or "it ended before its prompt was sent"))

    def notify_sent(self, request: str, receiver: Receiver) -> None:
        """Have a decode engine told that all of a request was sent. It returns at once."""
        self._queue_notice(request, receiver, Code.OK, "")

    def abandon_request(self, request: str, reason: str = "") -> None:
        """Have all given up that is kept of a request, and what comes of it soon. It returns at once."""
        with contextlib.suppress(RuntimeError):
            self._threads.submit(self._run_abandon, request, reason, time.monotonic() + self._patience)

    def close(self) -> None:
        """End. What is not told soon is not told."""
        self._close_deadline = time.monotonic() + _CALL_TIMEOUT
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._notices.put_nowait(None)
        self._thread.join()
        self._threads.shutdown(wait=True)

    # ---- words ----

    def _queue_notice(self, request: str, receiver: Receiver, code: int, reason: str) -> None:
        try:
            self._notices.put_nowait(_EndNotice(request, receiver, code, reason, time.monotonic() + self._patience))
        except queue.Full:
            log.warning(
                "request %s: its decode engine is not told how it ended: %d wait for that", request, _MAX_QUEUED
            )

    def _run_notices(self) -> None:
        """Say words until all are said, or their time is over: those that are out are looked at in turn."""
        notices: list[_EndNotice] = []
        while True:
            notices.extend(self._take_notices(notices))
            now = time.monotonic()
            notices = [notice for notice in notices if not self._advance_notice(notice, now)]
            if self._closing.is_set() and (not notices or now >= self._close_deadline):
                return

    def _take_notices(self, in_flight: list[_EndNotice]) -> list[_EndNotice]:
        """Take what is to be said, as far as there is room; wait for it, but no longer than words that are out may."""
        taken: list[_EndNotice] = []
        wait: float | None = None
        if in_flight or self._closing.is_set():
            wait = _RETRY_INTERVAL / 10 if any(notice.pending is not None for notice in in_flight) else _RETRY_INTERVAL
        with contextlib.suppress(queue.Empty):
            while len(in_flight) + len(taken) < _MAX_IN_FLIGHT:
                notice = self._notices.get(timeout=wait) if not taken else self._notices.get_nowait()
                if notice is None:
                    break
                taken.append(notice)
        if not taken and len(in_flight) >= _MAX_IN_FLIGHT:
            self._closing.wait(_RETRY_INTERVAL / 10)
        return taken

    def _advance_notice(self, notice: _EndNotice, now: float) -> bool:
        """Go on with a word, and say whether it needs no more."""
        if notice.pending is None and now < notice.next_attempt:
            return now >= notice.deadline
        try:
            return self._send_notice(notice, now)
        except Error as error:
            if isinstance(error, LostError) or error.code in _RETRY_CODES:
                return self._retry_notice(notice, error)
            if error.code == Code.NOT_SENT:
                log_outcome("its KV was sent, and its decode engine has no use for it", notice.request, error)
            else:
                log.debug("request %s: its decode engine was not told how it ended: %s", notice.request, error)
        except Exception as error:
            log_outcome("its decode engine was not told how it ended", notice.request, error)
        return True

    def _send_notice(self, notice: _EndNotice, now: float) -> bool:
        """Say a word, or look what became of that."""
        if notice.pending is None:
            timeout = max(_MIN_ATTEMPT, min(_ATTEMPT_TIMEOUT, notice.deadline - now))
            peer = peer_for_rank(notice.receiver, self._rank)
            notice.pending = self._client.end_request(
                request=notice.request, peer=peer, code=notice.code, reason=notice.reason, timeout=timeout
            )
        if not notice.pending.done():
            return now >= min(notice.deadline + _CALL_TIMEOUT, self._close_deadline)
        notice.pending.result(0.0)
        return True

    def _retry_notice(self, notice: _EndNotice, error: Exception) -> bool:
        """Say a word once more in a while, if there is time; say whether there is none."""
        now = time.monotonic()
        notice.pending, notice.next_attempt = None, now + _RETRY_INTERVAL
        if notice.next_attempt < min(notice.deadline, self._close_deadline):
            return False
        log.debug("request %s: its decode engine was not told how it ended: %s", notice.request, error)
        return True

    # ---- what is given up ----

    def _run_abandon(self, request: str, reason: str, deadline: float) -> None:
        """Abandon a name, be it that its agent comes back first: what is sent by then is kept by that one."""
        try:
            while True:
                self._remaining_time("abandon", deadline)
                try:
                    return self._client.abandon(request, reason)
                except LostError:
                    if self._closing.wait(_RETRY_INTERVAL):
                        raise
        except Exception as error:
            log.debug("request %s could not be abandoned: %s", request, error)

    def _remaining_time(self, op: str, deadline: float) -> float:
        return min(_CALL_TIMEOUT, remaining_time(op, min(deadline, self._close_deadline)))
