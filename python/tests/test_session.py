"""Tests of the start and the end of sessions."""

from __future__ import annotations

import pytest

from kvferry import Code, LostError
from kvferry.call import CallLost, CallState
from kvferry.errors import ClosedError
from kvferry.session import AttachmentRefused, ConnectionBroken, Session
from model_agent import ModelAgent, ignore_call
from session_harness import SessionHarness, attached_harness


def test_an_agent_that_refuses_is_heard() -> None:
    talk = SessionHarness(ModelAgent(refusal_code=8))
    talk.connect()
    talk.run()
    (event,) = talk.events
    assert isinstance(event, AttachmentRefused)
    assert event.error.code == Code.TOO_MANY
    assert "no room" in str(event.error)
    assert not talk.session.is_attached


def test_giving_up_loses_everything_at_once() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    sent = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    talk.disconnect()
    queued = talk.session.calls.submit("stats", {})
    lost = talk.session.give_up()
    assert {event.call for event in lost} == {sent, queued}
    assert all(isinstance(event.error, LostError) for event in lost)
    with pytest.raises(LostError):
        talk.session.calls.submit("stats", {})
    assert talk.session.give_up() == []
    # The agent comes back too late: it is told to release the session, and a new session begins.
    talk.connect()
    talk.run()
    assert talk.agent.received[-1] == {"type": "KvfCall", "id": sent.number + 1, "op": "detach"}
    assert isinstance(talk.events[-1], ConnectionBroken)
    assert not talk.session.is_attached
    talk.disconnect()
    talk.connect()
    talk.run()
    assert talk.agent.received[-1] == {"type": "KvfAttachRequest", "v": 1, "name": "engine"}
    call = talk.session.calls.submit("stats", {})
    talk.run()
    assert call.state is CallState.SENT
    assert call.number > sent.number


def test_a_session_that_ends_is_not_asked_for_again() -> None:
    talk = attached_harness(ModelAgent(answers_detach=False, on_call=ignore_call))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    talk.agent.detached_sessions.add(1)  # As after a detach without a reply.
    talk.disconnect()
    talk.connect()
    talk.run()
    assert talk.events_of(call, CallLost)
    assert isinstance(talk.events[-1], ConnectionBroken)
    assert "the session ends" in talk.events[-1].reason
    talk.disconnect()
    talk.connect()
    talk.run()
    assert talk.session.is_attached
    assert talk.agent.session == 2


def test_a_detach_waits_for_its_answer() -> None:
    talk = attached_harness(ModelAgent(window=2, on_call=ignore_call, answers_detach=False))
    get = talk.session.calls.submit("fetch", {"keys": ["k"]})
    queued = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    talk.agent.show(get.number, 0, (1,))
    talk.events += talk.session.receive_bytes(bytes(talk.agent.out))
    talk.agent.out.clear()
    lost = talk.session.detach()
    assert [(event.call, type(event.error)) for event in lost] == [(get, ClosedError), (queued, ClosedError)]
    talk.run()
    assert talk.agent.shown == [(get.number, 0, Code.CANCELLED)]
    assert talk.agent.received[-1]["op"] == "detach"
    assert not talk.session.is_detached
    with pytest.raises(LostError):
        talk.session.calls.submit("stats", {})
    talk.agent.answer(talk.agent.received[-1]["id"])
    talk.run()
    assert talk.session.is_detached
    assert Session().is_detached  # There was no session.


def test_closing_ends_everything() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    (event,) = talk.session.close()
    assert event.call is call
    assert isinstance(event.error, ClosedError)
