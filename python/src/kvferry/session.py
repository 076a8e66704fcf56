"""The client's half of the protocol with an agent, without I/O: bytes in, bytes out, events.

A session outlives connections. Its driver reports when a connection is established (handle_connected) or lost
(handle_disconnected), passes received bytes to receive_bytes, and sends pending_bytes (mark_sent). A session has no
clock, no lock and no thread. This module attaches and detaches; call_table has the calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvferry import messages
from kvferry.call import Call, CallEvent, CallLost
from kvferry.call_table import CallTable
from kvferry.codes import Code
from kvferry.errors import ClosedError, Error, ErrorDetails
from kvferry.frames import FrameError, MessageStream
from kvferry.limits import check_text
from kvferry.messages import Answer, Attached, MessageError

QUEUE_MAX = 4096


@dataclass(frozen=True)
class SessionAttached:
    """The agent accepted the attachment. If it is not resumed, earlier results are void and earlier calls have
    ended.
    """

    info: Attached
    resumed: bool


@dataclass(frozen=True)
class AttachmentRefused:
    """The agent refused the attachment; the connection is of no more use."""

    error: Error
    # The agent's description of itself, which a refusal has, too.
    info: Attached


@dataclass(frozen=True)
class ConnectionBroken:
    """The agent violated the protocol; the connection is of no more use. It is the last event of a connection."""

    reason: str


Event = SessionAttached | AttachmentRefused | ConnectionBroken | CallEvent


class Session:
    """See the module. Two threads must not call its methods or those of its calls at the same time."""

    def __init__(self, name: str = "", queue_max: int = QUEUE_MAX, *, owns_pool: bool = False) -> None:
        """Create a session.

        Args:
            name: the name of the engine, for people.
            queue_max: how many calls may be queued.
            owns_pool: whether the engine uses the pool as its own memory.
        """
        check_text("connect", "name", name)
        self._name = name
        self._owns_pool = owns_pool
        self._stream = MessageStream()
        self.calls = CallTable(self._stream, queue_max)
        self._session = 0
        self._incarnation = ""
        self._requested_session = 0  # the session that the connection asked to resume
        self._receiving = False  # A connection exists and is valid so far.
        self._is_stale = False  # the session was given up, and the agent may still have it
        self._late_detach_number = 0  # the number of the call that ends a stale session
        self._detach_call: Call | None = None
        # The number of this process in the driver of an NPU; 0 if no agent has asked for it.
        self.device_process = 0

    @property
    def is_attached(self) -> bool:
        """Whether calls are sent to an agent now."""
        return self._stream.is_attached

    @property
    def info(self) -> Attached | None:
        """The last attachment reply of the agent."""
        return self.calls.info

    @property
    def epoch(self) -> int:
        """Number of the session; results of earlier sessions are void."""
        return self.calls.epoch

    # ---- the connection ----

    def handle_connected(self) -> None:
        """Start with a new connection."""
        self._reset_connection()
        self._receiving, self._requested_session = True, self._session
        incarnation = self._incarnation if self._session else ""
        self._stream.queue_message(
            messages.attach_request(
                self._name,
                self._session,
                incarnation,
                self.calls.open_numbers,
                self.device_process,
                owns_pool=self._owns_pool,
            )
        )

    def handle_disconnected(self) -> list[CallLost]:
        """Handle the loss of the connection. Calls stay for the next connection, except those that may be its cause."""
        lost_calls = self.calls.handle_disconnect()
        self._reset_connection()
        return lost_calls

    def _reset_connection(self) -> None:
        self._receiving = False
        self._stream.reset()
        self.calls.reset_connection_state()

    def pending_bytes(self) -> memoryview:
        """Return the bytes to be sent. The view must be released before any other call."""
        return memoryview(self._stream.pending)

    def mark_sent(self, count: int) -> None:
        """Remove bytes that were sent."""
        del self._stream.pending[:count]
        self._stream.sent_bytes += count

    def receive_bytes(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Handle received bytes and return the resulting events."""
        events: list[Event] = []
        if not self._receiving:
            return events
        self._stream.frames.feed(data)
        try:
            while self._receiving and (payload := self._stream.frames.next_payload()) is not None:
                self._handle_message(messages.decode(payload), events)
        except (FrameError, MessageError) as error:
            self._receiving = self._stream.is_attached = False
            self._stream.pending.clear()
            events.append(ConnectionBroken(f"the agent does not speak this protocol: {error}"))
        self.calls.send_queued()
        return events

    def _handle_message(self, message: messages.Message, events: list[Event]) -> None:
        if isinstance(message, Attached):
            if self.is_attached:
                raise MessageError("a second KvfAttachResponse")
            self._handle_attached(message, events)
        elif self._is_stale:
            self._handle_late_detach(message, events)
        elif not self.is_attached:
            raise MessageError(f"{type(message).__name__} before the KvfAttachResponse")
        else:
            events += self.calls.handle_message(message)

    # ---- the attachment ----

    def _handle_attached(self, info: Attached, events: list[Event]) -> None:
        if info.code:
            self._handle_refused(info, events)
            return
        if info.v != messages.VERSION:
            raise MessageError(f"the agent speaks version {info.v}, this client {messages.VERSION}")
        if not info.window or not info.session or not info.life:
            raise MessageError("an attachment without a session, a life or a window")
        if info.resumed and (
            not self._requested_session or info.session != self._requested_session or info.life != self._incarnation
        ):
            raise MessageError("the agent resumed another session than the requested one")
        if self._is_stale and info.resumed:
            self._send_late_detach()
            return
        self._stream.is_attached, self._is_stale = True, False
        self._session, self._incarnation = info.session, info.life
        self.calls.no_agent = self._detach_call is not None
        events += self.calls.handle_attached(info)
        events.append(SessionAttached(info, info.resumed))

    def _handle_refused(self, info: Attached, events: list[Event]) -> None:
        self._receiving = False
        error = Error("attach", Code.of(info.code), ErrorDetails(stage="attach", peer="agent", remedy=info.reason))
        if self._requested_session and error.code == Code.REFUSED:  # That session ends, and another one may begin.
            events += self.calls.lose_calls(include_unbound=True)
            self._session, self._is_stale = 0, False
            events.append(ConnectionBroken(str(error)))
        else:
            events.append(AttachmentRefused(error, info))

    def _send_late_detach(self) -> None:
        """Tell an agent that came back too late that its session is over."""
        self._late_detach_number = self.calls.take_number()
        self._stream.queue_message(messages.call_message(self._late_detach_number, [], "detach", {}))

    def _handle_late_detach(self, message: messages.Message, events: list[Event]) -> None:
        if isinstance(message, Answer) and message.id == self._late_detach_number:
            self._session, self._is_stale, self._receiving = 0, False, False
            events.append(ConnectionBroken("the session that was given up is over; a new session begins"))

    # ---- the end of the session ----

    def handle_agent_exit(self) -> list[CallLost]:
        """Handle the exit of the agent's process, which ends its sessions. The connection is closed already.

        Calls that were not sent and do not refer to the session wait for the next agent.
        """
        if not self._session:
            return []
        self._session, self._is_stale = 0, False
        return self.calls.end_session()

    def give_up(self) -> list[CallLost]:
        """End the session because the agent did not come back in time. Calls fail at once until another agent is there.

        If the agent comes back after all, it is told to release the session.
        """
        self._reset_connection()
        self.calls.no_agent, self._is_stale = True, bool(self._session)
        return self.calls.lose_calls(include_unbound=True)

    def detach(self) -> list[CallLost]:
        """Tell the agent that the session is over; is_detached reports its reply. All calls are lost."""
        lost_calls = self.calls.lose_calls(include_unbound=True, keep_sent=True)
        self.calls.no_agent = True
        self._detach_call = self.calls.queue_call(Call("detach", {}, is_internal=True))
        return _closed_events(lost_calls)

    @property
    def is_detached(self) -> bool:
        """Whether the agent has nothing of this process any more."""
        return self._session == 0 or (self._detach_call is not None and self._detach_call.answer is not None)

    def close(self) -> list[CallLost]:
        """End the session for good."""
        self._reset_connection()
        self.calls.no_agent = True
        return _closed_events(self.calls.lose_calls(include_unbound=True))


def _closed_events(events: list[CallLost]) -> list[CallLost]:
    """Return the events with the error of a closed client."""
    remedy = "create another client"
    return [CallLost(e.call, ClosedError(e.call.op, Code.CLOSED, ErrorDetails(remedy=remedy))) for e in events]
