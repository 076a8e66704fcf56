"""A session and an agent that talk, for tests: bytes cross when a test says so."""

from __future__ import annotations

from typing import Any

from kvferry import Code
from kvferry.call import Call, ChunksShown
from kvferry.messages import encode
from kvferry.session import Event, Session
from model_agent import ModelAgent


class SessionHarness:
    """A session and an agent with a stream each way, which may be cut after any byte."""

    def __init__(self, agent: ModelAgent | None = None, **options: Any) -> None:
        self.agent = agent or ModelAgent()
        self.session = Session("engine", **options)
        self.events: list[Event] = []
        self.transferred = 0  # bytes that arrived
        self.disconnect_at: int | None = None
        self.piece_bytes = 1 << 20  # what crosses at a time

    def connect(self) -> None:
        self.session.handle_connected()
        self.agent.connect()

    def disconnect(self) -> None:
        self.session.handle_disconnected()
        self.agent.disconnect()

    def step(self) -> bool:
        """Bring bytes across, up to the cut; say whether there were any, and the cut did not come."""
        limit = (
            self.piece_bytes
            if self.disconnect_at is None
            else min(self.piece_bytes, self.disconnect_at - self.transferred)
        )
        with self.session.pending_bytes() as pending:
            piece = bytes(pending[:limit])
        if piece:
            self.session.mark_sent(len(piece))
            self.agent.receive(piece)
        elif self.agent.out:
            piece = bytes(self.agent.out[:limit])
            del self.agent.out[:limit]
            self._handle_events(self.session.receive_bytes(piece))
        else:
            return False
        self.transferred += len(piece)
        return self.transferred != self.disconnect_at

    def _handle_events(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if isinstance(event, ChunksShown):
                self.session.calls.acknowledge_shown(event.call, event.show.first, Code.OK)

    def run(self) -> None:
        """Talk until nobody has anything to say."""
        while self.step():
            pass

    def events_of(self, call: Call, *kinds: type) -> list[Event]:
        return [e for e in self.events if isinstance(e, kinds) and getattr(e, "call", None) is call]


def attached_harness(agent: ModelAgent | None = None, **options: Any) -> SessionHarness:
    talk = SessionHarness(agent, **options)
    talk.connect()
    talk.run()
    assert talk.session.is_attached
    return talk


def encode_frame(message: Any) -> bytes:
    payload = encode(message)
    return len(payload).to_bytes(4, "little") + payload
