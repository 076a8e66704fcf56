"""Errors of calls that did not end as wanted.

Every one has a code, which a program may switch on. A class of its own has only what programs treat differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvferry.codes import REMEDIES, Code


@dataclass(frozen=True)
class Why:
    """What a code leaves open. All of it is for people: nothing is to be decided by it."""

    # How many chunks failed, or what the remedy counts.
    count: int = 0
    # Whom it was about: host:port, or what the peer calls itself. Empty where nobody else had part in it.
    peer: str = ""
    # How far things were.
    stage: str = ""
    # What does not fit; what it is here or what would be taken; what it is at the peer or what was given.
    field: str = ""
    ours: str = ""
    theirs: str = ""
    # The peer's own words, not to be trusted.
    said: str = ""
    # What helps. Where it is empty, the text has what helps with that code.
    remedy: str = ""

    def text(self, code: Code) -> str:
        """Say all of it in one line."""
        facts = "; ".join(part for part in (self._values(), f'it says "{self.said}"' if self.said else "") if part)
        if self.stage not in ("", "command"):
            facts = f"{self.stage}: {facts}" if facts else self.stage
        subject = ", ".join(part for part in (self.peer, facts) if part)
        return "; ".join(part for part in (subject, self.remedy or REMEDIES.get(code, "")) if part)

    def _values(self) -> str:
        here, there = (" here", " there") if self.peer else ("", "")
        if not self.ours and not self.theirs:
            return self.field
        if not self.theirs:
            return f"{self.field} is {self.ours}{here}"
        if not self.ours:
            return f"{self.field} is {self.theirs}{there}"
        if not self.peer:
            return f"{self.field} is {self.theirs}, want {self.ours}"
        return f"{self.field} is {self.ours}{here}, {self.theirs}{there}"


class Error(Exception):
    """A call that did not end as wanted, or could not be made."""

    def __init__(self, op: str, code: Code, why: Why | None = None) -> None:
        """Name the operation and how it ended."""
        self.op = op
        self.code = code
        self.why = why or Why()
        # What the call came to all the same, where that is something, such as the PutResult of a put.
        self.result: Any = None
        super().__init__(op, code, self.why)

    def __str__(self) -> str:
        """Say in one line what failed, how, and what helps."""
        text = self.why.text(self.code)
        return f"kvferry: {self.op}: {self.code.word}" + (f": {text}" if text else "")

    @property
    def count(self) -> int:
        """How many chunks failed, or what the remedy counts."""
        return self.why.count

    @property
    def peer(self) -> str:
        """Whom it was about; empty where nobody else had part in it."""
        return self.why.peer

    @property
    def stage(self) -> str:
        """How far things were."""
        return self.why.stage

    @property
    def field(self) -> str:
        """What does not fit, as the configuration, the call or the message names it."""
        return self.why.field

    @property
    def ours(self) -> str:
        """What the field is here, or what would be taken."""
        return self.why.ours

    @property
    def theirs(self) -> str:
        """What the field is at the peer, or what was given."""
        return self.why.theirs

    @property
    def said(self) -> str:
        """Say what the peer said: its own words, not to be trusted."""
        return self.why.said

    @property
    def remedy(self) -> str:
        """What helps."""
        return self.why.remedy or REMEDIES.get(self.code, "")


class MissingError(Error):
    """A chunk or a name that is not there (NOT_FOUND, LAPSED): compute it."""


class ExpiredError(Error, TimeoutError):
    """The time was over first (EXPIRED)."""


class OutOfMemoryError(Error):
    """No pages became free in time (NO_MEMORY): retry later."""


class InvalidError(Error, ValueError):
    """The call itself is wrong (INVALID, TOO_LARGE): mend the caller."""


class LostError(Error):
    """The agent, or what it kept for this process, is gone (PEER_LOST): treat it as a miss.

    Every handle of before is void. The next call works as soon as an agent is there.
    """


class ClosedError(Error):
    """The client was closed, or belongs to the process that this one was forked from (CLOSED)."""


_CLASSES: dict[Code, type[Error]] = {
    Code.NOT_FOUND: MissingError,
    Code.LAPSED: MissingError,
    Code.EXPIRED: ExpiredError,
    Code.NO_MEMORY: OutOfMemoryError,
    Code.INVALID: InvalidError,
    Code.TOO_LARGE: InvalidError,
    Code.CLOSED: ClosedError,
}


def error_of(op: str, code: Code, why: Why | None = None) -> Error:
    """Make the error of a code. PEER_LOST is a plain one here: the agent says it of other peers."""
    return _CLASSES.get(code, Error)(op, code, why)


def lost(op: str, remedy: str = "") -> LostError:
    """Make the error of a call whose session is over."""
    return LostError(op, Code.PEER_LOST, Why(field="agent", theirs="gone", remedy=remedy or "treat it as a miss"))


def wrong(op: str, field: str, given: str, wanted: str, remedy: str) -> InvalidError:
    """Make the error of a call that cannot be made."""
    return InvalidError(op, Code.INVALID, Why(stage="command", field=field, ours=wanted, theirs=given, remedy=remedy))
