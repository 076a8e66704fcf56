"""Errors of calls.

Every error has a code that a program can switch on. Only errors that programs handle differently have their own class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvferry.codes import REMEDIES, Code


@dataclass(frozen=True)
class ErrorDetails:
    """The details of an error, for people. Programs must not depend on them."""

    # Number of chunks that failed, or the number that the remedy mentions.
    count: int = 0
    # The peer as host:port, or the name that the peer gave itself. Empty if no peer was involved.
    peer: str = ""
    # The stage that the operation had reached.
    stage: str = ""
    # The field that does not fit; its value here, or the accepted values; its value at the peer, or the given value.
    field: str = ""
    ours: str = ""
    theirs: str = ""
    # The peer's own text; it is not trustworthy.
    said: str = ""
    # What helps. If it is empty, the text has the general remedy of the code.
    remedy: str = ""

    def text(self, code: Code) -> str:
        """Return all details in one line."""
        facts = "; ".join(part for part in (self._values(), f'it says "{self.said}"' if self.said else "") if part)
        if self.stage not in ("", "command"):
            facts = f"{self.stage}: {facts}" if facts else self.stage
        subject = ", ".join(part for part in (self.peer, facts) if part)
        return "; ".join(part for part in (subject, self.remedy or REMEDIES.get(code, "")) if part)

    def _values(self) -> str:
        local, remote = (" here", " there") if self.peer else ("", "")
        if not self.ours and not self.theirs:
            return self.field
        if not self.theirs:
            return f"{self.field} is {self.ours}{local}"
        if not self.ours:
            return f"{self.field} is {self.theirs}{remote}"
        if not self.peer:
            return f"{self.field} is {self.theirs}, want {self.ours}"
        return f"{self.field} is {self.ours}{local}, {self.theirs}{remote}"


class Error(Exception):
    """A call that failed or could not be made."""

    def __init__(self, op: str, code: Code, details: ErrorDetails | None = None) -> None:
        """Create the error of an operation."""
        self.op = op
        self.code = code
        self.details = details or ErrorDetails()
        # The partial result of the call, such as the PutResult of a put; None if there is none.
        self.result: Any = None
        super().__init__(op, code, self.details)

    def __str__(self) -> str:
        """Return one line: what failed, how, and what helps."""
        text = self.details.text(self.code)
        return f"kvferry: {self.op}: {self.code.word}" + (f": {text}" if text else "")

    @property
    def count(self) -> int:
        """Number of chunks that failed, or the number that the remedy mentions."""
        return self.details.count

    @property
    def peer(self) -> str:
        """The peer that was involved; empty if there was none."""
        return self.details.peer

    @property
    def stage(self) -> str:
        """The stage that the operation had reached."""
        return self.details.stage

    @property
    def field(self) -> str:
        """The field that does not fit, as the configuration, the call or the message names it."""
        return self.details.field

    @property
    def ours(self) -> str:
        """The value of the field here, or the accepted values."""
        return self.details.ours

    @property
    def theirs(self) -> str:
        """The value of the field at the peer, or the given value."""
        return self.details.theirs

    @property
    def said(self) -> str:
        """The peer's own text; it is not trustworthy."""
        return self.details.said

    @property
    def remedy(self) -> str:
        """What helps."""
        return self.details.remedy or REMEDIES.get(self.code, "")


class MissingError(Error):
    """A chunk or a name does not exist (NOT_FOUND, LAPSED): compute it."""


class ExpiredError(Error, TimeoutError):
    """The timeout of the call passed (EXPIRED)."""


class OutOfMemoryError(Error):
    """No pages became free in time (NO_MEMORY): retry later."""


class InvalidError(Error, ValueError):
    """The call itself is wrong (INVALID, TOO_LARGE): correct the caller."""


class LostError(Error):
    """The agent is gone, or lost what it kept for this process (PEER_LOST): treat it as a miss.

    All earlier handles are void. The next call works as soon as an agent is there. Exception: if the agent hangs up
    again and again on one call, only that call is lost and the handles stay valid, as their attribute void says.
    """


class ClosedError(Error):
    """The client is closed, or belongs to the process that this one was forked from (CLOSED)."""


_ERROR_CLASSES: dict[Code, type[Error]] = {
    Code.NOT_FOUND: MissingError,
    Code.LAPSED: MissingError,
    Code.EXPIRED: ExpiredError,
    Code.NO_MEMORY: OutOfMemoryError,
    Code.INVALID: InvalidError,
    Code.TOO_LARGE: InvalidError,
    Code.CLOSED: ClosedError,
}


def make_error(op: str, code: Code, details: ErrorDetails | None = None) -> Error:
    """Create the error of a code. PEER_LOST gives a plain Error here, because the agent uses it for lost peers."""
    return _ERROR_CLASSES.get(code, Error)(op, code, details)


def lost_error(op: str, remedy: str = "") -> LostError:
    """Create the error of a call whose session is over."""
    return LostError(
        op, Code.PEER_LOST, ErrorDetails(field="agent", theirs="gone", remedy=remedy or "treat it as a miss")
    )


def invalid_error(op: str, field: str, actual: str, expected: str, remedy: str) -> InvalidError:
    """Create the error of a call that cannot be made."""
    return InvalidError(
        op, Code.INVALID, ErrorDetails(stage="command", field=field, ours=expected, theirs=actual, remedy=remedy)
    )
