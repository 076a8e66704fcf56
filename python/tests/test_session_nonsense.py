"""Tests of a session with an agent that says what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from kvferry.call import Answered
from kvferry.frames import FRAME_MAX
from kvferry.messages import Answer, Attached, Returned, Show
from kvferry.session import Broken, Joined, Session
from model import LIVES, ModelAgent, silent
from talk import framed, joined

ATTACHED = Attached(v=1, session=1, life=LIVES[0], page_bytes=64, pages=4, window=4)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((FRAME_MAX + 1).to_bytes(4, "little"), "at most"),
        (b"\1\0\0\0\xc1", "not msgpack"),
        (b"\1\0\0\0\x80", "no message"),
        (b"\0\0\0\0", "not msgpack"),
        (framed(ATTACHED), "a second"),
        (framed(Answer(7)), "never made"),
        (framed(Answer(0)), "never made"),
        (framed(Returned(7)), "never made"),
        (framed(Show(1, 0, (1,), (1,))), "chunks are shown of a get"),
        (framed(Answer(1, pages=(64,), lengths=(1,))), "which the pool has not"),
        (framed(Answer(1, pages=(1,), lengths=(4097,))), "which the pool has not"),
    ],
)
def test_nonsense_breaks_the_connection_and_nothing_else(data: bytes, says: str) -> None:
    talk = joined(ModelAgent(executes=silent))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    (event,) = talk.session.receive(data + framed(Answer(1)))
    assert isinstance(event, Broken)
    assert says in event.reason
    assert talk.session.receive(framed(Answer(1))) == []
    assert not talk.session.joined
    talk.cut()
    talk.connect()
    talk.run()
    talk.agent.answer(call.number)
    talk.run()
    assert talk.of(call, Answered)


@pytest.mark.parametrize(
    "values",
    [
        {"v": 2}, {"window": 0}, {"session": 0}, {"life": ""},
        {"resumed": True},
    ],
)  # fmt: skip
def test_an_attachment_that_cannot_be_is_not_taken(values: dict[str, Any]) -> None:
    session = Session()
    session.connected()
    fields = {"v": 1, "session": 1, "life": LIVES[0], "page_bytes": 64, "pages": 4, "window": 4, **values}
    (event,) = session.receive(framed(Attached(**fields)))
    assert isinstance(event, Broken)


def test_nothing_is_taken_before_the_attachment() -> None:
    session = Session()
    assert session.receive(b"anything") == []
    session.connected()
    (event,) = session.receive(framed(Returned(1)))
    assert isinstance(event, Broken)
    session.connected()
    (joined_event,) = session.receive(framed(ATTACHED))
    assert isinstance(joined_event, Joined)
