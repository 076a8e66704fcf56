"""The calls of a session that are in progress: queued, sent, or answered.

A call is queued until the agent's window has room. It gets its number when it is sent, so numbers ascend on the wire.
Calls that release something have their own queue and a reserved part of the window. Otherwise calls that wait for
memory could block the very call that frees it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvferry import messages
from kvferry.call import RELEASE_OPS, Call, CallAnswered, CallLost, CallState, ChunksShown, MemoryReturned
from kvferry.codes import Code
from kvferry.errors import Error, ErrorDetails, LostError, lost_error
from kvferry.limits import check_call_size
from kvferry.messages import Answer, MessageError, Returned, Show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvferry.call import CallEvent
    from kvferry.frames import MessageStream
    from kvferry.messages import Attached

# After so many consecutive connections that were cut after a call was sent, without a new message from the agent, the
# call is lost. It may be the reason why the agent hangs up, and would block all calls behind it.
CUTS_MAX = 3


@dataclass
class _Lane:
    """Calls that wait for room in the window, in order."""

    calls: deque[Call] = field(default_factory=deque)
    # How many of the queued calls refer to each call number.
    target_counts: Counter[int] = field(default_factory=Counter)

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.target_counts.update(call.target_numbers)

    def remove(self, call: Call) -> None:
        self.calls.remove(call)
        for number in call.target_numbers:
            self.target_counts[number] -= 1
            if not self.target_counts[number]:
                del self.target_counts[number]


class CallTable:
    """See the module. The session reports the state of the connection and of the attachment."""

    def __init__(self, stream: MessageStream, queue_max: int) -> None:
        """Send calls over a stream; queue at most queue_max calls."""
        self._stream = stream
        self._queue_max = queue_max
        self.info: Attached | None = None  # the last attachment reply of the agent
        self.no_agent = False  # Whether calls are refused because no agent would answer them.
        self.epoch = 0  # number of the session; results of earlier sessions are void
        self.duplicates = 0  # repeated messages that were ignored
        self._messages_seen = 0  # messages of the agent with new content
        # the highest call number that the agent mentioned: it has read that call and all earlier ones
        self._highest_read = 0
        self._last_number = 0  # the highest number that was assigned
        self._open_calls: dict[int, Call] = {}  # calls that were sent and are not finished, ascending
        self._unreported_done: list[int] = []  # finished calls that the agent was not notified of yet
        self._normal_lane, self._release_lane = _Lane(), _Lane()
        self._deferred_releases: list[Call] = []  # internal calls that the agent had no room for

    # ---- for callers ----

    @property
    def queued_count(self) -> int:
        """Number of calls that wait for room in the window."""
        return len(self._normal_lane.calls) + len(self._release_lane.calls)

    def submit(self, op: str, entries: Mapping[str, Any]) -> Call:
        """Make a call, and send it if there is room. If it raises, nothing has happened.

        The calls that target or prefill name must belong to the current epoch; the caller has checked that.
        """
        call = Call(op, entries)
        self.check_call(call)
        return self.queue_call(call)

    def check_call(self, call: Call) -> None:
        """Raise if a call cannot be made. This changes nothing."""
        op = call.op
        if self.no_agent:
            raise lost_error(op, "no agent is there; treat it as a miss, and check why the agent does not run")
        if self.queued_count >= self._queue_max and op not in RELEASE_OPS:
            raise Error(
                op,
                Code.TOO_MANY,
                ErrorDetails(
                    count=self.queued_count,
                    field="queue",
                    theirs=f"{self.queued_count} calls wait",
                    ours=f"{self._queue_max}",
                ),
            )
        check_call_size(op, call.entries, self.info)

    def queue_call(self, call: Call) -> Call:
        """Queue a call without checks."""
        call.state = CallState.QUEUED
        (self._release_lane if call.is_release else self._normal_lane).add(call)
        self.send_queued()
        return call

    def release(self, op: str, number: int, epoch: int) -> None:
        """Release the result of a call without waiting for the outcome. Results of earlier sessions are ignored."""
        if epoch == self.epoch and not self.no_agent:
            self.queue_call(
                Call(op, {"target": number} if op != "drop_prefill" else {"prefill": number}, is_internal=True)
            )

    def forget_call(self, call: Call) -> None:
        """Handle a caller that stopped waiting.

        A call that was not sent is dropped. A call that was sent is aborted, and its result is released.
        """
        if call.is_orphaned or call.is_internal:
            return
        if call.is_release:
            call.is_internal = True
            if call.state is CallState.CREATED and not self.no_agent:
                self.queue_call(call)
            return
        call.is_orphaned = True
        if call.state is CallState.CREATED:
            call.state = CallState.FINISHED
        elif call.state is CallState.QUEUED:
            self._normal_lane.remove(call)
            call.state = CallState.FINISHED
        elif call.answer is not None:
            self._release_result(call)
        elif call.state is CallState.SENT:
            self.abort_call(call)
            if call.shown_first is not None and call.shown_code is None:
                self.acknowledge_shown(call, call.shown_first, Code.CANCELLED)

    def abort_call(self, call: Call) -> list[CallLost]:
        """Abort a call. It still ends with a reply or as lost; a call that was not sent is lost at once."""
        if call.state is CallState.SENT:
            self.queue_call(Call("abort", {"target": call.number}, is_internal=True))
        if call.state is not CallState.QUEUED or call.is_release:
            return []
        self._normal_lane.remove(call)
        call.state = CallState.FINISHED
        return [CallLost(call, Error(call.op, Code.CANCELLED, ErrorDetails(stage="command")))]

    def acknowledge_shown(self, call: Call, first: int, code: int) -> None:
        """Tell the agent that shown chunks were read; a code other than OK says why they were not. Repetitions are
        ignored.
        """
        if call.state is not CallState.SENT or call.shown_first != first or call.shown_code is not None:
            return
        call.shown_code = code
        # Otherwise the agent shows the chunks again and is told then.
        if self._stream.is_attached and call.shown_on_connection:
            self._stream.queue_message(messages.shown_message(call.number, first, code))

    # ---- for the session ----

    @property
    def open_numbers(self) -> list[int]:
        """The numbers of unfinished calls, ascending."""
        return list(self._open_calls)

    def take_number(self) -> int:
        """Return a new number, for a call that the session sends itself."""
        self._last_number += 1
        return self._last_number

    def handle_disconnect(self) -> list[CallLost]:
        """Handle the loss of the connection. Calls stay for the next connection, except those that may be its cause."""
        suspects = self._find_suspects()
        self.reset_connection_state()
        for call in suspects:  # The next attachment does not list the call, so the agent aborts it.
            del self._open_calls[call.number]
            call.state = CallState.FINISHED
        return [
            CallLost(call, _suspect_error(call.op), memory_in_use=True) for call in suspects if not call.is_orphaned
        ]

    def reset_connection_state(self) -> None:
        """Mark all calls as not sent on the current connection."""
        for call in self._open_calls.values():
            call.stream_offset, call.shown_on_connection = None, False

    def _find_suspects(self) -> list[Call]:
        """Count the disconnect for each call, and return the calls that have reached the limit.

        Releases are never suspects: they consist of numbers only, and what they release would stay reserved.
        """
        suspects = []
        for number, call in self._open_calls.items():
            if (
                call.stream_offset is None
                or call.stream_offset >= self._stream.sent_bytes
                or number <= self._highest_read
                or call.is_release
            ):
                continue
            call.cut_count = call.cut_count + 1 if call.messages_seen == self._messages_seen else 0
            if call.cut_count >= CUTS_MAX:
                suspects.append(call)
        return suspects

    def handle_attached(self, info: Attached) -> list[CallLost]:
        """Handle an accepted attachment."""
        self.info = info
        # The agent dropped every call that the attachment did not list, so there is nothing to report.
        self._unreported_done = []
        if not info.resumed:
            return self.end_session()
        for call in self._open_calls.values():
            if call.answer is None:
                self._send_call(call, [])
        return []

    def end_session(self) -> list[CallLost]:
        """Handle the loss of the session at the agent."""
        events = self.lose_calls(include_unbound=False)
        self.epoch += 1
        return events

    def lose_calls(self, *, include_unbound: bool, keep_sent: bool = False) -> list[CallLost]:
        """End calls of the old session. Calls that were never sent and do not refer to the session stay queued.

        Args:
            include_unbound: end all queued calls, too.
            keep_sent: the agent still has the sent calls, and their replies are discarded.
        """
        queued = list(self._release_lane.calls) + list(self._normal_lane.calls)
        lost_calls = [
            *self._open_calls.values(),
            *self._deferred_releases,
            *(c for c in queued if include_unbound or c.is_session_bound),
        ]
        remaining = [] if include_unbound else [c for c in queued if not c.is_session_bound]
        events = [
            CallLost(call, lost_error(call.op)) for call in lost_calls if not call.is_internal and not call.is_orphaned
        ]
        self._deferred_releases, self._normal_lane, self._release_lane = [], _Lane(), _Lane()
        for call in remaining:
            (self._release_lane if call.is_release else self._normal_lane).add(call)
        if keep_sent:
            for call in self._open_calls.values():
                call.is_orphaned = True
                if call.shown_first is not None:
                    self.acknowledge_shown(call, call.shown_first, Code.CANCELLED)
        else:
            self._open_calls, self._unreported_done = {}, []
        if include_unbound:
            self.epoch += 1
        for call in lost_calls:
            if call.number not in self._open_calls:
                call.state = CallState.FINISHED
        return events

    def send_queued(self) -> None:
        """Send queued calls while the window has room."""
        while self._stream.is_attached and (call := self._next_call()) is not None:
            call.number, call.epoch, call.state = self.take_number(), self.epoch, CallState.SENT
            self._open_calls[call.number] = call
            self._send_call(call, self._unreported_done)
            self._unreported_done = []

    def _next_call(self) -> Call | None:
        window = self.info.window if self.info is not None else 0
        room = window - len(self._open_calls)
        if room < 1:
            return None
        for call in self._release_lane.calls:
            # A release must not overtake a call that refers to the same target.
            if not any(number in self._normal_lane.target_counts for number in call.target_numbers):
                self._release_lane.remove(call)
                return call
        spare = min(max(1, window // 8), window - 1)
        if self._normal_lane.calls and room > spare:
            call = self._normal_lane.calls[0]
            self._normal_lane.remove(call)
            return call
        return None

    def _send_call(self, call: Call, done_numbers: list[int]) -> None:
        call.messages_seen = self._messages_seen
        call.stream_offset = self._stream.queue_message(
            messages.call_message(call.number, done_numbers, call.op, call.entries)
        )

    # ---- messages of the agent ----

    def handle_message(self, message: Answer | Show | Returned) -> list[CallEvent]:
        """Handle a message and return the resulting events. It raises MessageError if the message is not allowed
        here.
        """
        duplicates = self.duplicates
        call = self._find_open_call(message.id)
        if call is None:
            return []
        if isinstance(message, Answer):
            events = self._handle_answer(call, message)
        elif isinstance(message, Show):
            events = self._handle_show(call, message)
        else:
            events = self._handle_returned(call)
        # A repeated message says nothing about calls that were sent later.
        self._messages_seen += self.duplicates == duplicates
        return events

    def _find_open_call(self, number: int) -> Call | None:
        """Return the open call of a number; None if it has finished, so that the message is a repetition.

        It raises MessageError if no such call was made.
        """
        if number == 0 or number > self._last_number:
            raise MessageError(f"call {number} was never made")
        self._highest_read = max(self._highest_read, number)
        call = self._open_calls.get(number)
        if call is None:
            self.duplicates += 1
        return call

    def _check_pages(self, pages: Iterable[int], lengths: Iterable[int]) -> None:
        if self.info is None:
            return
        for page, length in zip(pages, lengths, strict=True):
            if not self.info.has_page(page) or length > self.info.page_bytes:
                raise MessageError(f"{length} bytes of page {page}, which is not in the pool")

    def _handle_answer(self, call: Call, answer: Answer) -> list[CallEvent]:
        if call.answer is not None:
            self.duplicates += 1
            return []
        self._check_pages(answer.pages, answer.lengths)
        call.answer, call.state = answer, CallState.ANSWERED
        finished = not answer.held or call.returned
        if finished:
            self._finish_call(call)
        if call.is_internal:
            self._handle_internal_answer(call, answer)
        elif call.is_orphaned:
            self._release_result(call)
        else:
            return [CallAnswered(call, answer), *([MemoryReturned(call)] if finished and answer.held else [])]
        return []

    def _handle_returned(self, call: Call) -> list[CallEvent]:
        call.returned = True
        if call.answer is None:
            return []  # The answer says that the memory is in use; it finds this flag.
        self._finish_call(call)
        return [] if call.is_internal or call.is_orphaned else [MemoryReturned(call)]

    def _handle_show(self, call: Call, show: Show) -> list[CallEvent]:
        if call.answer is not None:
            self.duplicates += 1
            return []
        if call.op not in ("fetch", "shared_fetch"):
            raise MessageError(f"chunks are shown of a {call.op}")
        self._check_pages(show.pages, show.lengths)
        call.shown_on_connection = True
        if call.shown_first == show.first:
            self.duplicates += 1
            if call.shown_code is not None:  # The acknowledgement was lost.
                self._stream.queue_message(messages.shown_message(call.number, show.first, call.shown_code))
            return []
        call.shown_first, call.shown_code = show.first, None
        if not call.is_orphaned:
            return [ChunksShown(call, show)]
        self.acknowledge_shown(call, show.first, Code.CANCELLED)
        return []

    def _finish_call(self, call: Call) -> None:
        """Handle a call that is complete."""
        call.state = CallState.FINISHED
        del self._open_calls[call.number]
        self._unreported_done.append(call.number)
        if not call.is_internal:  # The agent has done something, so it may have room now.
            self.queue_deferred_releases()

    @property
    def has_deferred_releases(self) -> bool:
        """Whether the agent had no room for some releases."""
        return bool(self._deferred_releases)

    def queue_deferred_releases(self) -> None:
        """Queue the deferred releases again."""
        for call in self._deferred_releases:
            self._release_lane.add(call)
        self._deferred_releases = []

    def _handle_internal_answer(self, call: Call, answer: Answer) -> None:
        """Defer a release that the agent had no room for. Otherwise the released pages would be lost to all engines."""
        if answer.code == Code.TOO_MANY and call.op not in ("abort", "detach"):
            self._deferred_releases.append(Call(call.op, call.entries, is_internal=True))

    def _release_result(self, call: Call) -> None:
        """Release the result of a call that no caller takes."""
        if (op := call.release_op) is not None:
            self.release(op, call.number, call.epoch)


def _suspect_error(op: str) -> LostError:
    """Create the error of a call that may be the reason why the agent hangs up."""
    remedy = "treat it as a miss; the log of the agent says why it hung up"
    theirs = f"cut {CUTS_MAX} times in a row after this was sent"
    return LostError(op, Code.PEER_LOST, ErrorDetails(field="the connection", theirs=theirs, remedy=remedy))
