"""What both clients are made of: a session, its connection, its memory, and who waits for what.

A core never waits and starts nothing. Its driver (a thread, or an event loop) calls turn when something may have become
possible, and polls what it is told to. The driver sees to it that no two calls of a core run at once; ask, leak, look,
usable and forked alone may be called anywhere.
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
from kvferry.call import Answered, CameBack, Lost, Showing
from kvferry.codes import Code
from kvferry.errors import ClosedError, Error, Why, lost
from kvferry.link import PIECE, Link, LinkError, Pace, StrangerError
from kvferry.pool import Pool, keep_inherited, pin, unpin
from kvferry.session import Broken, Joined, Refused, Session
from kvferry.values import OwnMemory
from kvferry.waiting import Reply, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvferry.call import Call
    from kvferry.messages import Attached
    from kvferry.session import Event
    from kvferry.values import Options, Pinned

log = logging.getLogger("kvferry")

# How long an agent may take to answer an attachment, in seconds.
ATTACH_TIME = 5.0

# How long what the agent had no room to take back waits, in seconds, while nothing else happens.
AGAIN_TIME = 0.1

# How long a client that closes waits for the agent to have everything back, in seconds. The agent goes on without it.
DETACH_TIME = 2.0


class Core:
    """See the module."""

    def __init__(self, path: str, options: Options, wake: Callable[[], None]) -> None:
        """Call wake, which must take no lock, where the driver has something to do that it cannot know of."""
        self.path = path
        self.options = options
        self.session = Session(options.name, options.queue, adopts=options.adopts)
        self.link: Link | None = None
        self.pool: Pool | npu.DevicePool | None = None
        self.refusal: Error | None = None  # the last, where there was no attachment since
        self.closing = False  # calls are refused; the agent is told
        self.closed = False
        self.forked = False
        self.pinned: Pinned | None = None
        self._wake = wake
        self._waiting: dict[Call, Waiting[Any]] = {}
        self._adrift: weakref.WeakSet[Waiting[Any]] = weakref.WeakSet()  # of calls that the agent may have still
        self._adrift_in = 0  # the epoch of those
        self._asked: deque[Callable[[], None]] = deque()
        self._pace = Pace()
        self._away_since: float | None = None
        self._gave_up = False
        self._next_try = 0.0
        self._attach_until = 0.0
        self._close_until = 0.0
        self._again_at = 0.0
        self._reason = "no attempt was made yet"
        self._reached = False  # The last attempt met somebody.
        self._said = False
        self._server = 0  # The process at the other end of the last connection, by its number; 0: it has none here.
        _cores.add(self)

    # ---- for the driver ----

    def turn(self, now: float, *, readable: bool = True) -> float | None:
        """Do what can be done; say in how many seconds at most to come again, without more happening. None: never.

        Readable says that there may be something to read; else the connection is not asked.
        """
        if self.closed or self.forked:
            return None
        self.act()
        if self.link is not None:
            self._listen(now, readable=readable)
        if self.link is None:
            self._join(now)
        if self.session.calls.put_off and now >= self._again_at:  # Others wait for what is to be given back.
            self._again_at = now + AGAIN_TIME
            self.session.calls.try_again()
            self.session.calls.pump()
        self._flush(now)
        if self.closing:
            if self._gone() or now >= self._close_until:
                self.close()
                return None
            return min(self._close_until, self._next_try if self.link is None else self._close_until) - now
        if self.link is not None:
            until = self._again_at if self.session.calls.put_off else None
            until = until if self.session.joined else self._attach_until
            return None if until is None else max(0.0, until - now)
        due = self._next_try
        if self._away_since is not None and not self._gave_up:
            due = min(due, self._away_since + self.options.grace)
        return max(0.0, due - now)

    def wants_to_send(self) -> bool:
        """Whether the driver is to poll for room."""
        with self.session.outgoing() as rest:
            return self.link is not None and bool(rest)

    def ask(self, act: Callable[[], None]) -> None:
        """Have something done in the next turn, in order. It may be called in the middle of anything."""
        self._asked.append(act)
        self._wake()

    def act(self) -> None:
        """Do what was asked for."""
        with contextlib.suppress(IndexError):
            while True:
                self._asked.popleft()()

    def look(self, call: Call) -> None:
        """Raise where a call cannot be made; else it is one of this session."""
        self.usable(call.op)
        if call.only is not None and call.only != self.epoch:
            raise lost(call.op, "the session that it is of is over; treat it as a miss")
        self.session.calls.look(call)
        call.epoch = self.epoch

    def begin(self, call: Call, waiting: Waiting[Any]) -> None:
        """Make a call that was looked at, or have it be lost where it cannot be made any more."""
        looked_at = call.epoch
        try:
            self.look(call)
            if call.subjects and looked_at != call.epoch:
                raise lost(call.op, "the handle is void: what it held is gone; treat it as a miss")
        except Error as error:
            waiting.lost(error)
            return
        self._waiting[call] = waiting
        self.session.calls.add(call)

    def abort(self, call: Call) -> None:
        """Take a call back. It still has an answer, or is lost, as all are by a close: nothing is asked after that."""
        if not self.closing:
            self._settle(self.session.calls.abort(call))

    def shown(self, call: Call, first: int, code: int) -> None:
        """Say that what was shown is read, or with a code that it is of no use."""
        self.session.calls.shown(call, first, code)

    def forget(self, call: Call) -> None:
        """Know that nobody waits for a call any more. What it brings is given back."""
        self._waiting.pop(call, None)
        if not self.closing:
            self.session.calls.forget(call)

    def begin_close(self, now: float) -> None:
        """Have the agent take back everything. Turns go on until closed."""
        if not self.closing and not self.closed and not self.forked:
            self.closing, self._close_until = True, now + DETACH_TIME
            # The agent may give memory of an NPU back when it has heard.
            imported = self.pool.second if isinstance(self.pool, Pool) else self.pool
            if imported is not None:
                imported.drop()
            self._settle(self.session.detach())

    def close(self) -> None:
        """End everything, whether the agent has heard or not."""
        if self.closed:
            return
        self.closing = self.closed = True
        if self.link is not None:
            self.link.close()
            self.link = None
        self._settle(self.session.close())
        self._drop_pool()
        _cores.discard(self)

    def pin(self) -> Pinned:
        """Pin the pool, and that of each life after this one."""
        if self.pool is None:
            raise lost("pin_memory")
        if self.pinned is None or not self.pinned.done:
            self.pinned = pin(self.pool)
            log.info("%s", self.pinned.text)
        return self.pinned

    def own_memory(self) -> OwnMemory:
        """Have the pool stay mapped for as long as something looks at it, also when the session is over."""
        info, pool = self.session.info, self.pool
        if not self.session.joined or info is None or pool is None or pool.life != info.life:
            raise lost("own_memory")
        if isinstance(pool, npu.DevicePool):
            raise npu.on_device("own_memory", pool)
        return OwnMemory(pool.keep(), self.epoch, info.life, self._server)

    # ---- for handles ----

    @property
    def epoch(self) -> int:
        """Counts sessions: what was brought in another one is void."""
        return self.session.epoch

    def usable(self, op: str) -> None:
        """Raise where this client serves nobody any more."""
        if self.forked:
            remedy = "make a client in this process: one does not survive a fork"
            raise ClosedError(op, Code.CLOSED, Why(remedy=remedy))
        if self.closing:
            raise ClosedError(op, Code.CLOSED, Why(remedy="make another client"))

    def leak(self, op: str, number: int, epoch: int) -> None:
        """Give back what a forgotten handle had. It may be called in the middle of anything: by a collection."""
        self.ask(lambda: self.session.calls.give_back(op, number, epoch))

    def where(self) -> str:
        """Say what is known of the agent, for people."""
        return f"{self.path}: {self._reason}"

    # ---- within ----

    def _gone(self) -> bool:
        """Whether the agent knows that this client closes: it ends the connection then."""
        return self.closing and self.session.detached

    def _listen(self, now: float, *, readable: bool) -> None:
        link = self.link
        if link is None:
            return
        try:
            while readable and self.link is link and not self._gone() and (data := link.receive()) is not None:
                readable = len(data) == PIECE  # Else that was all, or what follows is polled again.
                self._handle(self.session.receive(data), now)
                if self.session.joined:
                    link.drop_fds()
        except LinkError as error:
            self._cut(now, str(error))
        if self.link is link and not self.session.joined and now >= self._attach_until:
            self._cut(now, f"no answer to an attachment in {ATTACH_TIME:g} s")

    def _join(self, now: float) -> None:
        if self._away_since is None:
            self._away_since = now
        if not self._gave_up and not self.closing and now - self._away_since >= self.options.grace:
            self._gave_up = True
            if self.session.epoch:
                log.warning("the agent at %s is away for %g s: what it had is lost", self.path, self.options.grace)
            self._settle(self.session.give_up())
            self._drop_pool()
        if now < self._next_try:
            return
        self._next_try = now + self._pace.delay()
        try:
            self.link = Link.connect(self.path)
        except StrangerError as error:
            self._reached, self._reason = False, str(error)
            self.refusal = _stranger(self.path, error)
            return
        except (OSError, ValueError) as error:
            self._reached, self._reason = False, str(error)
            if _is_gone(self._server) or (isinstance(error, ConnectionRefusedError) and _is_socket(self.path)):
                # Its process has ended, or nobody listens at its socket, for good. The next agent needs the memory.
                self._settle(self.session.agent_gone())
                self._drop_pool()
            return
        self._server = self.link.server
        self._attach_until = now + ATTACH_TIME
        if not self._reached:  # Else how that ended says more.
            self._reached, self._reason = True, "it takes connections and answers none; it is stopped or overloaded"
        self.session.connected()

    def _flush(self, now: float) -> None:
        if self.link is None:
            return
        try:
            self.link.send(self.session)
        except LinkError as error:
            self._cut(now, str(error))

    def _cut(self, now: float, reason: str, *, expected: bool = False) -> None:
        if self.link is None:
            return
        self.link.close()
        self.link = None
        self._reason = reason
        (log.debug if self._said or expected else log.warning)("connection to %s: %s", self.path, reason)
        self._said = self._said or not expected
        self._settle(self.session.disconnected())
        if self._away_since is None:
            self._away_since = now
        self._next_try = now + self._pace.delay()
        self._wake()

    def _handle(self, events: Iterable[Event], now: float) -> None:
        for event in events:
            if isinstance(event, Joined):
                self._joined(event, now)
            elif isinstance(event, Refused):
                self._refused(event, now)
            elif isinstance(event, Broken):
                self._cut(now, event.reason)
            else:
                self._settle((event,))
                if isinstance(event, Answered):
                    self._pace.worked()
                    self._said = False

    def _refused(self, event: Refused, now: float) -> None:
        """Take a refusal. Where the pool is an NPU's, the agent wants to know this process as its driver does."""
        self.refusal = event.error
        if event.info.device_bytes and event.error.code == Code.UNSUPPORTED and not self.session.device_process:
            try:
                self.session.device_process = npu.process_of(event.info.device)
            except npu.NPUError as error:
                why = Why(stage="attach", peer="agent", said=event.info.reason, remedy=str(error))
                self.refusal = Error("attach", Code.UNSUPPORTED, why)
            else:
                self.refusal = None
                self._pace.worked()
        if self.refusal is None:
            self._cut(now, "it is asked again, with this process's number", expected=True)
        else:
            self._cut(now, str(self.refusal))

    def _joined(self, event: Joined, now: float) -> None:
        link, info = self.link, event.info
        if link is None:
            return
        fd = link.take_fd()
        try:
            if self.pool is None or self.pool.life != info.life:
                if info.device_key and not info.device_pages:
                    self._map(npu.DevicePool(info))
                elif fd is None:
                    raise OSError("no descriptor came with the attachment")
                else:
                    self._map(_pools(fd, info))
        except (OSError, ValueError, OverflowError) as error:
            self._cut(now, f"the pool cannot be mapped: {error}")
            return
        finally:
            if fd is not None:
                os.close(fd)
        self.refusal = None
        self._settle(())
        self._away_since, self._gave_up = None, False
        if event.resumed:
            log.info("attached to %s again; everything goes on", self.path)
        elif self.session.epoch > 1:
            log.warning("attached to %s anew: what was held before is a miss", self.path)

    def _map(self, pool: Pool | npu.DevicePool) -> None:
        self._drop_pool()
        self.pool = pool
        if self.pinned is not None and self.pinned.done:
            self.pinned = pin(pool)
            log.info("%s", self.pinned.text)

    def _drop_pool(self) -> None:
        """Give up the memory of a session that is over. Its handles are void before: see PagesBase.look."""
        pool, self.pool = self.pool, None
        if pool is None:
            return
        if self.pinned is not None and self.pinned.done:
            unpin(pool)
        try:
            pool.drop()
        except OSError as error:
            log.warning("the memory of an agent that is gone stays mapped while something looks at it: %s", error)

    def _settle(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Answered):
                self._answered(event)
            elif isinstance(event, Showing):
                if (waiting := self._waiting.get(event.call)) and self.pool is not None:
                    waiting.showing(event.show, self.pool)
            elif isinstance(event, CameBack):
                if waiting := self._waiting.pop(event.call, None):
                    waiting.came_back()
            elif isinstance(event, Lost) and (waiting := self._waiting.pop(event.call, None)):
                if event.adrift:
                    self._adrift.add(waiting)
                    self._adrift_in = self.session.epoch
                waiting.lost(event.error, adrift=event.adrift)
        if self._adrift and self._adrift_in != self.session.epoch:
            self._ashore()

    def _ashore(self) -> None:
        """Know that the session of calls that were adrift is over."""
        over, self._adrift = list(self._adrift), weakref.WeakSet()
        for waiting in over:
            waiting.came_back()

    def _answered(self, event: Answered) -> None:
        held = event.answer.held
        waiting = self._waiting.get(event.call) if held else self._waiting.pop(event.call, None)
        if waiting is None:
            return
        info = self.session.info
        if self.pool is None or info is None or self.pool.life != info.life:  # It could not be mapped.
            self._waiting.pop(event.call, None)
            waiting.lost(lost(event.call.op))
            return
        reply = Reply(event.call, event.answer, self.pool, self.session.epoch)
        if op := event.call.gives_back:
            reply.keep(weakref.finalize(reply, self.leak, op, event.call.number, reply.epoch))
        waiting.answered(reply)


def _stranger(path: str, error: StrangerError) -> Error:
    """Refuse an agent of another user."""
    remedy = "give the socket of an agent of this user, or of root; nothing was sent there"
    field, ours = f"the user of {error.what} at {path}", f"{os.geteuid()} or 0"
    why = Why(stage="attach", field=field, ours=ours, theirs=str(error.uid), remedy=remedy)
    return Error("attach", Code.REFUSED, why)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _is_gone(pid: int) -> bool:
    """Whether no process has a number any more. One that is used again is taken for the process that had it before."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _pools(fd: int, info: Attached) -> Pool:
    """Map the file, and import the second pool beside it, if there is one."""
    second = npu.DevicePool(info) if info.device_pages else None
    try:
        return Pool(fd, info, second)
    except BaseException:
        if second is not None:
            second.drop()
        raise


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork() -> None:
    """Give up the parent's connections, else the agent would not see the parent's end; and its memory."""
    keep_inherited()
    for core in list(_cores):
        core.forked = True
        if core.link is not None:
            core.link.close()
    _cores.clear()


os.register_at_fork(after_in_child=_after_fork)


def forgotten(core: Core, op: str, number: int, epoch: int, what: str) -> None:
    """Give back what a handle had that nobody gave back: the finalizer of handles."""
    if core.closing or core.forked or epoch != core.epoch:
        return
    core.leak(op, number, epoch)
    warnings.warn(f"{what} were forgotten, and given back by the collector", ResourceWarning, stacklevel=2)
