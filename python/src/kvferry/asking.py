"""How calls are asked for: what is checked before they are made, and what their answers say in general."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from kvferry.codes import Code
from kvferry.errors import Error, LostError, Why, error_of, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvferry.waiting import Reply

T = TypeVar("T")

U32, U64, PORT = (1 << 32) - 1, (1 << 64) - 1, (1 << 16) - 1

# Codes that say that the call is of no use as it is, or that nobody serves. All others are a miss where a call may
# come to less than it was asked for.
_HARD = frozenset(
    (Code.INVALID, Code.TOO_LARGE, Code.UNSUPPORTED, Code.MALFORMED, Code.MISMATCH, Code.CLOSED, Code.FAILED)
)

# An agent that does not answer for as long as this, in seconds, is worth looking at.
_TELLING = 0.1


def raised(error: LostError) -> NoReturn:
    """Have a call that is lost be an error."""
    raise error


def void(_: LostError) -> None:
    """Have a call that is lost be well: all that it was to give back is given back by then."""


@dataclass(frozen=True)
class Ask(Generic[T]):
    """A call that is to be made: what it says, and what its end means."""

    op: str
    entries: Mapping[str, Any]
    # How long the agent may take, in seconds; None: as is configured there.
    seconds: float | None
    # What an answer means. It raises where that is not what was wanted.
    read: Callable[[Reply], T]
    # What it means that the session ends meanwhile, or that there is none.
    lost: Callable[[LostError], T] = raised


def unanswered(op: str, seconds: float) -> Error:
    """Make the error of a call that the agent did not answer in the seconds that the call had.

    A call late in its request has little time, perhaps 0.008 s: that it ends says nothing about the agent then.
    """
    theirs = f"without an answer in the {seconds:g} s it had"
    if seconds < _TELLING:
        remedy = "the request's time was nearly over when it began; treat it as a miss, and give requests more time"
    else:
        remedy = "the agent is stopped or overloaded, or away; treat it as a miss, and look at the agent"
    why = Why(stage="agent", field="the call", theirs=theirs, remedy=remedy)
    return error_of(op, Code.EXPIRED, why)


# ---- what is checked ----


def number_of(op: str, name: str, value: int, most: int = U32) -> int:
    """Check a number."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise wrong(op, name, repr(value), f"0 to {most}", "give a number in that range")
    return value


def texts(op: str, name: str, values: Sequence[str]) -> list[str]:
    """Check a list of texts. One text is a sequence of texts too, and never what was meant."""
    listed = items(op, name, values)
    if not all(isinstance(value, str) for value in listed):
        raise wrong(op, name, repr(values)[:60], "a list of texts", "name each by a text")
    return listed


def items(op: str, name: str, values: Iterable[T]) -> list[T]:
    """Check a list. A text is taken for one by Python, of its characters."""
    if isinstance(values, (str, bytes)):
        raise wrong(op, name, repr(values)[:60], "a list", f"put it into one: {name}=[...]")
    return list(values)


# ---- what things say of themselves ----


def described(what: object, text: str) -> str:
    """Write what repr says of an object: its class as users name it, and how it is."""
    within = "kvferry.aio" if type(what).__module__.startswith("kvferry.aio") else "kvferry"
    return f"<{within}.{type(what).__name__}: {text}>"


def nanoseconds(op: str, name: str, seconds: float | None) -> int:
    """Convert a time. None is left to the node; what is asked for is never nothing."""
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1 << 32:
        raise wrong(op, name, f"{seconds!r}", "seconds, 0 or more", "give a time, or None for what is configured")
    return max(1, int(seconds * 1e9))


def waits_of(op: str, patience: float | None) -> int:
    """Convert a patience of which 0 is none at all: that is never left to the node."""
    return 0 if patience == 0 else nanoseconds(op, "patience", patience)


# ---- what answers say ----


def well(reply: Reply, *also: Code) -> Reply:
    """Raise where a call did not end as wanted."""
    error = reply.error
    if error is not None and error.code not in also:
        raise error
    return reply


def done(reply: Reply) -> None:
    """Take an answer that says nothing more."""
    well(reply)


def done_if_there(reply: Reply) -> None:
    """Take an answer to the end of something, which may have ended before."""
    well(reply, Code.NOT_FOUND)


def some(reply: Reply, came: int) -> Reply:
    """Take an answer that may be to less than was asked for. It raises where the call itself is at fault."""
    error = reply.error
    if error is not None and error.code in _HARD and not came:
        raise error
    return reply


def some_pages(reply: Reply) -> Reply:
    """Take an answer that brought pages."""
    return some(reply, len(reply.answer.pages))


def some_hits(reply: Reply) -> Reply:
    """Take an answer that counts chunks."""
    return some(reply, reply.answer.hits)
