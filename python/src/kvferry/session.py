"""The client's half of the conversation with an agent, without any I/O: bytes in, bytes out, events.

A session outlives connections. Whoever drives it says when one is there (connected) or gone (disconnected), gives it
what arrives (receive) and sends what it has to say (outgoing, sent). It has no clock, no lock and no thread.

A call is queued here until the agent's window has room. Its number is given when it is sent, so numbers ascend on the
wire. Calls that give something back have a lane of their own and a part of the window: else calls that wait for memory
could keep back the very call that frees it.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvferry import messages
from kvferry.codes import Code
from kvferry.errors import ClosedError, Error, Why, error_of, lost
from kvferry.frames import FrameError, Frames, frame
from kvferry.messages import Answer, Attached, MessageError, Returned, Show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Calls that give something back. They go before others, and are never taken back: who does not wait for one any more
# leaves it to the session.
ENDING = frozenset(("release", "abort", "take_back", "withdraw", "drop_prefill", "detach"))

# What gives back that which a call brought.
GIVES_BACK = {
    "reserve": "release",
    "get": "release",
    "shared_get": "release",
    "share": "withdraw",
    "begin_prefill": "drop_prefill",
}

QUEUE_MAX = 4096


class State(enum.Enum):
    """How far a call is."""

    QUEUED = enum.auto()
    SENT = enum.auto()
    ANSWERED = enum.auto()  # its memory may still be touched
    OVER = enum.auto()


@dataclass(eq=False)
class Call:
    """One call. Its number is 0 until it was sent."""

    op: str
    entries: Mapping[str, Any]
    # Nobody waits for it: the session made it.
    own: bool = False
    number: int = 0
    epoch: int = 0  # in which it was sent
    state: State = State.QUEUED
    answer: Answer | None = None
    returned: bool = False
    # Its caller went away. What it brings is given back as it comes.
    forgotten: bool = False
    # Of a fetch: the first chunk of what was shown last, and how the caller ended that; None while it reads.
    shown_first: int | None = None
    shown_code: int | None = None
    # Whether that was shown on this connection: else the agent does not wait for the word of it.
    shown_here: bool = False

    @property
    def ending(self) -> bool:
        """Whether it goes before others."""
        return self.op in ENDING

    @property
    def subjects(self) -> tuple[int, ...]:
        """The numbers of calls that it is about."""
        both = (self.entries.get("target", 0), self.entries.get("prefill", 0))
        return tuple(number for number in both if number)


@dataclass(frozen=True)
class Joined:
    """The agent took the attachment. Where it is not resumed, what was held before is void, and calls have ended."""

    info: Attached
    resumed: bool


@dataclass(frozen=True)
class Refused:
    """The agent did not take it; the connection is of no more use."""

    error: Error


@dataclass(frozen=True)
class Broken:
    """What came is no conversation; the connection is of no more use. It is the last event of that connection."""

    reason: str


@dataclass(frozen=True)
class Answered:
    """A call has its answer."""

    call: Call
    answer: Answer


@dataclass(frozen=True)
class CameBack:
    """Nothing touches the memory of an answered call any more."""

    call: Call


@dataclass(frozen=True)
class Showing:
    """Chunks of a fetch are to be read. The session waits for shown."""

    call: Call
    show: Show


@dataclass(frozen=True)
class Lost:
    """A call, or the wait for its memory, ended without the agent."""

    call: Call
    error: Error


Event = Joined | Refused | Broken | Answered | CameBack | Showing | Lost


@dataclass
class _Lane:
    """Calls that wait for room, in their order."""

    calls: deque[Call] = field(default_factory=deque)
    # How many of them are about a number.
    about: Counter[int] = field(default_factory=Counter)

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.about.update(call.subjects)

    def remove(self, call: Call) -> None:
        self.calls.remove(call)
        for number in call.subjects:
            self.about[number] -= 1
            if not self.about[number]:
                del self.about[number]


class Session:
    """See the module. Its methods must not be called by two threads at once."""

    def __init__(self, name: str = "", queue_max: int = QUEUE_MAX) -> None:
        """Call the engine so, for people; queue at most so many calls."""
        self._name = name
        self._queue_max = queue_max
        self._session = 0
        self._life = ""
        self._asked = 0  # which session the connection asked for
        self._connected = False
        self._joined = False
        self._broken = False
        self._info: Attached | None = None
        self._frames = Frames()
        self._out = bytearray()
        self._last = 0  # the highest number that was given
        self._open: dict[int, Call] = {}  # sent, and not all of it has come: ascending
        self._done: list[int] = []  # all has come, and the agent was not told
        self._work, self._ending = _Lane(), _Lane()
        self._again: list[Call] = []  # own calls for which the agent had no room
        self._away = False
        self._stale = False  # the session is given up, and the agent may have it still
        self._detaching: Call | None = None
        self.epoch = 0  # counts sessions: what was got in another one is void
        self.doubles = 0  # what came a second time, and was ignored

    # ---- the connection ----

    @property
    def joined(self) -> bool:
        """Whether calls go to an agent now."""
        return self._joined

    @property
    def info(self) -> Attached | None:
        """What the agent said of itself last."""
        return self._info

    @property
    def waiting(self) -> int:
        """How many calls wait here for room."""
        return len(self._work.calls) + len(self._ending.calls)

    def connected(self) -> None:
        """Begin with a connection."""
        self._forget_connection()
        self._connected, self._asked = True, self._session
        for call in self._open.values():
            call.shown_here = False
        life = self._life if self._session else ""
        self._say(messages.attach_request(self._name, self._session, life, list(self._open)))

    def disconnected(self) -> None:
        """Know that the connection is gone. Calls stay, for the next one."""
        self._forget_connection()

    def give_up(self) -> list[Lost]:
        """End everything: the agent does not come back in time. Until another is there calls are lost at once.

        Where it comes back all the same it is told to give back what was held there.
        """
        self._forget_connection()
        self._away, self._stale = True, bool(self._session)
        return self._lose(all_of_them=True)

    def detach(self) -> list[Lost]:
        """Tell the agent that nothing is needed any more; when it has answered, detached says so. Calls are lost."""
        lost_calls = self._lose(all_of_them=True, keep_open=True)
        self._away = True
        self._detaching = Call("detach", {}, own=True)
        self._queue(self._detaching)
        return _closed(lost_calls)

    @property
    def detached(self) -> bool:
        """Whether the agent has nothing of this process any more."""
        return self._session == 0 or (self._detaching is not None and self._detaching.answer is not None)

    def close(self) -> list[Lost]:
        """End everything for good."""
        self._forget_connection()
        self._away = True
        return _closed(self._lose(all_of_them=True))

    def outgoing(self) -> memoryview:
        """Give what is to be sent. It must be released before anything else is called."""
        return memoryview(self._out)

    def sent(self, count: int) -> None:
        """Know that so many bytes of it were sent."""
        del self._out[:count]

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take what arrived."""
        events: list[Event] = []
        if not self._connected or self._broken:
            return events
        self._frames.feed(data)
        try:
            while not self._broken and (payload := self._frames.next()) is not None:
                self._take(messages.decode(payload), events)
        except (FrameError, MessageError) as error:
            self._broken, self._joined = True, False
            self._out.clear()
            events.append(Broken(f"the agent does not speak this protocol: {error}"))
        self._pump()
        return events

    def _forget_connection(self) -> None:
        self._connected = self._joined = self._broken = False
        self._frames = Frames()
        self._out.clear()

    def _say(self, payload: bytes) -> None:
        self._out += frame(payload)

    # ---- calls ----

    def submit(self, op: str, entries: Mapping[str, Any]) -> Call:
        """Queue a call, and send it where there is room. It raises where it cannot be made; then nothing has happened.

        A target or prefill among its entries must be of the present epoch, which the caller has looked at.
        """
        if self._away:
            raise lost(op, "no agent is there; treat it as a miss, and look why the agent does not run")
        if self.waiting >= self._queue_max and op not in ENDING:
            raise Error(
                op,
                Code.TOO_MANY,
                Why(count=self.waiting, field="queue", theirs=f"{self.waiting} calls wait", ours=f"{self._queue_max}"),
            )
        self._fits(op, entries)
        call = Call(op, entries)
        self._queue(call)
        return call

    def _fits(self, op: str, entries: Mapping[str, Any]) -> None:
        if self._info is None:
            return
        keys = len(entries.get("keys", ()))
        if self._info.keys and keys > self._info.keys:
            why = Why(stage="command", field="keys", theirs=str(keys), ours=f"at most {self._info.keys}")
            raise error_of(op, Code.TOO_LARGE, why)
        if not self._info.bytes:
            return
        # What the window's done can add, as large as numbers get, is counted too: it is not known before.
        size = len(messages.call((1 << 64) - 1, [], op, entries)) + 9 * self._info.window + 16
        if size > self._info.bytes:
            why = Why(stage="command", field="the call", theirs=f"{size} bytes", ours=f"at most {self._info.bytes}")
            raise error_of(op, Code.TOO_LARGE, why)

    def _queue(self, call: Call) -> None:
        (self._ending if call.ending else self._work).add(call)
        self._pump()

    def give_back(self, op: str, number: int, epoch: int) -> None:
        """Give back what a call brought, where nobody waits for the outcome. What is void already is left alone."""
        if epoch == self.epoch and not self._away and self._detaching is None:
            self._queue(Call(op, {"target": number} if op != "drop_prefill" else {"prefill": number}, own=True))

    def forget(self, call: Call) -> None:
        """Know that nobody waits for a call any more.

        One that was not sent never is; another is taken back, and what it brings is given back.
        """
        if call.forgotten or call.own:
            return
        if call.ending:
            call.own = True
            return
        call.forgotten = True
        if call.state is State.QUEUED:
            self._work.remove(call)
            call.state = State.OVER
        elif call.answer is not None:
            self._give_back_of(call)
        elif call.state is State.SENT:
            self._queue(Call("abort", {"target": call.number}, own=True))
            if call.shown_first is not None and call.shown_code is None:
                self.shown(call, call.shown_first, Code.CANCELLED)

    def abort(self, call: Call) -> None:
        """Take a call back. It still has an answer, or is lost."""
        if call.state is State.SENT:
            self._queue(Call("abort", {"target": call.number}, own=True))

    def shown(self, call: Call, first: int, code: int) -> None:
        """Say that what a Showing lent is read, or with a code that it is of no use. A second word is ignored."""
        if call.state is not State.SENT or call.shown_first != first or call.shown_code is not None:
            return
        call.shown_code = code
        if self._joined and call.shown_here:  # Else the agent shows it again, and is told then.
            self._say(messages.shown(call.number, first, code))

    def _pump(self) -> None:
        """Send what there is room for."""
        while self._joined and self._info is not None:
            room = self._info.window - len(self._open)
            call = self._next(room)
            if call is None:
                return
            self._last += 1
            call.number, call.epoch, call.state = self._last, self.epoch, State.SENT
            self._open[call.number] = call
            self._say(messages.call(call.number, self._done, call.op, call.entries))
            self._done = []

    def _next(self, room: int) -> Call | None:
        if room < 1 or self._info is None:
            return None
        for call in self._ending.calls:
            # What is about the same must not be overtaken.
            if not any(number in self._work.about for number in call.subjects):
                self._ending.remove(call)
                return call
        spare = min(max(1, self._info.window // 8), self._info.window - 1)
        if self._work.calls and room > spare:
            call = self._work.calls[0]
            self._work.remove(call)
            return call
        return None

    # ---- what the agent says ----

    def _take(self, message: messages.Message, events: list[Event]) -> None:
        if isinstance(message, Attached):
            if self._joined:
                raise MessageError("a second KvfAttachResponse")
            self._attached(message, events)
        elif self._stale:
            self._left(message, events)
        elif not self._joined:
            raise MessageError(f"{type(message).__name__} before the KvfAttachResponse")
        elif isinstance(message, Answer):
            self._answered(message, events)
        elif isinstance(message, Show):
            self._show(message, events)
        else:
            self._came_back(message, events)

    def _attached(self, info: Attached, events: list[Event]) -> None:
        if info.code:
            self._broken = True
            why = Why(stage="attach", peer="agent", remedy=info.reason)
            error = Error("attach", Code.of(info.code), why)
            if self._asked and error.code == Code.REFUSED:  # That session ends. Another may begin.
                events += self._lose(all_of_them=True)
                self._session, self._stale = 0, False
                events.append(Broken(str(error)))
            else:
                events.append(Refused(error))
            return
        if info.v != messages.VERSION:
            raise MessageError(f"the agent speaks version {info.v}, this client {messages.VERSION}")
        if not info.window or not info.session or not info.life:
            raise MessageError("an attachment without a session, a life or a window")
        if info.resumed and (not self._asked or info.session != self._asked or info.life != self._life):
            raise MessageError("the agent resumed another session than was asked for")
        if self._stale and info.resumed:
            self._leave()
            return
        self._joined, self._away, self._stale = True, self._detaching is not None, False
        self._info, self._session, self._life = info, info.session, info.life
        # The agent forgot all that the attachment did not name: nothing is left to be told.
        self._done = []
        if info.resumed:
            for number, call in self._open.items():
                if call.answer is None:
                    self._say(messages.call(number, [], call.op, call.entries))
        else:
            events += self._lose(all_of_them=False)
            self.epoch += 1
        events.append(Joined(info, info.resumed))

    def _leave(self) -> None:
        """Tell an agent that came back too late that nothing is needed any more of what it has."""
        self._last += 1
        self._say(messages.call(self._last, [], "detach", {}))

    def _left(self, message: Answer | Show | Returned, events: list[Event]) -> None:
        if isinstance(message, Answer) and message.id == self._last:
            self._session, self._stale, self._broken = 0, False, True
            events.append(Broken("the session that was given up is over; another begins"))

    def _lose(self, *, all_of_them: bool, keep_open: bool = False) -> list[Lost]:
        """End what was under way. What was never sent and names nothing of the old session may go on in a new one.

        With keep_open the agent still has the calls that were sent, and answers them to nobody.
        """
        queued = list(self._ending.calls) + list(self._work.calls)
        gone = [*self._open.values(), *self._again, *(c for c in queued if all_of_them or c.subjects)]
        stay = [] if all_of_them else [c for c in queued if not c.subjects]
        made = [Lost(call, lost(call.op)) for call in gone if not call.own and not call.forgotten]
        self._again, self._work, self._ending = [], _Lane(), _Lane()
        for call in stay:
            (self._ending if call.ending else self._work).add(call)
        if keep_open:
            for call in self._open.values():
                call.forgotten = True
                if call.shown_first is not None:
                    self.shown(call, call.shown_first, Code.CANCELLED)
        else:
            self._open, self._done = {}, []
        if all_of_them:
            self.epoch += 1
        for call in gone:
            if call.number not in self._open:
                call.state = State.OVER
        return made

    def _sent_call(self, number: int) -> Call | None:
        """Find an open call. What is open no more came a second time; what never was is none of a conversation."""
        if number == 0 or number > self._last:
            raise MessageError(f"call {number} was never made")
        call = self._open.get(number)
        if call is None:
            self.doubles += 1
        return call

    def _look_at(self, pages: Iterable[int], lengths: Iterable[int]) -> None:
        if self._info is None:
            return
        for page, length in zip(pages, lengths, strict=True):
            if page >= self._info.pages or length > self._info.page_bytes:
                raise MessageError(f"{length} bytes of page {page}, which the pool has not")

    def _answered(self, answer: Answer, events: list[Event]) -> None:
        call = self._sent_call(answer.id)
        if call is None:
            return
        if call.answer is not None:
            self.doubles += 1
            return
        self._look_at(answer.pages, answer.lengths)
        call.answer, call.state = answer, State.ANSWERED
        over = not answer.held or call.returned
        if over:
            self._over(call)
        if call.own:
            self._own_answered(call, answer)
        elif call.forgotten:
            self._give_back_of(call)
        else:
            events.append(Answered(call, answer))
            if over and answer.held:
                events.append(CameBack(call))

    def _came_back(self, message: Returned, events: list[Event]) -> None:
        call = self._sent_call(message.id)
        if call is None:
            return
        call.returned = True
        if call.answer is None:
            return  # Its answer says that it is held, and finds this.
        self._over(call)
        if not call.own and not call.forgotten:
            events.append(CameBack(call))

    def _show(self, show: Show, events: list[Event]) -> None:
        call = self._sent_call(show.id)
        if call is None:
            return
        if call.answer is not None:
            self.doubles += 1
            return
        if call.op not in ("fetch", "shared_fetch"):
            raise MessageError(f"chunks are shown of a {call.op}")
        self._look_at(show.pages, show.lengths)
        call.shown_here = True
        if call.shown_first == show.first:
            self.doubles += 1
            if call.shown_code is not None:  # The word of it was lost.
                self._say(messages.shown(call.number, show.first, call.shown_code))
            return
        call.shown_first, call.shown_code = show.first, None
        if call.forgotten:
            self.shown(call, show.first, Code.CANCELLED)
        else:
            events.append(Showing(call, show))

    def _over(self, call: Call) -> None:
        """Know that all of a call has come."""
        call.state = State.OVER
        del self._open[call.number]
        self._done.append(call.number)
        if not call.own:  # Something has moved: there may be room now.
            for other in self._again:
                self._ending.add(other)
            self._again = []

    def _own_answered(self, call: Call, answer: Answer) -> None:
        """Try again later what the agent had no room for: else what is given back would be lost to everybody."""
        if answer.code == Code.TOO_MANY and call.op not in ("abort", "detach"):
            self._again.append(Call(call.op, call.entries, own=True))

    def _give_back_of(self, call: Call) -> None:
        """Give back what a call brought that nobody has."""
        answer, op = call.answer, GIVES_BACK.get(call.op)
        if answer is None or op is None or not brought(call.op, answer):
            return
        self.give_back(op, call.number, call.epoch)


def _closed(events: list[Lost]) -> list[Lost]:
    """Say that it was this side that ended calls."""
    remedy = "make another client"
    return [Lost(e.call, ClosedError(e.call.op, Code.CLOSED, Why(remedy=remedy))) for e in events]


def brought(op: str, answer: Answer) -> bool:
    """Say whether a call's number names something now."""
    if GIVES_BACK.get(op) == "release":
        return bool(answer.pages)
    return answer.code == Code.OK or answer.hits > 0
