"""Tests of the calls of a session: which calls are sent, in which order, and their results."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kvferry import Code, Error
from kvferry.call import CallAnswered, CallState, ChunksShown, MemoryReturned
from kvferry.errors import InvalidError
from kvferry.messages import Answer, Returned, Show
from kvferry.session import Session
from model_agent import ModelAgent, ignore_call
from session_harness import SessionHarness, attached_harness, encode_frame


def test_a_call_is_answered() -> None:
    talk = attached_harness()
    call = talk.session.calls.submit("reserve", {"count": 2})
    talk.run()
    (event,) = talk.events_of(call, CallAnswered)
    assert isinstance(event, CallAnswered)
    assert event.answer.pages == (0, 1)
    assert call.number == 1
    assert talk.agent.received[0] == {"type": "KvfAttachRequest", "v": 1, "name": "engine"}
    assert talk.agent.received[1] == {"type": "KvfCall", "id": 1, "op": "reserve", "count": 2}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_answers_come_in_any_order(order: tuple[int, ...]) -> None:
    talk = attached_harness(ModelAgent(window=8, on_call=ignore_call))
    calls = [talk.session.calls.submit("get", {"keys": [str(i)]}) for i in range(4)]
    talk.run()
    for i in order:
        talk.agent.answer(calls[i].number, hits=i + 1)
    talk.run()
    answered = [e for e in talk.events if isinstance(e, CallAnswered)]
    assert [e.call for e in answered] == [calls[i] for i in order]
    assert [e.answer.hits for e in answered] == [i + 1 for i in order]
    talk.session.calls.submit("stats", {})
    talk.run()
    assert talk.agent.received[-1]["done"] == [calls[i].number for i in order]


def test_held_memory_comes_back_after_the_answer() -> None:
    talk = attached_harness(ModelAgent(window=2, on_call=ignore_call))
    call = talk.session.calls.submit("put", {"target": 9})
    talk.run()
    talk.agent.answer(call.number, held=True)
    talk.run()
    assert talk.events_of(call, MemoryReturned) == []
    assert call.state is CallState.ANSWERED
    other = talk.session.calls.submit("stats", {})  # The window is full: one call is open, and a part is reserved.
    talk.run()
    assert other.number == 0
    talk.agent.return_memory(call.number)
    talk.run()
    assert len(talk.events_of(call, MemoryReturned)) == 1
    assert other.number == 2
    assert talk.agent.received[-1]["done"] == [call.number]


def test_a_return_may_overtake_its_answer() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("put", {"target": 9})
    talk.run()
    talk.agent.send(Returned(call.number))
    talk.agent.tasks[call.number].returned = True
    talk.agent.answer(call.number, held=True)
    talk.run()
    assert [type(e) for e in talk.events_of(call, CallAnswered, MemoryReturned)] == [CallAnswered, MemoryReturned]


@pytest.mark.parametrize("window", range(1, 10))
def test_the_window_is_kept_and_used(window: int) -> None:
    talk = attached_harness(ModelAgent(window=window, on_call=ignore_call))
    calls = [talk.session.calls.submit("get", {"keys": [str(i)]}) for i in range(20)]
    talk.run()
    most = window - min(max(1, window // 8), window - 1)
    answered = 0
    while answered < len(calls):  # The model checks that the session respects the window.
        sent = [c for c in calls if c.state is CallState.SENT]
        assert len(sent) == min(most, len(calls) - answered)
        assert [c.number for c in sent] == sorted(c.number for c in sent)
        talk.agent.answer(sent[-1].number)
        answered += 1
        talk.run()
    assert talk.session.calls.queued_count == 0
    assert [n for _, n, _ in talk.agent.executed] == list(range(1, 21))


def test_what_frees_memory_goes_before_what_waits_for_it() -> None:
    talk = attached_harness(ModelAgent(window=2))
    have = talk.session.calls.submit("reserve", {"count": 64})
    talk.run()
    talk.agent.on_call = ignore_call
    waits = [talk.session.calls.submit("reserve", {"count": 1}) for _ in range(3)]
    release = talk.session.calls.submit("release", {"target": have.number})
    talk.run()
    assert [c.state for c in waits] == [CallState.SENT, CallState.QUEUED, CallState.QUEUED]
    assert release.state is CallState.SENT


def test_a_release_does_not_overtake_what_uses_the_same() -> None:
    talk = attached_harness(ModelAgent(window=1))
    pages = talk.session.calls.submit("reserve", {"count": 1})
    talk.run()
    talk.agent.on_call = ignore_call
    first = talk.session.calls.submit("get", {"keys": ["k"]})
    put = talk.session.calls.submit("put", {"target": pages.number})
    release = talk.session.calls.submit("release", {"target": pages.number})
    other = talk.session.calls.submit("drop_prefill", {"prefill": 77})
    talk.run()
    for call in (first, other, put, release):
        assert call.state is CallState.SENT
        talk.agent.answer(call.number)
        talk.run()
    assert [op for _, _, op in talk.agent.executed[1:]] == ["get", "drop_prefill", "put", "release"]


def test_the_queue_is_bounded() -> None:
    talk = SessionHarness(queue_max=3)
    for _ in range(3):
        talk.session.calls.submit("stats", {})
    with pytest.raises(Error) as failed:
        talk.session.calls.submit("stats", {})
    assert failed.value.code == Code.TOO_MANY
    talk.connect()
    talk.run()
    assert talk.session.calls.queued_count == 0
    assert len([e for e in talk.events if isinstance(e, CallAnswered)]) == 3


def test_what_is_too_large_for_the_agent_is_not_sent() -> None:
    talk = attached_harness(ModelAgent(keys=3, max_bytes=200))
    for entries in ({"keys": ["a", "b", "c", "d"]}, {"keys": ["k" * 200]}):
        with pytest.raises(InvalidError) as failed:
            talk.session.calls.submit("get", entries)
        assert failed.value.code == Code.TOO_LARGE
    call = talk.session.calls.submit("contains", {"keys": ["a", "b", "c"]})
    talk.run()
    assert talk.events_of(call, CallAnswered)


LONG = "\u00e9" * 512  # As many bytes as a text may have.


LISTS = 16  # The model's limit of keys, which exceeds its window.


@pytest.mark.parametrize(
    ("entries", "field", "given", "most"),
    [
        *(({name: LONG + "x"}, name, "1025 bytes", "1024") for name in ("request", "transfer", "engine", "host")),
        ({"keys": ["k", "k" * 513]}, "keys[1]", "513 bytes", "512"),
        ({"producers": ["h:1:2", LONG + "x"]}, "producers[1]", "1025 bytes", "1024"),
        ({"blocks": [[1] * 65_000, [2] * 537]}, "blocks", "65537", "65536"),
        *(({name: [1] * 17}, name, "17", "16") for name in ("groups", "firsts", "ends")),
        ({"producers": ["h:1:2"] * 17}, "producers", "17", "16"),
        ({"blocks": [[1]] * 17}, "blocks", "17", "16"),
        ({"keys": ["k"] * 17}, "keys", "17", "16"),
    ],
)
def test_what_the_agent_would_hang_up_on_is_not_sent(
    entries: dict[str, Any], field: str, given: str, most: str
) -> None:
    talk = attached_harness(ModelAgent(max_bytes=1 << 20))
    with pytest.raises(InvalidError) as failed:
        talk.session.calls.submit("register", entries)
    error = failed.value
    assert (error.code, error.field) == (Code.TOO_LARGE, field)
    assert given in error.theirs
    assert most in error.ours
    assert error.details.remedy
    assert talk.session.calls.queued_count == 0


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ({"request": 5}, "request"),
        ({"request": None}, "request"),
        ({"host": "\udc80"}, "host"),
        ({"keys": [b"k"]}, "keys[0]"),
        ({"last": 1}, "last"),
        ({"first": 1.0}, "first"),
        ({"first": True}, "first"),
    ],
)
def test_what_the_agent_could_not_read_is_not_sent(entries: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as failed:
        attached_harness().session.calls.submit("put", entries)
    assert (failed.value.code, failed.value.field) == (Code.INVALID, field)
    assert failed.value.details.remedy


def test_as_much_as_the_agent_takes_is_sent() -> None:
    talk = attached_harness(ModelAgent(max_bytes=1 << 20, window=32, on_call=ignore_call))
    texts = {"request": LONG, "transfer": LONG, "engine": LONG}
    lists = {"groups": [0] * 32, "firsts": [0] * 32, "ends": [0] * 32, "producers": [LONG] * 32}
    blocks = [[1] * 65_505, *([[1]] * 31)]  # The window is larger than the limit of keys.
    call = talk.session.calls.submit("register", {**texts, **lists, "blocks": blocks})
    keyed = talk.session.calls.submit("contains", {"keys": ["k" * 512] * LISTS})
    talk.run()
    assert (call.state, keyed.state) == (CallState.SENT, CallState.SENT)
    with pytest.raises(InvalidError):
        Session("n" * 1025)


def test_a_fetch_is_shown_batch_by_batch() -> None:
    talk = attached_harness()
    call = talk.session.calls.submit("fetch", {"keys": list("abcd")})
    talk.run()
    assert [e.show.first for e in talk.events_of(call, ChunksShown) if isinstance(e, ChunksShown)] == [0, 2]
    assert talk.agent.shown == [(1, 0, 0), (1, 2, 0)]
    assert talk.events_of(call, CallAnswered)


def test_what_is_shown_while_it_is_read_is_a_double() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("fetch", {"keys": ["a"]})
    talk.run()
    show = Show(call.number, 0, (1,), (8,))
    events = talk.session.receive_bytes(b"".join(encode_frame(m) for m in (show, show)))
    assert [type(e) for e in events] == [ChunksShown]
    assert talk.session.calls.duplicates == 1
    talk.session.calls.acknowledge_shown(call, 0, 12)
    talk.session.calls.acknowledge_shown(call, 0, 0)  # A second acknowledgement is not sent.
    with talk.session.pending_bytes() as rest:
        once = len(rest)
    assert talk.session.receive_bytes(encode_frame(show)) == []  # The agent did not receive it.
    with talk.session.pending_bytes() as rest:
        assert len(rest) == 2 * once
        assert bytes(rest[:once]) == bytes(rest[once:])


def test_a_word_of_a_show_is_kept_while_nobody_is_there() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("fetch", {"keys": ["a"]})
    talk.run()
    talk.agent.show(call.number, 2, (1,))
    for piece in (talk.agent.out,):
        talk.events += talk.session.receive_bytes(bytes(piece))  # It has not been read yet.
    talk.disconnect()
    talk.session.calls.acknowledge_shown(call, 2, Code.OK)
    talk.connect()
    talk.run()
    assert talk.agent.shown == [(call.number, 2, 0)]
    assert len(talk.events_of(call, ChunksShown)) == 1


def test_a_forgotten_call_that_was_not_sent_never_is() -> None:
    talk = SessionHarness()
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.session.calls.forget_call(call)
    talk.connect()
    talk.run()
    assert talk.agent.executed == []
    assert call.state is CallState.FINISHED


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("op", "entries", "values", "back"),
    [
        ("reserve", {"count": 1}, {"pages": (3,), "lengths": (1,)}, "release"),
        ("get", {"keys": ["k"]}, {"code": 13, "pages": (3,), "lengths": (1,)}, "release"),
        ("shared_get", {"keys": ["k"]}, {"pages": (3,), "lengths": (1,)}, "release"),
        ("share", {"keys": ["k"], "target": 9}, {"hits": 1}, "withdraw"),
        ("share", {"keys": ["k"], "target": 9}, {"code": 8, "hits": 1}, "withdraw"),
        ("share", {"keys": ["k"], "target": 9}, {"code": 8}, None),
        ("begin_prefill", {"keys": ["k"]}, {}, "drop_prefill"),
        ("begin_prefill", {"keys": ["k"]}, {"code": 14}, None),
        ("get", {"keys": ["k"]}, {"code": 13}, None),
        ("put", {"target": 9}, {"held": True}, None),
        ("stats", {}, {}, None),
    ],
)
def test_what_a_forgotten_call_brings_is_given_back(
    op: str, entries: dict[str, Any], values: dict[str, Any], back: str | None, before: bool
) -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit(op, entries)
    talk.run()
    if before:
        talk.session.calls.forget_call(call)
        talk.run()
        assert talk.agent.received[-1] == {"type": "KvfCall", "id": 2, "op": "abort", "target": 1}
    talk.agent.answer(call.number, **values)
    talk.run()
    if not before:
        talk.session.calls.forget_call(call)
        talk.session.calls.forget_call(call)
        talk.run()
    ops = [(m["op"], m.get("target", m.get("prefill"))) for m in talk.agent.received if m.get("id", 0) > 1]
    assert ops == [("abort", 1)] * before + ([(back, 1)] if back else [])
    assert len(talk.events_of(call, CallAnswered)) == (0 if before else 1)


def test_a_forgotten_fetch_reads_nothing_more() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    call = talk.session.calls.submit("fetch", {"keys": ["k"]})
    talk.run()
    talk.agent.show(call.number, 0, (1,))
    talk.events += talk.session.receive_bytes(bytes(talk.agent.out))
    talk.agent.out.clear()
    talk.session.calls.forget_call(call)
    talk.run()
    assert talk.agent.shown == [(1, 0, Code.CANCELLED)]
    other = talk.session.calls.submit("fetch", {"keys": ["k"]})
    talk.run()
    talk.session.calls.forget_call(other)
    talk.agent.show(other.number, 0, (1,))
    talk.run()
    assert talk.agent.shown[-1] == (other.number, 0, Code.CANCELLED)


def test_what_gives_back_is_never_forgotten() -> None:
    talk = SessionHarness()
    release = talk.session.calls.submit("release", {"target": 1})
    talk.session.calls.forget_call(release)
    assert talk.session.calls.queued_count == 1


def test_what_the_agent_has_no_room_to_take_back_comes_again() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call))
    talk.session.calls.release("release", 40, talk.session.epoch)
    talk.run()
    talk.agent.answer(1, code=Code.TOO_MANY)
    talk.run()
    assert len(talk.agent.executed) == 1  # No endless loop.
    call = talk.session.calls.submit("stats", {})
    talk.run()
    talk.agent.answer(call.number)
    talk.run()
    assert talk.agent.received[-1]["op"] == "release"
    assert talk.agent.received[-1]["target"] == 40
    talk.session.calls.release("release", 41, talk.session.epoch - 1)  # Void: there is nothing to release.
    talk.run()
    assert len(talk.agent.executed) == 3


def test_doubles_are_ignored() -> None:
    talk = attached_harness()
    call = talk.session.calls.submit("stats", {})
    talk.run()
    for message in (Answer(call.number, code=3), Returned(call.number), Show(call.number, 0, (), ())):
        assert talk.session.receive_bytes(encode_frame(message)) == []
    assert talk.session.calls.duplicates == 3
    assert call.answer is not None
    assert call.answer.code == 0


def test_a_call_that_waits_for_room_is_taken_back_at_once() -> None:
    talk = attached_harness(ModelAgent(on_call=ignore_call, window=2))
    sent, waits = (talk.session.calls.submit("get", {"keys": [name]}) for name in "ab")
    (lost,) = talk.session.calls.abort_call(waits)
    assert (lost.call, lost.error.code) == (waits, Code.CANCELLED)
    assert talk.session.calls.abort_call(waits) == talk.session.calls.abort_call(sent) == []
    talk.run()
    assert [m.get("op") for m in talk.agent.received[1:]] == ["get", "abort"]
    assert talk.session.calls.queued_count == 0
