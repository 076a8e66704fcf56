"""The core that both clients share: the session, its connection, its memory, and the waiters of its calls.

A core never blocks and starts nothing. Its driver (a thread or an event loop) calls run_once when something may be
possible, and polls the connection. The driver ensures that no two calls of a core run at once; only queue_action,
queue_release, check_call, check_usable and the attribute forked may be used from anywhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from kvferry import npu
from kvferry.call import CallAnswered, CallLost, ChunksShown, MemoryReturned
from kvferry.call_waiter import CallWaiter, Reply
from kvferry.codes import Code
from kvferry.errors import ClosedError, Error, ErrorDetails, lost_error
from kvferry.link import READ_SIZE, ForeignUserError, Link, LinkError, ReconnectBackoff
from kvferry.pool import Pool, forget_mappings, pin_pool, unpin_pool
from kvferry.session import AttachmentRefused, ConnectionBroken, Session, SessionAttached
from kvferry.values import PoolMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvferry.call import Call
    from kvferry.messages import Attached
    from kvferry.session import Event
    from kvferry.values import Options, PinResult

log = logging.getLogger("kvferry")

# How long an agent may take to answer an attachment, in seconds.
ATTACH_TIME = 5.0

# How long releases that the agent had no room for are deferred, in seconds, if nothing else happens.
RELEASE_RETRY_TIME = 0.1

# How long a client that closes waits for the agent's confirmation, in seconds. The agent releases everything without
# it.
DETACH_TIME = 2.0


class Core:
    """See the module."""

    def __init__(self, path: str, options: Options, wake: Callable[[], None]) -> None:
        """Create a core.

        Args:
            path: the agent's socket.
            options: the options of the client.
            wake: wakes the driver, which cannot know of new work otherwise. It must not take a lock.
        """
        self.path = path
        self.options = options
        self.session = Session(options.name, options.queue_limit, owns_pool=options.owns_pool)
        self.link: Link | None = None
        self.pool: Pool | npu.DevicePool | None = None
        self.refusal: Error | None = None  # the last refusal, unless an attachment succeeded since
        self.closing = False  # calls are refused, and the agent is told
        self.closed = False
        self.forked = False
        self.pin_result: PinResult | None = None
        self._wake = wake
        self._waiters: dict[Call, CallWaiter[Any]] = {}
        # waiters of lost calls that the agent may still have
        self._unreturned: weakref.WeakSet[CallWaiter[Any]] = weakref.WeakSet()
        self._unreturned_epoch = 0  # the epoch of these calls
        self._actions: deque[Callable[[], None]] = deque()
        self._backoff = ReconnectBackoff()
        self._disconnected_at: float | None = None
        self._session_given_up = False
        self._next_attempt = 0.0
        self._attach_deadline = 0.0
        self._close_deadline = 0.0
        self._next_release_retry = 0.0
        self._disconnect_reason = "no attempt was made yet"
        self._agent_accepted = False  # whether the last connection was accepted
        self._drop_logged = False
        self._server_pid = 0  # The process id of the last connection's server; 0 if it has none in this PID namespace.
        _cores.add(self)

    # ---- for the driver ----

    def run_once(self, now: float, *, readable: bool = True) -> float | None:
        """Do everything that is possible, and return after how many seconds the call must be repeated at the latest.

        Args:
            now: the current time.
            readable: whether the connection may have bytes to read.

        Returns:
            The delay in seconds, or None if only an event can make more work possible.
        """
        if self.closed or self.forked:
            return None
        self.run_actions()
        if self.link is not None:
            self._read_messages(now, readable=readable)
        if self.link is None:
            self._reconnect(now)
        if (
            self.session.calls.has_deferred_releases and now >= self._next_release_retry
        ):  # Other calls wait for what these releases free.
            self._next_release_retry = now + RELEASE_RETRY_TIME
            self.session.calls.queue_deferred_releases()
            self.session.calls.send_queued()
        self._send_pending(now)
        if self.closing:
            if self._is_detached() or now >= self._close_deadline:
                self.close()
                return None
            return min(self._close_deadline, self._next_attempt if self.link is None else self._close_deadline) - now
        if self.link is not None:
            deadline = self._next_release_retry if self.session.calls.has_deferred_releases else None
            deadline = deadline if self.session.is_attached else self._attach_deadline
            return None if deadline is None else max(0.0, deadline - now)
        due = self._next_attempt
        if self._disconnected_at is not None and not self._session_given_up:
            due = min(due, self._disconnected_at + self.options.grace)
        return max(0.0, due - now)

    def has_pending_bytes(self) -> bool:
        """Whether the driver must poll the connection for writing."""
        with self.session.pending_bytes() as pending:
            return self.link is not None and bool(pending)

    def queue_action(self, action: Callable[[], None]) -> None:
        """Run an action in the next run_once, in order. It may be called at any point, even by a signal handler."""
        self._actions.append(action)
        self._wake()

    def run_actions(self) -> None:
        """Run the queued actions."""
        with contextlib.suppress(IndexError):
            while True:
                self._actions.popleft()()

    def check_call(self, call: Call) -> None:
        """Raise if a call cannot be made; otherwise bind it to the current session."""
        self.check_usable(call.op)
        if call.required_epoch is not None and call.required_epoch != self.epoch:
            raise lost_error(call.op, "the session of the call is over; treat it as a miss")
        self.session.calls.check_call(call)
        call.epoch = self.epoch

    def begin_call(self, call: Call, waiter: CallWaiter[Any]) -> None:
        """Make a checked call; it is lost if it cannot be made any more."""
        checked_epoch = call.epoch
        try:
            self.check_call(call)
            if call.target_numbers and checked_epoch != call.epoch:
                raise lost_error(call.op, "the handle is void, because its session is over; treat it as a miss")
        except Error as error:
            waiter.handle_loss(error)
            return
        self._waiters[call] = waiter
        self.session.calls.queue_call(call)

    def abort_call(self, call: Call) -> None:
        """Abort a call. It still ends with a reply or as lost. While the client closes, all calls are lost anyway."""
        if not self.closing:
            self._deliver_events(self.session.calls.abort_call(call))

    def acknowledge_shown(self, call: Call, first: int, code: int) -> None:
        """Tell the agent that shown chunks were read; a code other than OK says why they were not."""
        self.session.calls.acknowledge_shown(call, first, code)

    def forget_call(self, call: Call) -> None:
        """Handle a caller that stopped waiting. The result of the call is released."""
        self._waiters.pop(call, None)
        if not self.closing:
            self.session.calls.forget_call(call)

    def begin_close(self, now: float) -> None:
        """Ask the agent to release everything. The driver continues to call run_once until closed is set."""
        if not self.closing and not self.closed and not self.forked:
            self.closing, self._close_deadline = True, now + DETACH_TIME
            # The agent may free memory of an NPU as soon as it is told.
            imported = self.pool.device_pool if isinstance(self.pool, Pool) else self.pool
            if imported is not None:
                imported.release()
            self._deliver_events(self.session.detach())

    def close(self) -> None:
        """End everything, whether the agent was told or not."""
        if self.closed:
            return
        self.closing = self.closed = True
        if self.link is not None:
            self.link.close()
            self.link = None
        self._deliver_events(self.session.close())
        self._drop_pool()
        _cores.discard(self)

    def pin_pool(self) -> PinResult:
        """Register the pool with CUDA, and the pools of later incarnations of the agent, too."""
        if self.pool is None:
            raise lost_error("pin_memory")
        if self.pin_result is None or not self.pin_result.done:
            self.pin_result = pin_pool(self.pool)
            log.info("%s", self.pin_result.text)
        return self.pin_result

    def pool_memory(self) -> PoolMemory:
        """Return the pool's memory, which stays mapped for as long as a view of it exists, even after the session."""
        info, pool = self.session.info, self.pool
        if not self.session.is_attached or info is None or pool is None or pool.incarnation != info.life:
            raise lost_error("pool_memory")
        if isinstance(pool, npu.DevicePool):
            raise npu.device_memory_error("pool_memory", pool)
        return PoolMemory(pool.keep_mapped(), self.epoch, info.life, self._server_pid)

    # ---- for handles ----

    @property
    def epoch(self) -> int:
        """Number of the session; results of earlier sessions are void."""
        return self.session.epoch

    def check_usable(self, op: str) -> None:
        """Raise if the client is closed, or belongs to the parent of a forked process."""
        if self.forked:
            remedy = "create a client in this process: a client does not survive a fork"
            raise ClosedError(op, Code.CLOSED, ErrorDetails(remedy=remedy))
        if self.closing:
            raise ClosedError(op, Code.CLOSED, ErrorDetails(remedy="create another client"))

    def queue_release(self, op: str, number: int, epoch: int) -> None:
        """Release the result of a handle that was dropped. It may be called at any point, even by the garbage
        collector.
        """
        self.queue_action(lambda: self.session.calls.release(op, number, epoch))

    def describe_agent(self) -> str:
        """Return what is known of the agent, for people."""
        return f"{self.path}: {self._disconnect_reason}"

    # ---- internal ----

    def _is_detached(self) -> bool:
        """Whether the agent knows that this client closes. It then closes the connection."""
        return self.closing and self.session.is_detached

    def _read_messages(self, now: float, *, readable: bool) -> None:
        link = self.link
        if link is None:
            return
        try:
            while readable and self.link is link and not self._is_detached() and (data := link.receive()) is not None:
                readable = len(data) == READ_SIZE  # Otherwise everything was read, or the rest is polled again.
                self._handle_events(self.session.receive_bytes(data), now)
                if self.session.is_attached:
                    link.close_fds()
        except LinkError as error:
            self._drop_connection(now, str(error))
        if self.link is link and not self.session.is_attached and now >= self._attach_deadline:
            self._drop_connection(now, f"the agent did not answer the attachment within {ATTACH_TIME:g} s")

    def _reconnect(self, now: float) -> None:
        if self._disconnected_at is None:
            self._disconnected_at = now
        if not self._session_given_up and not self.closing and now - self._disconnected_at >= self.options.grace:
            self._session_given_up = True
            if self.session.epoch:
                log.warning(
                    "the agent at %s was unreachable for %g s: calls are lost and handles are void",
                    self.path,
                    self.options.grace,
                )
            self._deliver_events(self.session.give_up())
            self._drop_pool()
        if now < self._next_attempt:
            return
        self._next_attempt = now + self._backoff.next_delay()
        try:
            self.link = Link.connect(self.path)
        except ForeignUserError as error:
            self._agent_accepted, self._disconnect_reason = False, str(error)
            self.refusal = _foreign_user_error(self.path, error)
            return
        except (OSError, ValueError) as error:
            self._agent_accepted, self._disconnect_reason = False, str(error)
            if _process_ended(self._server_pid) or (
                isinstance(error, ConnectionRefusedError) and _is_socket(self.path)
            ):
                # Its process has ended, or its socket has no listener any more. The next agent needs the memory.
                self._deliver_events(self.session.handle_agent_exit())
                self._drop_pool()
            return
        self._server_pid = self.link.server_pid
        self._attach_deadline = now + ATTACH_TIME
        if not self._agent_accepted:  # Otherwise the reason of the earlier disconnect is more precise.
            self._agent_accepted, self._disconnect_reason = (
                True,
                "it accepts connections and does not answer; it is stopped or overloaded",
            )
        self.session.handle_connected()

    def _send_pending(self, now: float) -> None:
        if self.link is None:
            return
        try:
            self.link.send(self.session)
        except LinkError as error:
            self._drop_connection(now, str(error))

    def _drop_connection(self, now: float, reason: str, *, expected: bool = False) -> None:
        if self.link is None:
            return
        self.link.close()
        self.link = None
        self._disconnect_reason = reason
        (log.debug if self._drop_logged or expected else log.warning)("connection to %s: %s", self.path, reason)
        self._drop_logged = self._drop_logged or not expected
        self._deliver_events(self.session.handle_disconnected())
        if self._disconnected_at is None:
            self._disconnected_at = now
        self._next_attempt = now + self._backoff.next_delay()
        self._wake()

    def _handle_events(self, events: Iterable[Event], now: float) -> None:
        for event in events:
            if isinstance(event, SessionAttached):
                self._handle_attachment(event, now)
            elif isinstance(event, AttachmentRefused):
                self._handle_refusal(event, now)
            elif isinstance(event, ConnectionBroken):
                self._drop_connection(now, event.reason)
            else:
                self._deliver_events((event,))
                if isinstance(event, CallAnswered):
                    self._backoff.reset()
                    self._drop_logged = False

    def _handle_refusal(self, event: AttachmentRefused, now: float) -> None:
        """Handle a refusal. If the pool is in memory of an NPU, retry with this process's number in the NPU's
        driver.
        """
        self.refusal = event.error
        if event.info.device_bytes and event.error.code == Code.UNSUPPORTED and not self.session.device_process:
            try:
                self.session.device_process = npu.process_number(event.info.device)
            except npu.NPUError as error:
                details = ErrorDetails(stage="attach", peer="agent", said=event.info.reason, remedy=str(error))
                self.refusal = Error("attach", Code.UNSUPPORTED, details)
            else:
                self.refusal = None
                self._backoff.reset()
        if self.refusal is None:
            self._drop_connection(
                now, "the attachment is repeated with this process's number in the NPU's driver", expected=True
            )
        else:
            self._drop_connection(now, str(self.refusal))

    def _handle_attachment(self, event: SessionAttached, now: float) -> None:
        link, info = self.link, event.info
        if link is None:
            return
        fd = link.take_fd()
        try:
            if self.pool is None or self.pool.incarnation != info.life:
                if info.device_key and not info.device_pages:
                    self._install_pool(npu.DevicePool(info))
                elif fd is None:
                    raise OSError("the agent sent no descriptor with the attachment")
                else:
                    self._install_pool(_open_pools(fd, info))
        except (OSError, ValueError, OverflowError) as error:
            self._drop_connection(now, f"the pool cannot be mapped: {error}")
            return
        finally:
            if fd is not None:
                os.close(fd)
        self.refusal = None
        self._deliver_events(())
        self._disconnected_at, self._session_given_up = None, False
        if event.resumed:
            log.info("attached to %s again; the session continues", self.path)
        elif self.session.epoch > 1:
            log.warning("attached to %s in a new session: handles of the earlier session are void", self.path)

    def _install_pool(self, pool: Pool | npu.DevicePool) -> None:
        self._drop_pool()
        self.pool = pool
        if self.pin_result is not None and self.pin_result.done:
            self.pin_result = pin_pool(pool)
            log.info("%s", self.pin_result.text)

    def _drop_pool(self) -> None:
        """Release the memory of a session that is over. Its handles are void already: see PagesBase.check_valid."""
        pool, self.pool = self.pool, None
        if pool is None:
            return
        if self.pin_result is not None and self.pin_result.done:
            unpin_pool(pool)
        try:
            pool.release()
        except OSError as error:
            log.warning("the memory of the former agent stays mapped while views of it exist: %s", error)

    def _deliver_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, CallAnswered):
                self._deliver_answer(event)
            elif isinstance(event, ChunksShown):
                if (waiter := self._waiters.get(event.call)) and self.pool is not None:
                    waiter.handle_shown(event.show, self.pool)
            elif isinstance(event, MemoryReturned):
                if waiter := self._waiters.pop(event.call, None):
                    waiter.handle_return()
            elif isinstance(event, CallLost) and (waiter := self._waiters.pop(event.call, None)):
                if event.memory_in_use:
                    self._unreturned.add(waiter)
                    self._unreturned_epoch = self.session.epoch
                waiter.handle_loss(event.error, memory_in_use=event.memory_in_use)
        if self._unreturned and self._unreturned_epoch != self.session.epoch:
            self._return_unreturned()

    def _return_unreturned(self) -> None:
        """Report the memory of lost calls as returned, because their session is over."""
        waiters, self._unreturned = list(self._unreturned), weakref.WeakSet()
        for waiter in waiters:
            waiter.handle_return()

    def _deliver_answer(self, event: CallAnswered) -> None:
        in_use = event.answer.held
        waiter = self._waiters.get(event.call) if in_use else self._waiters.pop(event.call, None)
        if waiter is None:
            return
        info = self.session.info
        if self.pool is None or info is None or self.pool.incarnation != info.life:  # The pool could not be mapped.
            self._waiters.pop(event.call, None)
            waiter.handle_loss(lost_error(event.call.op))
            return
        reply = Reply(event.call, event.answer, self.pool, self.session.epoch)
        if op := event.call.release_op:
            reply.set_release(weakref.finalize(reply, self.queue_release, op, event.call.number, reply.epoch))
        waiter.handle_answer(reply)


def _foreign_user_error(path: str, error: ForeignUserError) -> Error:
    """Create the error of an agent that belongs to another user."""
    remedy = "give the socket of an agent of this user, or of root; nothing was sent there"
    field, ours = f"the user of {error.subject} at {path}", f"{os.geteuid()} or 0"
    details = ErrorDetails(stage="attach", field=field, ours=ours, theirs=str(error.uid), remedy=remedy)
    return Error("attach", Code.REFUSED, details)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _process_ended(pid: int) -> bool:
    """Whether no process has this id any more. A reused id counts as the earlier process."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _open_pools(fd: int, info: Attached) -> Pool:
    """Map the file, and import the second pool, if there is one."""
    device_pool = npu.DevicePool(info) if info.device_pages else None
    try:
        return Pool(fd, info, device_pool)
    except BaseException:
        if device_pool is not None:
            device_pool.release()
        raise


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork() -> None:
    """Close the parent's connections in a child, because otherwise the agent would not notice the end of the parent."""
    forget_mappings()
    for core in list(_cores):
        core.forked = True
        if core.link is not None:
            core.link.close()
    _cores.clear()


os.register_at_fork(after_in_child=_after_fork)


def release_forgotten(core: Core, op: str, number: int, epoch: int, description: str) -> None:
    """Release the result of a handle that was dropped without a release: the finalizer of handles."""
    if core.closing or core.forked or epoch != core.epoch:
        return
    core.queue_release(op, number, epoch)
    warnings.warn(f"{description} were dropped, and released by the garbage collector", ResourceWarning, stacklevel=2)
