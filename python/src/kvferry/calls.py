"""The calls of a session that are under way: which wait for room, which the agent has, and what came of each.

A call is queued here until the agent's window has room. Its number is given when it is sent, so numbers ascend on the
wire. Calls that give something back have a lane of their own and a part of the window: else calls that wait for memory
could keep back the very call that frees it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvferry import messages
from kvferry.call import ENDING, Answered, Call, CameBack, Lost, Showing, State
from kvferry.codes import Code
from kvferry.errors import Error, LostError, Why, lost
from kvferry.limits import fit
from kvferry.messages import Answer, MessageError, Returned, Show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvferry.call import CallEvent
    from kvferry.frames import Stream
    from kvferry.messages import Attached

# So many connections in a row may be cut after a call was sent, with nothing new from the agent. The call is lost then:
# it may be what the agent hangs up on, and would keep back everything behind it.
CUTS_MAX = 3


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


class Calls:
    """See the module. The session says how the connection and the attachment are."""

    def __init__(self, stream: Stream, queue_max: int) -> None:
        """Send over a stream; queue at most so many calls."""
        self._stream = stream
        self._queue_max = queue_max
        self.info: Attached | None = None  # what the agent said of itself last
        self.away = False  # No call is taken: none would be answered.
        self.epoch = 0  # counts sessions: what was got in another one is void
        self.doubles = 0  # what came a second time, and was ignored
        self._heard = 0  # messages of the agent that said something new
        self._read = 0  # the highest number that the agent spoke of: it read that call, and all before
        self._last = 0  # the highest number that was given
        self._open: dict[int, Call] = {}  # sent, and not all of it has come: ascending
        self._done: list[int] = []  # all has come, and the agent was not told
        self._work, self._ending = _Lane(), _Lane()
        self._again: list[Call] = []  # own calls for which the agent had no room

    # ---- for who makes them ----

    @property
    def waiting(self) -> int:
        """How many calls wait here for room."""
        return len(self._work.calls) + len(self._ending.calls)

    def submit(self, op: str, entries: Mapping[str, Any]) -> Call:
        """Make a call, and send it where there is room. It raises where it cannot be made; then nothing has happened.

        A target or prefill among its entries must be of the present epoch, which the caller has looked at.
        """
        call = Call(op, entries)
        self.look(call)
        return self.add(call)

    def look(self, call: Call) -> None:
        """Raise where a call cannot be made. Nothing is changed by that."""
        op = call.op
        if self.away:
            raise lost(op, "no agent is there; treat it as a miss, and look why the agent does not run")
        if self.waiting >= self._queue_max and op not in ENDING:
            raise Error(
                op,
                Code.TOO_MANY,
                Why(count=self.waiting, field="queue", theirs=f"{self.waiting} calls wait", ours=f"{self._queue_max}"),
            )
        fit(op, call.entries, self.info)

    def add(self, call: Call) -> Call:
        """Queue a call as it is."""
        call.state = State.QUEUED
        (self._ending if call.ending else self._work).add(call)
        self.pump()
        return call

    def give_back(self, op: str, number: int, epoch: int) -> None:
        """Give back what a call brought, where nobody waits for the outcome. What is void already is left alone."""
        if epoch == self.epoch and not self.away:
            self.add(Call(op, {"target": number} if op != "drop_prefill" else {"prefill": number}, own=True))

    def forget(self, call: Call) -> None:
        """Know that nobody waits for a call any more.

        One that was not sent never is; another is taken back, and what it brings is given back.
        """
        if call.forgotten or call.own:
            return
        if call.ending:
            call.own = True
            if call.state is State.MADE and not self.away:
                self.add(call)
            return
        call.forgotten = True
        if call.state is State.MADE:
            call.state = State.OVER
        elif call.state is State.QUEUED:
            self._work.remove(call)
            call.state = State.OVER
        elif call.answer is not None:
            self._give_back_of(call)
        elif call.state is State.SENT:
            self.abort(call)
            if call.shown_first is not None and call.shown_code is None:
                self.shown(call, call.shown_first, Code.CANCELLED)

    def abort(self, call: Call) -> list[Lost]:
        """Take a call back. It still has an answer, or is lost: at once, if it was not sent."""
        if call.state is State.SENT:
            self.add(Call("abort", {"target": call.number}, own=True))
        if call.state is not State.QUEUED or call.ending:
            return []
        self._work.remove(call)
        call.state = State.OVER
        return [Lost(call, Error(call.op, Code.CANCELLED, Why(stage="command")))]

    def shown(self, call: Call, first: int, code: int) -> None:
        """Say that what a Showing lent is read, or with a code that it is of no use. A second word is ignored."""
        if call.state is not State.SENT or call.shown_first != first or call.shown_code is not None:
            return
        call.shown_code = code
        if self._stream.joined and call.shown_here:  # Else the agent shows it again, and is told then.
            self._stream.say(messages.shown(call.number, first, code))

    # ---- for the session ----

    @property
    def open(self) -> list[int]:
        """The numbers of calls of which something is to come, ascending."""
        return list(self._open)

    def next_number(self) -> int:
        """Give a number to a call that the session says by itself."""
        self._last += 1
        return self._last

    def cut(self) -> list[Lost]:
        """Know that the connection is gone. Calls stay, for the next one, but for those that may be why it was cut."""
        suspects = self._suspects()
        self.unsay()
        for call in suspects:  # The next attachment does not name it: so the agent takes it back.
            del self._open[call.number]
            call.state = State.OVER
        return [Lost(call, _cut(call.op), adrift=True) for call in suspects if not call.forgotten]

    def unsay(self) -> None:
        """Know that nothing was said yet on the connection that is there now."""
        for call in self._open.values():
            call.begins, call.shown_here = None, False

    def _suspects(self) -> list[Call]:
        """Count the cut, and find calls that it was the last for.

        Calls that give back are none: they have nothing but numbers, and what they give back would stay.
        """
        found = []
        for number, call in self._open.items():
            if call.begins is None or call.begins >= self._stream.passed or number <= self._read or call.ending:
                continue
            call.cuts = call.cuts + 1 if call.heard == self._heard else 0
            if call.cuts >= CUTS_MAX:
                found.append(call)
        return found

    def attached(self, info: Attached) -> list[Lost]:
        """Know that the agent took the attachment."""
        self.info = info
        # The agent forgot all that the attachment did not name: nothing is left to be told.
        self._done = []
        if not info.resumed:
            return self.session_gone()
        for call in self._open.values():
            if call.answer is None:
                self._say(call, [])
        return []

    def session_gone(self) -> list[Lost]:
        """Know that the agent has nothing of the session any more."""
        made = self.lose(all_of_them=False)
        self.epoch += 1
        return made

    def lose(self, *, all_of_them: bool, keep_open: bool = False) -> list[Lost]:
        """End what was under way. What was never sent and names nothing of the old session may go on in a new one.

        With keep_open the agent still has the calls that were sent, and answers them to nobody.
        """
        queued = list(self._ending.calls) + list(self._work.calls)
        gone = [*self._open.values(), *self._again, *(c for c in queued if all_of_them or c.bound)]
        stay = [] if all_of_them else [c for c in queued if not c.bound]
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

    def pump(self) -> None:
        """Send what there is room for."""
        while self._stream.joined and (call := self._next()) is not None:
            call.number, call.epoch, call.state = self.next_number(), self.epoch, State.SENT
            self._open[call.number] = call
            self._say(call, self._done)
            self._done = []

    def _next(self) -> Call | None:
        window = self.info.window if self.info is not None else 0
        room = window - len(self._open)
        if room < 1:
            return None
        for call in self._ending.calls:
            # What is about the same must not be overtaken.
            if not any(number in self._work.about for number in call.subjects):
                self._ending.remove(call)
                return call
        spare = min(max(1, window // 8), window - 1)
        if self._work.calls and room > spare:
            call = self._work.calls[0]
            self._work.remove(call)
            return call
        return None

    def _say(self, call: Call, done: list[int]) -> None:
        call.heard = self._heard
        call.begins = self._stream.say(messages.call(call.number, done, call.op, call.entries))

    # ---- what the agent says of them ----

    def hear(self, message: Answer | Show | Returned) -> list[CallEvent]:
        """Take a message. It raises MessageError where that is none of a conversation."""
        doubles = self.doubles
        call = self._sent_call(message.id)
        if call is None:
            return []
        if isinstance(message, Answer):
            events = self._answered(call, message)
        elif isinstance(message, Show):
            events = self._show(call, message)
        else:
            events = self._came_back(call)
        # What is only said again says nothing of the calls that were sent since.
        self._heard += self.doubles == doubles
        return events

    def _sent_call(self, number: int) -> Call | None:
        """Find an open call. What is open no more came a second time; what never was is none of a conversation."""
        if number == 0 or number > self._last:
            raise MessageError(f"call {number} was never made")
        self._read = max(self._read, number)
        call = self._open.get(number)
        if call is None:
            self.doubles += 1
        return call

    def _look_at(self, pages: Iterable[int], lengths: Iterable[int]) -> None:
        if self.info is None:
            return
        for page, length in zip(pages, lengths, strict=True):
            if not self.info.has(page) or length > self.info.page_bytes:
                raise MessageError(f"{length} bytes of page {page}, which the pool has not")

    def _answered(self, call: Call, answer: Answer) -> list[CallEvent]:
        if call.answer is not None:
            self.doubles += 1
            return []
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
            return [Answered(call, answer), *([CameBack(call)] if over and answer.held else [])]
        return []

    def _came_back(self, call: Call) -> list[CallEvent]:
        call.returned = True
        if call.answer is None:
            return []  # Its answer says that it is held, and finds this.
        self._over(call)
        return [] if call.own or call.forgotten else [CameBack(call)]

    def _show(self, call: Call, show: Show) -> list[CallEvent]:
        if call.answer is not None:
            self.doubles += 1
            return []
        if call.op not in ("fetch", "shared_fetch"):
            raise MessageError(f"chunks are shown of a {call.op}")
        self._look_at(show.pages, show.lengths)
        call.shown_here = True
        if call.shown_first == show.first:
            self.doubles += 1
            if call.shown_code is not None:  # The word of it was lost.
                self._stream.say(messages.shown(call.number, show.first, call.shown_code))
            return []
        call.shown_first, call.shown_code = show.first, None
        if not call.forgotten:
            return [Showing(call, show)]
        self.shown(call, show.first, Code.CANCELLED)
        return []

    def _over(self, call: Call) -> None:
        """Know that all of a call has come."""
        call.state = State.OVER
        del self._open[call.number]
        self._done.append(call.number)
        if not call.own:  # Something has moved: there may be room now.
            self.try_again()

    @property
    def put_off(self) -> bool:
        """Whether the agent had no room for calls that give something back."""
        return bool(self._again)

    def try_again(self) -> None:
        """Queue those."""
        for other in self._again:
            self._ending.add(other)
        self._again = []

    def _own_answered(self, call: Call, answer: Answer) -> None:
        """Try again later what the agent had no room for: else what is given back would be lost to everybody."""
        if answer.code == Code.TOO_MANY and call.op not in ("abort", "detach"):
            self._again.append(Call(call.op, call.entries, own=True))

    def _give_back_of(self, call: Call) -> None:
        """Give back what a call brought that nobody has."""
        if (op := call.gives_back) is not None:
            self.give_back(op, call.number, call.epoch)


def _cut(op: str) -> LostError:
    """Make the error of a call that may be what the agent hangs up on."""
    remedy = "treat it as a miss; the log of the agent says why it hung up"
    theirs = f"cut {CUTS_MAX} times in a row after this was sent"
    return LostError(op, Code.PEER_LOST, Why(field="the connection", theirs=theirs, remedy=remedy))
