"""One call of a session, and the events of calls."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvferry.errors import Error
    from kvferry.messages import Answer, Show

# Operations that release something. They are sent before other calls and are never cancelled: if their caller stops
# waiting, the session completes them.
RELEASE_OPS = frozenset(("release", "abort", "take_back", "withdraw", "drop_prefill", "detach"))

# The operation that releases the result of a call.
RELEASE_OP_BY_CALL = {
    "reserve": "release",
    "get": "release",
    "shared_get": "release",
    "share": "withdraw",
    "begin_prefill": "drop_prefill",
}


class CallState(enum.Enum):
    """The state of a call."""

    CREATED = enum.auto()
    QUEUED = enum.auto()
    SENT = enum.auto()
    ANSWERED = enum.auto()  # its memory may still be accessed
    FINISHED = enum.auto()


@dataclass(eq=False)
class Call:
    """One call. Its number is 0 until it is sent."""

    op: str
    entries: Mapping[str, Any]
    # Whether the session made the call, so that no caller waits for it.
    is_internal: bool = False
    # The epoch of the only session in which the call may be made; None for any session.
    required_epoch: int | None = None
    number: int = 0
    epoch: int = 0  # the epoch in which the call was checked, and later sent
    state: CallState = CallState.CREATED
    answer: Answer | None = None
    returned: bool = False
    # Whether the caller stopped waiting. The result is then released as it arrives.
    is_orphaned: bool = False
    # For a fetch: the first chunk of the last batch shown, and the code with which the caller finished it; None while
    # the caller reads.
    shown_first: int | None = None
    shown_code: int | None = None
    # Whether that batch was shown on this connection. If not, the agent does not wait for its acknowledgement.
    shown_on_connection: bool = False
    # The offset of the call in this connection's stream, and the number of messages that had been received when it was
    # sent.
    stream_offset: int | None = None
    messages_seen: int = 0
    # Consecutive connections that were cut after the call was sent, without a new message from the agent.
    cut_count: int = 0

    @property
    def is_release(self) -> bool:
        """Whether the call is sent before other calls."""
        return self.op in RELEASE_OPS

    @property
    def target_numbers(self) -> tuple[int, ...]:
        """The numbers of the calls that this call refers to."""
        numbers = (self.entries.get("target", 0), self.entries.get("prefill", 0))
        return tuple(number for number in numbers if number)

    @property
    def is_session_bound(self) -> bool:
        """Whether the call is meaningless in any session other than the one in which it was made."""
        return bool(self.target_numbers) or self.required_epoch is not None

    @property
    def release_op(self) -> str | None:
        """The operation that releases the result; None if the call has no result to release."""
        op = RELEASE_OP_BY_CALL.get(self.op)
        if op is None or self.answer is None:
            return None
        if op == "release":
            return op if self.answer.pages else None
        return op if self.answer.code == Code.OK or self.answer.hits > 0 else None


@dataclass(frozen=True)
class CallAnswered:
    """A call has a reply."""

    call: Call
    answer: Answer


@dataclass(frozen=True)
class MemoryReturned:
    """Nothing accesses the memory of an answered call any more."""

    call: Call


@dataclass(frozen=True)
class ChunksShown:
    """Chunks of a fetch can be read. The session waits for acknowledge_shown."""

    call: Call
    show: Show


@dataclass(frozen=True)
class CallLost:
    """A call, or the wait for its memory, ended without the agent."""

    call: Call
    error: Error
    # The session continues and the agent may still have the call, so its memory may be accessed until the session ends.
    memory_in_use: bool = False


CallEvent = CallAnswered | MemoryReturned | ChunksShown | CallLost
