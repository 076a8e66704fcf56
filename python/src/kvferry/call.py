"""One call of a session, and what a session says of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvferry.errors import Error
    from kvferry.messages import Answer, Show

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


class State(enum.Enum):
    """How far a call is."""

    MADE = enum.auto()
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
    # The session in which alone it may be made, by its epoch; None: in any.
    only: int | None = None
    number: int = 0
    epoch: int = 0  # in which it was looked at, and then sent
    state: State = State.MADE
    answer: Answer | None = None
    returned: bool = False
    # Its caller went away. What it brings is given back as it comes.
    forgotten: bool = False
    # Of a fetch: the first chunk of what was shown last, and how the caller ended that; None while it reads.
    shown_first: int | None = None
    shown_code: int | None = None
    # Whether that was shown on this connection: else the agent does not wait for the word of it.
    shown_here: bool = False
    # Where in the stream of this connection it begins, and what was heard of the agent by then.
    begins: int | None = None
    heard: int = 0
    # Connections in a row that were cut after it was sent, with nothing new from the agent.
    cuts: int = 0

    @property
    def ending(self) -> bool:
        """Whether it goes before others."""
        return self.op in ENDING

    @property
    def subjects(self) -> tuple[int, ...]:
        """The numbers of calls that it is about."""
        both = (self.entries.get("target", 0), self.entries.get("prefill", 0))
        return tuple(number for number in both if number)

    @property
    def bound(self) -> bool:
        """Whether it means nothing in another session than that in which it was made."""
        return bool(self.subjects) or self.only is not None

    @property
    def gives_back(self) -> str | None:
        """The operation that gives back what it brought; None where it brought nothing that stays."""
        op = GIVES_BACK.get(self.op)
        if op is None or self.answer is None:
            return None
        if op == "release":
            return op if self.answer.pages else None
        return op if self.answer.code == Code.OK or self.answer.hits > 0 else None


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
    # The session goes on, and the agent may have the call still: until that is over its memory may be touched.
    adrift: bool = False


CallEvent = Answered | CameBack | Showing | Lost
