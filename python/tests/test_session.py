"""Tests of the session: a conversation in any order, cut anywhere, with an agent that lives on or does not."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any
from unittest.mock import ANY

import pytest

from kvferry import Code, Error, LostError
from kvferry.call import Answered, Call, CameBack, Lost, Showing, State
from kvferry.errors import ClosedError, InvalidError
from kvferry.frames import FRAME_MAX
from kvferry.messages import Answer, Attached, Returned, Show, encode
from kvferry.session import Broken, Event, Joined, Refused, Session
from model import LIVES, ModelAgent, Task


def nothing(_: ModelAgent, __: Task) -> None:
    """Answer nothing by itself."""


class Talk:
    """A session and an agent with a stream each way, which may be cut after any byte."""

    def __init__(self, agent: ModelAgent | None = None, **options: Any) -> None:
        self.agent = agent or ModelAgent()
        self.session = Session("engine", **options)
        self.events: list[Event] = []
        self.passed = 0  # bytes that arrived
        self.cut_at: int | None = None
        self.piece = 1 << 20  # what crosses at a time

    def connect(self) -> None:
        self.session.connected()
        self.agent.connect()

    def cut(self) -> None:
        self.session.disconnected()
        self.agent.disconnect()

    def step(self) -> bool:
        """Bring bytes across, up to the cut; say whether there were any, and the cut did not come."""
        most = self.piece if self.cut_at is None else min(self.piece, self.cut_at - self.passed)
        with self.session.outgoing() as rest:
            piece = bytes(rest[:most])
        if piece:
            self.session.sent(len(piece))
            self.agent.receive(piece)
        elif self.agent.out:
            piece = bytes(self.agent.out[:most])
            del self.agent.out[:most]
            self._take(self.session.receive(piece))
        else:
            return False
        self.passed += len(piece)
        return self.passed != self.cut_at

    def _take(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if isinstance(event, Showing):
                self.session.calls.shown(event.call, event.show.first, Code.OK)

    def run(self) -> None:
        """Talk until nobody has anything to say."""
        while self.step():
            pass

    def of(self, call: Call, *kinds: type) -> list[Event]:
        return [e for e in self.events if isinstance(e, kinds) and getattr(e, "call", None) is call]


def joined(agent: ModelAgent | None = None, **options: Any) -> Talk:
    talk = Talk(agent, **options)
    talk.connect()
    talk.run()
    assert talk.session.joined
    return talk


def test_a_call_is_answered() -> None:
    talk = joined()
    call = talk.session.calls.submit("reserve", {"count": 2})
    talk.run()
    (event,) = talk.of(call, Answered)
    assert isinstance(event, Answered)
    assert event.answer.pages == (0, 1)
    assert call.number == 1
    assert talk.agent.heard[0] == {"type": "KvfAttachRequest", "v": 1, "name": "engine"}
    assert talk.agent.heard[1] == {"type": "KvfCall", "id": 1, "op": "reserve", "count": 2}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_answers_come_in_any_order(order: tuple[int, ...]) -> None:
    talk = joined(ModelAgent(window=8, executes=nothing))
    calls = [talk.session.calls.submit("get", {"keys": [str(i)]}) for i in range(4)]
    talk.run()
    for i in order:
        talk.agent.answer(calls[i].number, hits=i + 1)
    talk.run()
    answered = [e for e in talk.events if isinstance(e, Answered)]
    assert [e.call for e in answered] == [calls[i] for i in order]
    assert [e.answer.hits for e in answered] == [i + 1 for i in order]
    talk.session.calls.submit("stats", {})
    talk.run()
    assert talk.agent.heard[-1]["done"] == [calls[i].number for i in order]


def test_held_memory_comes_back_after_the_answer() -> None:
    talk = joined(ModelAgent(window=2, executes=nothing))
    call = talk.session.calls.submit("put", {"target": 9})
    talk.run()
    talk.agent.answer(call.number, held=True)
    talk.run()
    assert talk.of(call, CameBack) == []
    assert call.state is State.ANSWERED
    other = talk.session.calls.submit("stats", {})  # The window is full: one call is open, and a part is kept.
    talk.run()
    assert other.number == 0
    talk.agent.give_back(call.number)
    talk.run()
    assert len(talk.of(call, CameBack)) == 1
    assert other.number == 2
    assert talk.agent.heard[-1]["done"] == [call.number]


def test_a_return_may_overtake_its_answer() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("put", {"target": 9})
    talk.run()
    talk.agent.say(Returned(call.number))
    talk.agent.tasks[call.number].returned = True
    talk.agent.answer(call.number, held=True)
    talk.run()
    assert [type(e) for e in talk.of(call, Answered, CameBack)] == [Answered, CameBack]


@pytest.mark.parametrize("window", range(1, 10))
def test_the_window_is_kept_and_used(window: int) -> None:
    talk = joined(ModelAgent(window=window, executes=nothing))
    calls = [talk.session.calls.submit("get", {"keys": [str(i)]}) for i in range(20)]
    talk.run()
    most = window - min(max(1, window // 8), window - 1)
    answered = 0
    while answered < len(calls):  # The model holds the session to the window.
        sent = [c for c in calls if c.state is State.SENT]
        assert len(sent) == min(most, len(calls) - answered)
        assert [c.number for c in sent] == sorted(c.number for c in sent)
        talk.agent.answer(sent[-1].number)
        answered += 1
        talk.run()
    assert talk.session.calls.waiting == 0
    assert [n for _, n, _ in talk.agent.executed] == list(range(1, 21))


def test_what_frees_memory_goes_before_what_waits_for_it() -> None:
    talk = joined(ModelAgent(window=2))
    have = talk.session.calls.submit("reserve", {"count": 64})
    talk.run()
    talk.agent.executes = nothing
    waits = [talk.session.calls.submit("reserve", {"count": 1}) for _ in range(3)]
    release = talk.session.calls.submit("release", {"target": have.number})
    talk.run()
    assert [c.state for c in waits] == [State.SENT, State.QUEUED, State.QUEUED]
    assert release.state is State.SENT


def test_a_release_does_not_overtake_what_uses_the_same() -> None:
    talk = joined(ModelAgent(window=1))
    pages = talk.session.calls.submit("reserve", {"count": 1})
    talk.run()
    talk.agent.executes = nothing
    first = talk.session.calls.submit("get", {"keys": ["k"]})
    put = talk.session.calls.submit("put", {"target": pages.number})
    release = talk.session.calls.submit("release", {"target": pages.number})
    other = talk.session.calls.submit("drop_prefill", {"prefill": 77})
    talk.run()
    for call in (first, other, put, release):
        assert call.state is State.SENT
        talk.agent.answer(call.number)
        talk.run()
    assert [op for _, _, op in talk.agent.executed[1:]] == ["get", "drop_prefill", "put", "release"]


def test_the_queue_is_bounded() -> None:
    talk = Talk(queue_max=3)
    for _ in range(3):
        talk.session.calls.submit("stats", {})
    with pytest.raises(Error) as failed:
        talk.session.calls.submit("stats", {})
    assert failed.value.code == Code.TOO_MANY
    talk.connect()
    talk.run()
    assert talk.session.calls.waiting == 0
    assert len([e for e in talk.events if isinstance(e, Answered)]) == 3


def test_what_is_too_large_for_the_agent_is_not_sent() -> None:
    talk = joined(ModelAgent(keys=3, most=200))
    for entries in ({"keys": ["a", "b", "c", "d"]}, {"keys": ["k" * 200]}):
        with pytest.raises(InvalidError) as failed:
            talk.session.calls.submit("get", entries)
        assert failed.value.code == Code.TOO_LARGE
    call = talk.session.calls.submit("contains", {"keys": ["a", "b", "c"]})
    talk.run()
    assert talk.of(call, Answered)


LONG = "\u00e9" * 512  # As many bytes as a text may have.
LISTS = 16  # The model's keys, which are more than its window.


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
    talk = joined(ModelAgent(most=1 << 20))
    with pytest.raises(InvalidError) as failed:
        talk.session.calls.submit("register", entries)
    error = failed.value
    assert (error.code, error.field) == (Code.TOO_LARGE, field)
    assert given in error.theirs
    assert most in error.ours
    assert error.why.remedy
    assert talk.session.calls.waiting == 0


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
        joined().session.calls.submit("put", entries)
    assert (failed.value.code, failed.value.field) == (Code.INVALID, field)
    assert failed.value.why.remedy


def test_as_much_as_the_agent_takes_is_sent() -> None:
    talk = joined(ModelAgent(most=1 << 20, window=32, executes=nothing))
    texts = {"request": LONG, "transfer": LONG, "engine": LONG}
    lists = {"groups": [0] * 32, "firsts": [0] * 32, "ends": [0] * 32, "producers": [LONG] * 32}
    blocks = [[1] * 65_505, *([[1]] * 31)]  # The window is larger than the keys are many.
    call = talk.session.calls.submit("register", {**texts, **lists, "blocks": blocks})
    keyed = talk.session.calls.submit("contains", {"keys": ["k" * 512] * LISTS})
    talk.run()
    assert (call.state, keyed.state) == (State.SENT, State.SENT)
    with pytest.raises(InvalidError):
        Session("n" * 1025)


def cut_and_connect(talk: Talk) -> list[Lost]:
    lost = talk.session.disconnected()
    talk.agent.disconnect()
    talk.connect()
    talk.run()
    return lost


def test_a_call_on_which_the_agent_hangs_up_is_lost() -> None:
    talk = joined(ModelAgent(window=8, executes=nothing))
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
    talk.session.calls.forget(forgotten)
    for _ in range(2):
        assert cut_and_connect(talk) == []
    assert talk.session.calls.doubles == 2  # That what is held was answered again is no news.
    (lost,) = cut_and_connect(talk)
    assert (lost.call, lost.adrift) == (poison, True)
    assert isinstance(lost.error, LostError)
    assert "cut 3 times" in str(lost.error)
    assert (poison.state, forgotten.state) == (State.OVER, State.OVER)
    # The agent had read what was before a call that it answered; and what gives back is never dropped.
    request = [m for m in talk.agent.heard if m["type"] == "KvfAttachRequest"][-1]
    assert {held.number, waits.number, release.number} <= set(request["open"])
    assert not {poison.number, forgotten.number} & set(request["open"])
    for _ in range(4):
        assert cut_and_connect(talk) == []
    for call in (waits, release):
        talk.agent.answer(call.number)
    talk.run()
    assert all(talk.of(call, Answered) for call in (waits, release))
    assert talk.session.epoch == 1


def test_only_cuts_in_a_row_of_a_call_that_was_sent_count() -> None:
    talk = joined(ModelAgent(window=8, executes=nothing))
    first = talk.session.calls.submit("get", {"keys": ["k"]})
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    for _ in range(2):
        assert cut_and_connect(talk) == []
    talk.agent.answer(first.number)  # Something new.
    talk.run()
    for _ in range(3):
        assert cut_and_connect(talk) == []  # The first of these had news; two others had none.
    assert talk.session.disconnected() == [Lost(call, ANY, adrift=True)]


def test_a_cut_before_a_call_is_sent_does_not_count() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    for _ in range(5):  # It is to be sent, and nothing of it goes.
        assert talk.session.disconnected() == []
        talk.agent.disconnect()
        talk.connect()
        while not talk.session.joined:
            talk.step()
    talk.run()
    assert talk.agent.heard[-1]["id"] == call.number


def test_an_agent_that_refuses_is_heard() -> None:
    talk = Talk(ModelAgent(refuses=8))
    talk.connect()
    talk.run()
    (event,) = talk.events
    assert isinstance(event, Refused)
    assert event.error.code == Code.TOO_MANY
    assert "no room" in str(event.error)
    assert not talk.session.joined


# ---- fetches ----


def test_a_fetch_is_shown_batch_by_batch() -> None:
    talk = joined()
    call = talk.session.calls.submit("fetch", {"keys": list("abcd")})
    talk.run()
    assert [e.show.first for e in talk.of(call, Showing) if isinstance(e, Showing)] == [0, 2]
    assert talk.agent.shown == [(1, 0, 0), (1, 2, 0)]
    assert talk.of(call, Answered)


def test_what_is_shown_while_it_is_read_is_a_double() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("fetch", {"keys": ["a"]})
    talk.run()
    show = Show(call.number, 0, (1,), (8,))
    events = talk.session.receive(b"".join(_frame(m) for m in (show, show)))
    assert [type(e) for e in events] == [Showing]
    assert talk.session.calls.doubles == 1
    talk.session.calls.shown(call, 0, 12)
    talk.session.calls.shown(call, 0, 0)  # A second word is not said.
    with talk.session.outgoing() as rest:
        once = len(rest)
    assert talk.session.receive(_frame(show)) == []  # The agent did not hear it.
    with talk.session.outgoing() as rest:
        assert len(rest) == 2 * once
        assert bytes(rest[:once]) == bytes(rest[once:])


def test_a_word_of_a_show_is_kept_while_nobody_is_there() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("fetch", {"keys": ["a"]})
    talk.run()
    talk.agent.show(call.number, 2, (1,))
    for piece in (talk.agent.out,):
        talk.events += talk.session.receive(bytes(piece))  # Nobody has read it yet.
    talk.cut()
    talk.session.calls.shown(call, 2, Code.OK)
    talk.connect()
    talk.run()
    assert talk.agent.shown == [(call.number, 2, 0)]
    assert len(talk.of(call, Showing)) == 1


# ---- who does not wait any more ----


def test_a_forgotten_call_that_was_not_sent_never_is() -> None:
    talk = Talk()
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.session.calls.forget(call)
    talk.connect()
    talk.run()
    assert talk.agent.executed == []
    assert call.state is State.OVER


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
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit(op, entries)
    talk.run()
    if before:
        talk.session.calls.forget(call)
        talk.run()
        assert talk.agent.heard[-1] == {"type": "KvfCall", "id": 2, "op": "abort", "target": 1}
    talk.agent.answer(call.number, **values)
    talk.run()
    if not before:
        talk.session.calls.forget(call)
        talk.session.calls.forget(call)
        talk.run()
    ops = [(m["op"], m.get("target", m.get("prefill"))) for m in talk.agent.heard if m.get("id", 0) > 1]
    assert ops == [("abort", 1)] * before + ([(back, 1)] if back else [])
    assert len(talk.of(call, Answered)) == (0 if before else 1)


def test_a_forgotten_fetch_reads_nothing_more() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("fetch", {"keys": ["k"]})
    talk.run()
    talk.agent.show(call.number, 0, (1,))
    talk.events += talk.session.receive(bytes(talk.agent.out))
    talk.agent.out.clear()
    talk.session.calls.forget(call)
    talk.run()
    assert talk.agent.shown == [(1, 0, Code.CANCELLED)]
    other = talk.session.calls.submit("fetch", {"keys": ["k"]})
    talk.run()
    talk.session.calls.forget(other)
    talk.agent.show(other.number, 0, (1,))
    talk.run()
    assert talk.agent.shown[-1] == (other.number, 0, Code.CANCELLED)


def test_what_gives_back_is_never_forgotten() -> None:
    talk = Talk()
    release = talk.session.calls.submit("release", {"target": 1})
    talk.session.calls.forget(release)
    assert talk.session.calls.waiting == 1


def test_what_the_agent_has_no_room_to_take_back_comes_again() -> None:
    talk = joined(ModelAgent(executes=nothing))
    talk.session.calls.give_back("release", 40, talk.session.epoch)
    talk.run()
    talk.agent.answer(1, code=Code.TOO_MANY)
    talk.run()
    assert len(talk.agent.executed) == 1  # Not in circles.
    call = talk.session.calls.submit("stats", {})
    talk.run()
    talk.agent.answer(call.number)
    talk.run()
    assert talk.agent.heard[-1]["op"] == "release"
    assert talk.agent.heard[-1]["target"] == 40
    talk.session.calls.give_back("release", 41, talk.session.epoch - 1)  # Void: there is nothing of it.
    talk.run()
    assert len(talk.agent.executed) == 3


# ---- cuts ----

SCRIPT = ("reserve", "put", "fetch", "stats", "release")


def conversation(talk: Talk, calls: list[Call]) -> None:
    """Make the calls of SCRIPT, each when the ones before have what it needs, until all have ended."""
    while True:
        talk.run()
        if talk.passed == talk.cut_at:
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
    talk = Talk()
    talk.connect()
    calls: list[Call] = []
    conversation(talk, calls)
    assert len(calls) == len(SCRIPT)
    assert all(talk.of(call, Answered) for call in calls)
    return talk.passed


LENGTH = length_of_the_conversation()


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 100])
def test_bytes_come_in_pieces_of_any_size(piece: int) -> None:
    talk = Talk()
    talk.piece = piece
    talk.connect()
    calls: list[Call] = []
    conversation(talk, calls)
    assert talk.passed == LENGTH
    assert [op for _, _, op in talk.agent.executed] == list(SCRIPT)


@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_a_cut_at_any_byte_loses_nothing_where_the_agent_lives(cuts: int) -> None:
    for at in range(1, LENGTH + 1):
        talk = Talk()
        talk.connect()
        calls: list[Call] = []
        for n in range(cuts):
            talk.cut_at = talk.passed + max(1, at // (n + 1))
            conversation(talk, calls)
            talk.cut()
            talk.connect()
        talk.cut_at = None
        conversation(talk, calls)
        assert len(calls) == len(SCRIPT), at
        for call in calls:
            assert len(talk.of(call, Answered)) == 1, (at, call)
            assert not talk.of(call, Lost), (at, call)
        assert len(talk.of(calls[1], CameBack)) == 1, at
        # Each chunk was read once, each call done once, and in the order in which it was made.
        assert [e.show.first for e in talk.of(calls[2], Showing) if isinstance(e, Showing)] == [0, 2], at
        assert [op for _, _, op in talk.agent.executed] == list(SCRIPT), at
        assert talk.agent.held == {}, at
        assert talk.session.epoch == 1, at  # All of it is one session.


def test_a_cut_at_any_byte_ends_everything_once_where_the_agent_does_not_live() -> None:
    met: Counter[str] = Counter()
    for at in range(1, LENGTH + 1):
        talk = Talk()
        talk.connect()
        calls: list[Call] = []
        talk.cut_at = at
        conversation(talk, calls)
        before = talk.session.epoch
        talk.cut()
        talk.agent.restart()
        talk.connect()
        talk.cut_at = None
        talk.run()
        assert talk.session.epoch == before + 1
        assert talk.session.info is not None
        assert talk.session.info.life == LIVES[1]
        for call in calls:
            ended = talk.of(call, Answered, Lost)
            back = talk.of(call, CameBack)
            assert len(ended) in (1, 2), (at, call)
            if isinstance(ended[0], Lost):
                assert len(ended) == 1
                assert isinstance(ended[0].error, LostError)
                assert ended[0].error.code == Code.PEER_LOST
                met["lost"] += 1
            elif call.answer is not None and call.answer.held:
                assert len(ended[1:]) + len(back) == 1, (at, call)  # The wait for its memory ended, too.
                met["held, then lost"] += len(ended) - 1
            else:
                met["answered"] += 1
        assert talk.agent.tasks == {}, at  # Nothing of the old session went to the new one.
        call = talk.session.calls.submit("stats", {})
        talk.run()
        assert talk.of(call, Answered), at
    assert all(met[kind] for kind in ("lost", "held, then lost", "answered")), met


def test_what_was_never_sent_goes_on_in_another_life() -> None:
    talk = joined()
    talk.cut()
    talk.agent.restart()
    free = talk.session.calls.submit("get", {"keys": ["k"]})
    bound = talk.session.calls.submit("put", {"target": 1})
    talk.connect()
    talk.run()
    assert talk.of(bound, Lost)
    assert free.state is State.SENT
    assert [op for _, _, op in talk.agent.executed] == ["get"]


def test_an_attachment_names_what_is_waited_for() -> None:
    talk = joined(ModelAgent(window=8, executes=nothing))
    calls = [talk.session.calls.submit("get", {"keys": [str(i)]}) for i in range(3)]
    held = talk.session.calls.submit("put", {"target": 99})
    talk.run()
    talk.agent.answer(calls[1].number)
    talk.agent.answer(held.number, held=True)
    talk.run()
    talk.cut()
    talk.connect()
    talk.run()
    again = [m for m in talk.agent.heard if m["type"] == "KvfAttachRequest"][1]
    assert again["open"] == [calls[0].number, calls[2].number, held.number]
    assert (again["session"], again["life"]) == (1, LIVES[0])
    # Those without an answer came again, in order; the one that is held was not.
    at = talk.agent.heard.index(again)
    assert [m["id"] for m in talk.agent.heard[at + 1 :]] == [calls[0].number, calls[2].number]
    assert talk.session.calls.doubles == 1  # The answer of what is held.
    talk.agent.give_back(held.number)
    talk.run()
    assert talk.of(held, CameBack)
    talk.session.calls.submit("stats", {})
    talk.run()
    assert talk.agent.heard[-1]["done"] == [held.number]  # Of the other one the attachment told.


def test_doubles_are_ignored() -> None:
    talk = joined()
    call = talk.session.calls.submit("stats", {})
    talk.run()
    for message in (Answer(call.number, code=3), Returned(call.number), Show(call.number, 0, (), ())):
        assert talk.session.receive(_frame(message)) == []
    assert talk.session.calls.doubles == 3
    assert call.answer is not None
    assert call.answer.code == 0


def test_giving_up_loses_everything_at_once() -> None:
    talk = joined(ModelAgent(executes=nothing))
    sent = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    talk.cut()
    queued = talk.session.calls.submit("stats", {})
    lost = talk.session.give_up()
    assert {event.call for event in lost} == {sent, queued}
    assert all(isinstance(event.error, LostError) for event in lost)
    with pytest.raises(LostError):
        talk.session.calls.submit("stats", {})
    assert talk.session.give_up() == []
    # The agent comes back too late: it is told to give back what it has for us, and another session begins.
    talk.connect()
    talk.run()
    assert talk.agent.heard[-1] == {"type": "KvfCall", "id": sent.number + 1, "op": "detach"}
    assert isinstance(talk.events[-1], Broken)
    assert not talk.session.joined
    talk.cut()
    talk.connect()
    talk.run()
    assert talk.agent.heard[-1] == {"type": "KvfAttachRequest", "v": 1, "name": "engine"}
    call = talk.session.calls.submit("stats", {})
    talk.run()
    assert call.state is State.SENT
    assert call.number > sent.number


def test_a_session_that_ends_is_not_asked_for_again() -> None:
    talk = joined(ModelAgent(detaches=False, executes=nothing))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    talk.agent.ending.add(1)  # As after a detach whose answer did not come.
    talk.cut()
    talk.connect()
    talk.run()
    assert talk.of(call, Lost)
    assert isinstance(talk.events[-1], Broken)
    assert "the session ends" in talk.events[-1].reason
    talk.cut()
    talk.connect()
    talk.run()
    assert talk.session.joined
    assert talk.agent.session == 2


def test_a_detach_waits_for_its_answer() -> None:
    talk = joined(ModelAgent(window=2, executes=nothing, detaches=False))
    get = talk.session.calls.submit("fetch", {"keys": ["k"]})
    queued = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    talk.agent.show(get.number, 0, (1,))
    talk.events += talk.session.receive(bytes(talk.agent.out))
    talk.agent.out.clear()
    lost = talk.session.detach()
    assert [(event.call, type(event.error)) for event in lost] == [(get, ClosedError), (queued, ClosedError)]
    talk.run()
    assert talk.agent.shown == [(get.number, 0, Code.CANCELLED)]
    assert talk.agent.heard[-1]["op"] == "detach"
    assert not talk.session.detached
    with pytest.raises(LostError):
        talk.session.calls.submit("stats", {})
    talk.agent.answer(talk.agent.heard[-1]["id"])
    talk.run()
    assert talk.session.detached
    assert Session().detached  # There was nothing.


def test_a_show_of_an_old_connection_is_answered_where_it_comes_again() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("fetch", {"keys": ["k"]})
    talk.run()
    talk.agent.show(call.number, 0, (1,))
    talk.events += talk.session.receive(bytes(talk.agent.out))
    talk.cut()
    show, talk.agent.tasks[call.number].show = talk.agent.tasks[call.number].show, None
    talk.connect()
    talk.run()
    talk.session.calls.shown(call, 0, Code.OK)
    talk.run()
    assert talk.agent.heard[-1]["type"] == "KvfCall"  # Nothing was said: nobody waits for it.
    assert show is not None
    talk.agent.show(call.number, 0, show.pages)
    talk.run()
    assert talk.agent.shown[0] == (call.number, 0, 0)
    assert [e.show.first for e in talk.of(call, Showing) if isinstance(e, Showing)] == [0, 2]  # It went on.


def test_closing_ends_everything() -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    (event,) = talk.session.close()
    assert event.call is call
    assert isinstance(event.error, ClosedError)


# ---- what is no conversation ----


def _frame(message: Any) -> bytes:
    payload = encode(message)
    return len(payload).to_bytes(4, "little") + payload


ATTACHED = Attached(v=1, session=1, life=LIVES[0], page_bytes=64, pages=4, window=4)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((FRAME_MAX + 1).to_bytes(4, "little"), "at most"),
        (b"\1\0\0\0\xc1", "not msgpack"),
        (b"\1\0\0\0\x80", "no message"),
        (b"\0\0\0\0", "not msgpack"),
        (_frame(ATTACHED), "a second"),
        (_frame(Answer(7)), "never made"),
        (_frame(Answer(0)), "never made"),
        (_frame(Returned(7)), "never made"),
        (_frame(Show(1, 0, (1,), (1,))), "chunks are shown of a get"),
        (_frame(Answer(1, pages=(64,), lengths=(1,))), "which the pool has not"),
        (_frame(Answer(1, pages=(1,), lengths=(4097,))), "which the pool has not"),
    ],
)
def test_nonsense_breaks_the_connection_and_nothing_else(data: bytes, says: str) -> None:
    talk = joined(ModelAgent(executes=nothing))
    call = talk.session.calls.submit("get", {"keys": ["k"]})
    talk.run()
    (event,) = talk.session.receive(data + _frame(Answer(1)))
    assert isinstance(event, Broken)
    assert says in event.reason
    assert talk.session.receive(_frame(Answer(1))) == []
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
    (event,) = session.receive(_frame(Attached(**fields)))
    assert isinstance(event, Broken)


def test_nothing_is_taken_before_the_attachment() -> None:
    session = Session()
    assert session.receive(b"anything") == []
    session.connected()
    (event,) = session.receive(_frame(Returned(1)))
    assert isinstance(event, Broken)
    session.connected()
    (joined_event,) = session.receive(_frame(ATTACHED))
    assert isinstance(joined_event, Joined)
