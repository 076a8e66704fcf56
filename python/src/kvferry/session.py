"""The client's half of the conversation with an agent, without any I/O: bytes in, bytes out, events.

A session outlives connections. Whoever drives it says when one is there (connected) or gone (disconnected), gives it
what arrives (receive) and sends what it has to say (outgoing, sent). It has no clock, no lock and no thread. Here is
how it attaches and ends; its calls have a home of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvferry import messages
from kvferry.call import Call, CallEvent, Lost
from kvferry.calls import Calls
from kvferry.codes import Code
from kvferry.errors import ClosedError, Error, Why
from kvferry.frames import FrameError, Stream
from kvferry.limits import fit_text
from kvferry.messages import Answer, Attached, MessageError

QUEUE_MAX = 4096


@dataclass(frozen=True)
class Joined:
    """The agent took the attachment. Where it is not resumed, what was held before is void, and calls have ended."""

    info: Attached
    resumed: bool


@dataclass(frozen=True)
class Refused:
    """The agent did not take it; the connection is of no more use."""

    error: Error
    # What the agent says of itself all the same.
    info: Attached


@dataclass(frozen=True)
class Broken:
    """What came is no conversation; the connection is of no more use. It is the last event of that connection."""

    reason: str


Event = Joined | Refused | Broken | CallEvent


class Session:
    """See the module. Its methods, and those of its calls, must not be called by two threads at once."""

    def __init__(self, name: str = "", queue_max: int = QUEUE_MAX, *, adopts: bool = False) -> None:
        """Call the engine so, for people; queue at most so many calls. It may have the pool as its own memory."""
        fit_text("connect", "name", name)
        self._name = name
        self._adopts = adopts
        self._stream = Stream()
        self.calls = Calls(self._stream, queue_max)
        self._session = 0
        self._life = ""
        self._asked = 0  # which session the connection asked for
        self._hears = False  # A connection is there that makes sense so far.
        self._stale = False  # the session is given up, and the agent may have it still
        self._leaving = 0  # the number by which a stale one is ended
        self._detaching: Call | None = None
        # The number that the driver of an NPU has for this process; 0: no agent has asked for it.
        self.device_process = 0

    @property
    def joined(self) -> bool:
        """Whether calls go to an agent now."""
        return self._stream.joined

    @property
    def info(self) -> Attached | None:
        """What the agent said of itself last."""
        return self.calls.info

    @property
    def epoch(self) -> int:
        """Counts sessions: what was got in another one is void."""
        return self.calls.epoch

    # ---- the connection ----

    def connected(self) -> None:
        """Begin with a connection."""
        self._restart()
        self._hears, self._asked = True, self._session
        life = self._life if self._session else ""
        self._stream.say(
            messages.attach_request(
                self._name, self._session, life, self.calls.open, self.device_process, adopts=self._adopts
            )
        )

    def disconnected(self) -> list[Lost]:
        """Know that the connection is gone. Calls stay, for the next one, but for those that may be why it was cut."""
        lost = self.calls.cut()
        self._restart()
        return lost

    def _restart(self) -> None:
        self._hears = False
        self._stream.restart()
        self.calls.unsay()

    def outgoing(self) -> memoryview:
        """Give what is to be sent. It must be released before anything else is called."""
        return memoryview(self._stream.out)

    def sent(self, count: int) -> None:
        """Know that so many bytes of it were sent."""
        del self._stream.out[:count]
        self._stream.passed += count

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take what arrived."""
        events: list[Event] = []
        if not self._hears:
            return events
        self._stream.frames.feed(data)
        try:
            while self._hears and (payload := self._stream.frames.next()) is not None:
                self._take(messages.decode(payload), events)
        except (FrameError, MessageError) as error:
            self._hears = self._stream.joined = False
            self._stream.out.clear()
            events.append(Broken(f"the agent does not speak this protocol: {error}"))
        self.calls.pump()
        return events

    def _take(self, message: messages.Message, events: list[Event]) -> None:
        if isinstance(message, Attached):
            if self.joined:
                raise MessageError("a second KvfAttachResponse")
            self._attached(message, events)
        elif self._stale:
            self._left(message, events)
        elif not self.joined:
            raise MessageError(f"{type(message).__name__} before the KvfAttachResponse")
        else:
            events += self.calls.hear(message)

    # ---- the attachment ----

    def _attached(self, info: Attached, events: list[Event]) -> None:
        if info.code:
            self._refused(info, events)
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
        self._stream.joined, self._stale = True, False
        self._session, self._life = info.session, info.life
        self.calls.away = self._detaching is not None
        events += self.calls.attached(info)
        events.append(Joined(info, info.resumed))

    def _refused(self, info: Attached, events: list[Event]) -> None:
        self._hears = False
        error = Error("attach", Code.of(info.code), Why(stage="attach", peer="agent", remedy=info.reason))
        if self._asked and error.code == Code.REFUSED:  # That session ends. Another may begin.
            events += self.calls.lose(all_of_them=True)
            self._session, self._stale = 0, False
            events.append(Broken(str(error)))
        else:
            events.append(Refused(error, info))

    def _leave(self) -> None:
        """Tell an agent that came back too late that nothing is needed any more of what it has."""
        self._leaving = self.calls.next_number()
        self._stream.say(messages.call(self._leaving, [], "detach", {}))

    def _left(self, message: messages.Message, events: list[Event]) -> None:
        if isinstance(message, Answer) and message.id == self._leaving:
            self._session, self._stale, self._hears = 0, False, False
            events.append(Broken("the session that was given up is over; another begins"))

    # ---- its end ----

    def agent_gone(self) -> list[Lost]:
        """Know that the agent's process has ended, and its sessions with it. The connection is gone already.

        Calls that were not sent, and are about nothing of the session, wait for the next agent.
        """
        if not self._session:
            return []
        self._session, self._stale = 0, False
        return self.calls.session_gone()

    def give_up(self) -> list[Lost]:
        """End everything: the agent does not come back in time. Until another is there calls are lost at once.

        Where it comes back all the same it is told to give back what was held there.
        """
        self._restart()
        self.calls.away, self._stale = True, bool(self._session)
        return self.calls.lose(all_of_them=True)

    def detach(self) -> list[Lost]:
        """Tell the agent that nothing is needed any more; when it has answered, detached says so. Calls are lost."""
        lost_calls = self.calls.lose(all_of_them=True, keep_open=True)
        self.calls.away = True
        self._detaching = self.calls.add(Call("detach", {}, own=True))
        return _closed(lost_calls)

    @property
    def detached(self) -> bool:
        """Whether the agent has nothing of this process any more."""
        return self._session == 0 or (self._detaching is not None and self._detaching.answer is not None)

    def close(self) -> list[Lost]:
        """End everything for good."""
        self._restart()
        self.calls.away = True
        return _closed(self.calls.lose(all_of_them=True))


def _closed(events: list[Lost]) -> list[Lost]:
    """Say that it was this side that ended calls."""
    remedy = "make another client"
    return [Lost(e.call, ClosedError(e.call.op, Code.CLOSED, Why(remedy=remedy))) for e in events]
