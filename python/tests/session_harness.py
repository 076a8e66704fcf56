"""A session and a model agent, connected by byte streams that a test controls."""

from __future__ import annotations

from typing import Any

from kvferry import Code
from kvferry.call import Call, ChunksShown
from kvferry.messages import encode
from kvferry.session import Event, Session
from model_agent import ModelAgent


class SessionHarness:
    """A session and an agent with a stream in each direction, which can be cut after any byte."""

    def __init__(self, agent: ModelAgent | None = None, **options: Any) -> None:
        self.agent = agent or ModelAgent()
        self.session = Session("engine", **options)
        self.events: list[Event] = []
        self.transferred = 0  # bytes that were transferred
        self.disconnect_at: int | None = None
        self.piece_bytes = 1 << 20  # bytes per step

    def connect(self) -> None:
        self.session.handle_connected()
        self.agent.connect()

    def disconnect(self) -> None:
        self.session.handle_disconnected()
        self.agent.disconnect()

    def step(self) -> bool:
        """Transfer bytes up to the cut; report whether any were transferred and the cut was not reached."""
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
        """Transfer bytes until both sides have nothing to send."""
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
