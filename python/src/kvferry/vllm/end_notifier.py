"""Notifies decode engines of the end of requests: a prefill engine's agent tells the decode engine's agent.

The message (KvfEndRequest in docs/protocol.md) needs no page, and no chunk of the request to have arrived. It is
repeated until it is confirmed or its timeout passes, also through a later incarnation of the agent. So a decode engine
waits for a failed request no longer than an agent is unreachable.
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

# How long one abandon call may take, in seconds, and how many requests are abandoned at the same time.
_CALL_TIMEOUT = 2.0
_THREADS = 2
# The delay before an unreachable agent is called again, in seconds.
_RETRY_INTERVAL = 0.1
# How long a receiver may take to confirm a notice before it is repeated, and how many notices are in flight:
# unreachable receivers take turns with the others.
_ATTEMPT_TIMEOUT, _MIN_ATTEMPT = 2.0, 0.01
_MAX_IN_FLIGHT = 64
# The codes of attempts whose receiver or agent is unreachable.
_RETRY_CODES = (Code.EXPIRED, Code.UNREACHABLE, Code.TOO_MANY, Code.PEER_LOST, Code.DRAINING)
# The most queued notices. Further notices are dropped, and a decode engine then waits until its timeout.
_MAX_QUEUED = 4096


@dataclass
class _EndNotice:
    """The end of one request, for its decode engine."""

    request: str
    tenant: str
    receiver: Receiver
    code: int
    reason: str
    # On the clock of time.monotonic(): when the notice is dropped, and when the next attempt starts.
    deadline: float
    next_attempt: float = 0.0
    pending: Any = None


class EndNotifier:
    """Sends notices and abandons requests, for one rank. It has its own threads, so that saves and loads do not
    wait.
    """

    def __init__(self, client: Client, rank: int, timeout: float) -> None:
        """Use an agent. Notices and calls that are not done within the timeout, in seconds, are dropped."""
        self._client = client
        self._rank = rank
        self._patience = timeout
        self._close_deadline = float("inf")
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "kvferry-end")
        self._notices: queue.Queue[_EndNotice | None] = queue.Queue(_MAX_QUEUED)
        self._thread = threading.Thread(target=self._run_notices, name="kvferry-tell", daemon=True)
        self._thread.start()

    def notify_failed(
        self, request: str, tenant: str, receiver: Receiver, error: Exception | None, reason: str = ""
    ) -> None:
        """Notify a decode engine that no more of a request comes, and why. It returns at once."""
        code = error.code if isinstance(error, Error) and error.code != Code.OK else Code.CANCELLED
        if error is not None and not isinstance(error, Error):
            code = Code.FAULTED
        self._queue_notice(
            request, tenant, receiver, code, reason or str(error or "it ended before its prompt was sent")
        )

    def notify_sent(self, request: str, tenant: str, receiver: Receiver) -> None:
        """Notify a decode engine that all of a request was sent. It returns at once."""
        self._queue_notice(request, tenant, receiver, Code.OK, "")

    def abandon_request(self, request: str, tenant: str, reason: str = "") -> None:
        """Drop everything that is kept for a request or arrives for it soon. It returns at once."""
        with contextlib.suppress(RuntimeError):
            self._threads.submit(self._run_abandon, request, tenant, reason, time.monotonic() + self._patience)

    def close(self) -> None:
        """Shut down. Notices that are not sent soon are dropped."""
        self._close_deadline = time.monotonic() + _CALL_TIMEOUT
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._notices.put_nowait(None)
        self._thread.join()
        self._threads.shutdown(wait=True)

    # ---- notices ----

    def _queue_notice(self, request: str, tenant: str, receiver: Receiver, code: int, reason: str) -> None:
        notice = _EndNotice(request, tenant, receiver, code, reason, time.monotonic() + self._patience)
        try:
            self._notices.put_nowait(notice)
        except queue.Full:
            log.warning(
                "request %s: its decode engine is not notified of its end: %d notices are queued", request, _MAX_QUEUED
            )

    def _run_notices(self) -> None:
        """Send notices until all are sent or dropped. Notices in flight are checked in turn."""
        notices: list[_EndNotice] = []
        while True:
            notices.extend(self._take_notices(notices))
            now = time.monotonic()
            notices = [notice for notice in notices if not self._advance_notice(notice, now)]
            if self._closing.is_set() and (not notices or now >= self._close_deadline):
                return

    def _take_notices(self, in_flight: list[_EndNotice]) -> list[_EndNotice]:
        """Take queued notices while there is room, and wait for one, but no longer than the notices in flight allow."""
        notices: list[_EndNotice] = []
        wait: float | None = None
        if in_flight or self._closing.is_set():
            wait = _RETRY_INTERVAL / 10 if any(notice.pending is not None for notice in in_flight) else _RETRY_INTERVAL
        with contextlib.suppress(queue.Empty):
            while len(in_flight) + len(notices) < _MAX_IN_FLIGHT:
                notice = self._notices.get(timeout=wait) if not notices else self._notices.get_nowait()
                if notice is None:
                    break
                notices.append(notice)
        if not notices and len(in_flight) >= _MAX_IN_FLIGHT:
            self._closing.wait(_RETRY_INTERVAL / 10)
        return notices

    def _advance_notice(self, notice: _EndNotice, now: float) -> bool:
        """Advance a notice, and report whether it is finished."""
        if notice.pending is None and now < notice.next_attempt:
            return now >= notice.deadline
        try:
            return self._send_notice(notice, now)
        except Error as error:
            if isinstance(error, LostError) or error.code in _RETRY_CODES:
                return self._retry_notice(notice, error)
            if error.code == Code.NOT_SENT:
                log_outcome("its KV was sent, but is of no use to its decode engine", notice.request, error)
            else:
                log.debug("request %s: its decode engine was not notified of its end: %s", notice.request, error)
        except Exception as error:
            log_outcome("its decode engine was not notified of its end", notice.request, error)
        return True

    def _send_notice(self, notice: _EndNotice, now: float) -> bool:
        """Send a notice, or check the attempt in progress."""
        if notice.pending is None:
            timeout = max(_MIN_ATTEMPT, min(_ATTEMPT_TIMEOUT, notice.deadline - now))
            peer = peer_for_rank(notice.receiver, self._rank)
            notice.pending = self._client.end_request(
                request=notice.request,
                peer=peer,
                code=notice.code,
                reason=notice.reason,
                timeout=timeout,
                tenant=notice.tenant,
            )
        if not notice.pending.done():
            return now >= min(notice.deadline + _CALL_TIMEOUT, self._close_deadline)
        notice.pending.result(0.0)
        return True

    def _retry_notice(self, notice: _EndNotice, error: Exception) -> bool:
        """Schedule the next attempt if there is time; report whether there is none."""
        now = time.monotonic()
        notice.pending, notice.next_attempt = None, now + _RETRY_INTERVAL
        if notice.next_attempt < min(notice.deadline, self._close_deadline):
            return False
        log.debug("request %s: its decode engine was not notified of its end: %s", notice.request, error)
        return True

    # ---- abandoned requests ----

    def _run_abandon(self, request: str, tenant: str, reason: str, deadline: float) -> None:
        """Abandon a request. If the agent is unreachable, retry with its next incarnation, which may receive chunks
        meanwhile.
        """
        try:
            while True:
                self._remaining_time("abandon", deadline)
                try:
                    return self._client.abandon(request, reason, tenant)
                except LostError:
                    if self._closing.wait(_RETRY_INTERVAL):
                        raise
        except Exception as error:
            log.debug("request %s could not be abandoned: %s", request, error)

    def _remaining_time(self, op: str, deadline: float) -> float:
        return min(_CALL_TIMEOUT, remaining_time(op, min(deadline, self._close_deadline)))
