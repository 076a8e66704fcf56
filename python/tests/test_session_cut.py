"""Tests of a session whose connection is cut at any byte, with an agent that survives or restarts."""

from __future__ import annotations

from collections import Counter
from unittest.mock import ANY

import pytest

from kvferry import Code, LostError
from kvferry.call import Call, CallAnswered, CallLost, CallState, ChunksShown, MemoryReturned
from model_agent import INCARNATIONS, ModelAgent, ignore_call
from session_harness import SessionHarness, attached_harness


def cut_and_connect(talk: SessionHarness) -> list[CallLost]:
    lost = talk.session.handle_disconnected()
    talk.agent.disconnect()
    talk.connect()
    talk.run()
    return lost


def test_a_call_on_which_the_agent_hangs_up_is_lost() -> None:
    talk = attached_harness(ModelAgent(window=8, on_call=ignore_call))
    held = talk.session.calls.submit("put", {"target": 9})
    waits = talk.session.calls.submit("get", {"keys": ["k"]})
    read = talk.session.calls.submit("stats", {})
    talk.run()
    talk.agent.answer(held.number, held=True)
    talk.agent.answer(read.number)
    talk.run()
    poison = talk.session.calls.submit("get", {"keys": ["k"]})
    forgotten = talk.session.calls.submit("get", {"keys": ["k"]})
    release = talk.session.calls.submit("release", {"target": 77})
    talk.run()
    talk.session.calls.forget_call(forgotten)
    for _ in range(2):
        assert cut_and_connect(talk) == []
    assert talk.session.calls.duplicates == 2  # A repeated answer is not news.
    (lost,) = cut_and_connect(talk)
    assert (lost.call, lost.memory_in_use) == (poison, True)
    assert isinstance(lost.error, LostError)
    assert "cut 3 times" in str(lost.error)
    assert (poison.state, forgotten.state) == (CallState.FINISHED, CallState.FINISHED)
    # The agent had read everything before the call that it answered; and releases are never dropped.
    request = [m for m in talk.agent.received if m["type"] == "KvfAttachRequest"][-1]
    assert {held.number, waits.number, release.number} <= set(request["open"])
    assert not {poison.number, forgotten.number} & set(request["open"])
    for _ in range(4):
        assert cut_and_connect(talk) == []
    for call in (waits, release):
        talk.agent.answer(call.number)
    talk.run()
    assert all(talk.events_of(call, CallAnswered) for call in (waits, release))
    assert talk.session.epoch == 1


def test_only_cuts_in_a_row_of_a_call_that_was_sent_count() -> None:
    talk = attached_harness(ModelAgent(window=8, on_call=ignore_call))
    first = talk.session.calls.submit("get", {"keys": ["k"]})
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    for _ in range(2):
        assert cut_and_connect(talk) == []
    talk.agent.answer(first.number)  # Something new.
    talk.run()
    for _ in range(3):
        assert cut_and_connect(talk) == []  # The first of these had news; the other two had none.
    assert talk.session.handle_disconnected() == [CallLost(call, ANY, memory_in_use=True)]


def test_a_cut_before_a_call_is_sent_does_not_count() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    for _ in range(5):  # It is queued, and nothing of it was sent.
        assert talk.session.handle_disconnected() == []
        talk.agent.disconnect()
        talk.connect()
        while not talk.session.is_attached:
            talk.step()
    talk.run()
    assert talk.agent.received[-1]["id"] == call.number


SCRIPT = ("reserve", "put", "fetch", "stats", "release")


def conversation(talk: SessionHarness, calls: list[Call]) -> None:
    """Make the calls of SCRIPT, each when its prerequisites have ended, until all have ended."""
    while True:
        talk.run()
        if talk.transferred == talk.disconnect_at:
            return
        reserved = calls[0].number if calls else 0
        if len(calls) == len(SCRIPT):
            return
        if calls and calls[0].answer is None:
            return
        op = SCRIPT[len(calls)]
        about = {"target": reserved} if op in ("put", "release") else {}
        count = {"count": 2} if op == "reserve" else {}
        calls.append(talk.session.calls.submit(op, {**about, **count}))


def length_of_the_conversation() -> int:
    talk = SessionHarness()
    talk.connect()
    calls: list[Call] = []
    conversation(talk, calls)
    assert len(calls) == len(SCRIPT)
    assert all(talk.events_of(call, CallAnswered) for call in calls)
    return talk.transferred


LENGTH = length_of_the_conversation()


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 100])
def test_bytes_come_in_pieces_of_any_size(piece: int) -> None:
    talk = SessionHarness()
    talk.piece_bytes = piece
    talk.connect()
    calls: list[Call] = []
    conversation(talk, calls)
    assert talk.transferred == LENGTH
    assert [op for _, _, op in talk.agent.executed] == list(SCRIPT)


@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_a_cut_at_any_byte_loses_nothing_where_the_agent_lives(cuts: int) -> None:
    for at in range(1, LENGTH + 1):
        talk = SessionHarness()
        talk.connect()
        calls: list[Call] = []
        for n in range(cuts):
            talk.disconnect_at = talk.transferred + max(1, at // (n + 1))
            conversation(talk, calls)
            talk.disconnect()
            talk.connect()
        talk.disconnect_at = None
        conversation(talk, calls)
        assert len(calls) == len(SCRIPT), at
        for call in calls:
            assert len(talk.events_of(call, CallAnswered)) == 1, (at, call)
            assert not talk.events_of(call, CallLost), (at, call)
        assert len(talk.events_of(calls[1], MemoryReturned)) == 1, at
        # Each chunk was read once, and each call executed once, in order.
        assert [e.show.first for e in talk.events_of(calls[2], ChunksShown) if isinstance(e, ChunksShown)] == [0, 2], at
        assert [op for _, _, op in talk.agent.executed] == list(SCRIPT), at
        assert talk.agent.held_pages == {}, at
        assert talk.session.epoch == 1, at  # All of it is one session.


def test_a_cut_at_any_byte_ends_everything_once_where_the_agent_does_not_live() -> None:
    met: Counter[str] = Counter()
    for at in range(1, LENGTH + 1):
        talk = SessionHarness()
        talk.connect()
        calls: list[Call] = []
        talk.disconnect_at = at
        conversation(talk, calls)
        before = talk.session.epoch
        talk.disconnect()
        talk.agent.restart()
        talk.connect()
        talk.disconnect_at = None
        talk.run()
        assert talk.session.epoch == before + 1
        assert talk.session.info is not None
        assert talk.session.info.life == INCARNATIONS[1]
        for call in calls:
            ended = talk.events_of(call, CallAnswered, CallLost)
            back = talk.events_of(call, MemoryReturned)
            assert len(ended) in (1, 2), (at, call)
            if isinstance(ended[0], CallLost):
                assert len(ended) == 1
                assert isinstance(ended[0].error, LostError)
                assert ended[0].error.code == Code.PEER_LOST
                met["lost"] += 1
            elif call.answer is not None and call.answer.held:
                assert len(ended[1:]) + len(back) == 1, (at, call)  # The wait for its memory ended, too.
                met["held, then lost"] += len(ended) - 1
            else:
                met["answered"] += 1
        assert talk.agent.tasks == {}, at  # No call of the old session was sent in the new one.
        call = talk.session.calls.submit("stats", {})
        talk.run()
        assert talk.events_of(call, CallAnswered), at
    assert all(met[kind] for kind in ("lost", "held, then lost", "answered")), met


def test_what_was_never_sent_goes_on_in_another_life() -> None:
    talk = attached_harness()
    talk.disconnect()
    talk.agent.restart()
    free = talk.session.calls.submit("get", {"keys": ["k"]})
    bound = talk.session.calls.submit("put", {"target": 1})
    talk.connect()
    talk.run()
    assert talk.events_of(bound, CallLost)
    assert free.state is CallState.SENT
    assert [op for _, _, op in talk.agent.executed] == ["get"]


def test_an_attachment_names_what_is_waited_for() -> None:
    talk = attached_harness(ModelAgent(window=8, on_call=ignore_call))
    calls = [talk.session.calls.submit("get", {"keys": [str(i)]}) for i in range(3)]
    held = talk.session.calls.submit("put", {"target": 99})
    talk.run()
    talk.agent.answer(calls[1].number)
    talk.agent.answer(held.number, held=True)
    talk.run()
    talk.disconnect()
    talk.connect()
    talk.run()
    again = [m for m in talk.agent.received if m["type"] == "KvfAttachRequest"][1]
    assert again["open"] == [calls[0].number, calls[2].number, held.number]
    assert (again["session"], again["life"]) == (1, INCARNATIONS[0])
    # Unanswered calls were repeated in order; the answered one was not.
    at = talk.agent.received.index(again)
    assert [m["id"] for m in talk.agent.received[at + 1 :]] == [calls[0].number, calls[2].number]
    assert talk.session.calls.duplicates == 1  # The answer of the call whose memory is in use.
    talk.agent.return_memory(held.number)
    talk.run()
    assert talk.events_of(held, MemoryReturned)
    talk.session.calls.submit("stats", {})
    talk.run()
    assert talk.agent.received[-1]["done"] == [held.number]  # The attachment reported the other one.


def test_a_show_of_an_old_connection_is_answered_where_it_comes_again() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("fetch", {"keys": ["k"]})
    talk.run()
    talk.agent.show(call.number, 0, (1,))
    talk.events += talk.session.receive_bytes(bytes(talk.agent.out))
    talk.disconnect()
    show, talk.agent.tasks[call.number].show = talk.agent.tasks[call.number].show, None
    talk.connect()
    talk.run()
    talk.session.calls.acknowledge_shown(call, 0, Code.OK)
    talk.run()
    assert talk.agent.received[-1]["type"] == "KvfCall"  # Nothing was sent, because the agent does not wait for it.
    assert show is not None
    talk.agent.show(call.number, 0, show.pages)
    talk.run()
    assert talk.agent.shown[0] == (call.number, 0, 0)
    assert [e.show.first for e in talk.events_of(call, ChunksShown) if isinstance(e, ChunksShown)] == [
        0,
        2,
    ]  # It continued.
