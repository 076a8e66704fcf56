"""Descriptions of calls: argument checks before a call is made, and checks of its reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from kvferry.codes import Code
from kvferry.errors import Error, ErrorDetails, LostError, invalid_error, make_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvferry.call_waiter import Reply

T = TypeVar("T")

U32, U64, PORT = (1 << 32) - 1, (1 << 64) - 1, (1 << 16) - 1

# Codes of calls that are invalid, or that nothing serves. All other codes count as a miss in calls that may have a
# partial result.
_CALL_ERRORS = frozenset(
    (Code.INVALID, Code.TOO_LARGE, Code.UNSUPPORTED, Code.MALFORMED, Code.MISMATCH, Code.CLOSED, Code.FAILED)
)

# If a call had at least this timeout, in seconds, a missing reply indicates a problem of the agent.
_MIN_TELLING_TIMEOUT = 0.1


def raise_lost(error: LostError) -> NoReturn:
    """Raise the error of a lost call."""
    raise error


def ignore_lost(_: LostError) -> None:
    """Treat a lost call as success: what it would have released is released by then."""


@dataclass(frozen=True)
class CallSpec(Generic[T]):
    """A call to be made: its operation, its fields, and how to interpret its reply."""

    op: str
    entries: Mapping[str, Any]
    # How long the agent may take, in seconds; None if the agent's configuration decides.
    timeout: float | None
    # Converts the reply to the result. It raises if the call failed.
    read: Callable[[Reply], T]
    # Converts a lost call to the result. It is called if the session ends meanwhile or there is none.
    on_lost: Callable[[LostError], T] = raise_lost
    # The epoch of the only session in which the call may be made; None for any session.
    required_epoch: int | None = None


def no_answer_error(op: str, seconds: float) -> Error:
    """Create the error of a call without a reply within its timeout, in seconds.

    A call that starts late in its request has little time, for example 0.008 s. Its end then says nothing about the
    agent.
    """
    theirs = f"without an answer in the {seconds:g} s it had"
    if seconds < _MIN_TELLING_TIMEOUT:
        remedy = "the request's time was nearly over when it began; treat it as a miss, and give requests more time"
    else:
        remedy = "the agent is stopped, overloaded or unreachable; treat it as a miss, and check the agent"
    details = ErrorDetails(stage="agent", field="the call", theirs=theirs, remedy=remedy)
    return make_error(op, Code.EXPIRED, details)


# ---- argument checks ----


def check_number(op: str, name: str, value: int, maximum: int = U32) -> int:
    """Return a number, or raise if it is not an int from 0 to the maximum."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise invalid_error(op, name, repr(value), f"0 to {maximum}", "give a number in that range")
    return value


def check_texts(op: str, name: str, values: Sequence[str]) -> list[str]:
    """Return a list of texts, or raise. A single text is refused, because it is a sequence of texts by mistake."""
    items = check_list(op, name, values)
    if not all(isinstance(value, str) for value in items):
        raise invalid_error(op, name, repr(values)[:60], "a list of texts", "give a list of texts")
    return items


def check_list(op: str, name: str, values: Iterable[T]) -> list[T]:
    """Return a list, or raise if the value is a single text, which Python treats as a sequence of characters."""
    if isinstance(values, (str, bytes)):
        raise invalid_error(op, name, repr(values)[:60], "a list", f"put it into a list: {name}=[...]")
    return list(values)


# ---- conversions ----


def format_repr(subject: object, text: str) -> str:
    """Return the repr of an object: its class as users name it, and its state."""
    package = "kvferry.aio" if type(subject).__module__.startswith("kvferry.aio") else "kvferry"
    return f"<{package}.{type(subject).__name__}: {text}>"


def to_nanoseconds(op: str, name: str, seconds: float | None) -> int:
    """Convert a time. None becomes 0, which leaves the choice to the agent; a given time never becomes 0."""
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1 << 32:
        raise invalid_error(
            op, name, f"{seconds!r}", "seconds, 0 or more", "give a time, or None for what is configured"
        )
    return max(1, int(seconds * 1e9))


def wait_nanoseconds(op: str, timeout: float | None) -> int:
    """Convert a timeout of which 0 means not to wait. The agent never chooses it."""
    return 0 if timeout == 0 else to_nanoseconds(op, "timeout", timeout)


# ---- reply checks ----


def check_reply(reply: Reply, *allowed: Code) -> Reply:
    """Return a reply, or raise its error unless the code is allowed."""
    error = reply.error
    if error is not None and error.code not in allowed:
        raise error
    return reply


def check_done(reply: Reply) -> None:
    """Check a reply that has no content."""
    check_reply(reply)


def check_done_or_missing(reply: Reply) -> None:
    """Check the reply to a release of something that may have been released before."""
    check_reply(reply, Code.NOT_FOUND)


def check_partial(reply: Reply, count: int) -> Reply:
    """Check a reply that may be partial. It raises only if the call itself is wrong and nothing was returned."""
    error = reply.error
    if error is not None and error.code in _CALL_ERRORS and not count:
        raise error
    return reply


def check_pages(reply: Reply) -> Reply:
    """Check a reply with pages."""
    return check_partial(reply, len(reply.answer.pages))


def check_hits(reply: Reply) -> Reply:
    """Check a reply with a count of chunks."""
    return check_partial(reply, reply.answer.hits)
