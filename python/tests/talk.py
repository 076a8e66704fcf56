"""A session and an agent that talk, for tests: bytes cross when a test says so."""

from __future__ import annotations

from typing import Any

from kvferry import Code
from kvferry.call import Call, Showing
from kvferry.messages import encode
from kvferry.session import Event, Session
from model import ModelAgent


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


def framed(message: Any) -> bytes:
    payload = encode(message)
    return len(payload).to_bytes(4, "little") + payload
