"""Tests of a session with an agent that violates the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from kvferry.call import CallAnswered
from kvferry.frames import FRAME_MAX
from kvferry.messages import Answer, Attached, Returned, Show
from kvferry.session import ConnectionBroken, Session, SessionAttached
from model_agent import INCARNATIONS, ModelAgent, ignore_call
from session_harness import attached_harness, encode_frame

ATTACHED = Attached(v=1, session=1, life=INCARNATIONS[0], page_bytes=64, pages=4, window=4)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((FRAME_MAX + 1).to_bytes(4, "little"), "at most"),
        (b"\1\0\0\0\xc1", "not msgpack"),
        (b"\1\0\0\0\x80", "not a message"),
        (b"\0\0\0\0", "not msgpack"),
        (encode_frame(ATTACHED), "a second"),
        (encode_frame(Answer(7)), "never made"),
        (encode_frame(Answer(0)), "never made"),
        (encode_frame(Returned(7)), "never made"),
        (encode_frame(Show(1, 0, (1,), (1,))), "chunks are shown of a get"),
        (encode_frame(Answer(1, pages=(64,), lengths=(1,))), "which is not in the pool"),
        (encode_frame(Answer(1, pages=(1,), lengths=(4097,))), "which is not in the pool"),
    ],
)
def test_nonsense_breaks_the_connection_and_nothing_else(data: bytes, says: str) -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    (event,) = talk.session.receive_bytes(data + encode_frame(Answer(1)))
    assert isinstance(event, ConnectionBroken)
    assert says in event.reason
    assert talk.session.receive_bytes(encode_frame(Answer(1))) == []
    assert not talk.session.is_attached
    talk.disconnect()
    talk.connect()
    talk.run()
    talk.agent.answer(call.number)
    talk.run()
    assert talk.events_of(call, CallAnswered)


@pytest.mark.parametrize(
    "values",
    [
        {"v": 2}, {"window": 0}, {"session": 0}, {"life": ""},
        {"resumed": True},
    ],
)  # fmt: skip
def test_an_attachment_that_cannot_be_is_not_taken(values: dict[str, Any]) -> None:
    session = Session()
    session.handle_connected()
    fields = {"v": 1, "session": 1, "life": INCARNATIONS[0], "page_bytes": 64, "pages": 4, "window": 4, **values}
    (event,) = session.receive_bytes(encode_frame(Attached(**fields)))
    assert isinstance(event, ConnectionBroken)


def test_nothing_is_taken_before_the_attachment() -> None:
    session = Session()
    assert session.receive_bytes(b"anything") == []
    session.handle_connected()
    (event,) = session.receive_bytes(encode_frame(Returned(1)))
    assert isinstance(event, ConnectionBroken)
    session.handle_connected()
    (joined_event,) = session.receive_bytes(encode_frame(ATTACHED))
    assert isinstance(joined_event, SessionAttached)
