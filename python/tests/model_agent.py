"""A model of an agent without I/O, for tests of the session: it checks that one engine follows the protocol.

It moves no data. A test chooses its answers, or the simple rules below do.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from kvferry import messages
from kvferry.frames import FrameReader, encode_frame
from kvferry.messages import Answer, Attached, Returned, Show

INCARNATIONS = [f"6f1c2d3e-4a5b-6c7d-8e9f-00112233445{n}" for n in range(10)]


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "protocol-agent.md"


def fields_of_operations() -> dict[str, set[str]]:
    """Read the fields of each operation from the documentation; the agent refuses other fields."""
    text = DOCUMENT.read_text(encoding="utf-8").split("-run TestFieldsInTheDocument -rewrite: operations -->")[1]
    found = re.findall(r"- \*\*(\w+)\*\*(?:: ([^*]*))?\n(?=-|\n)", text.split("<!-- end -->")[0])
    return {op: set(re.findall(r"`(\w+)`", fields)) for op, fields in found}


FIELDS = fields_of_operations()


@dataclass
class Task:
    """A call that the agent has."""

    entries: dict[str, Any]
    answer: Answer | None = None
    returned: bool = False
    show: Show | None = None  # the batch that waits for its KvfShown

    @property
    def number(self) -> int:
        return int(self.entries["id"])

    @property
    def op(self) -> str:
        return str(self.entries["op"])

    @property
    def is_finished(self) -> bool:
        return self.answer is not None and (not self.answer.held or self.returned)


@dataclass
class ModelAgent:
    """An agent whose session survives disconnects until it restarts."""

    window: int = 4
    pages: int = 64
    keys: int = 16
    max_bytes: int = 4096
    on_call: Callable[[ModelAgent, Task], None] | None = None
    incarnation: int = 0
    sessions: int = 0
    session: int = 0
    refusal_code: int = 0
    detached_sessions: set[int] = field(default_factory=set)  # sessions that were detached
    answers_detach: bool = True
    connected: bool = False
    attached: bool = False
    limits_tenants: bool = False
    out: bytearray = field(default_factory=bytearray)
    frames: FrameReader = field(default_factory=FrameReader)
    tasks: dict[int, Task] = field(default_factory=dict)  # calls of the session that are not done
    last_number: int = 0
    # session, number and operation of every executed call
    executed: list[tuple[int, int, str]] = field(default_factory=list)
    held_pages: dict[int, tuple[int, ...]] = field(default_factory=dict)  # pages by the call that returned them
    shown: list[tuple[int, int, int]] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)

    def connect(self) -> None:
        self.connected, self.attached = True, False
        self.frames, self.out = FrameReader(), bytearray()

    def disconnect(self) -> None:
        self.connected = self.attached = False
        self.out = bytearray()

    def restart(self) -> None:
        """Lose everything, as a killed process does."""
        self.disconnect()
        self.incarnation += 1
        self.session, self.tasks, self.last_number, self.held_pages = 0, {}, 0, {}

    def receive(self, data: bytes) -> None:
        self.frames.feed(data)
        while (payload := self.frames.next_payload()) is not None:
            message = msgpack.unpackb(payload, raw=False)
            self.received.append(message)
            kind = message["type"]
            if kind == "KvfAttachRequest":
                self._attach(message)
            elif kind == "KvfCall":
                self._call(message)
            else:
                assert kind == "KvfShown"
                self._handle_shown(message)

    def send(self, message: messages.Message) -> None:
        """Send a message if the engine is attached."""
        if self.attached:
            self.out += encode_frame(messages.encode(message))

    def answer(self, number: int, **values: Any) -> None:
        """End a call."""
        task = self.tasks[number]
        assert task.answer is None
        task.answer = Answer(id=number, **values)
        if task.answer.pages:
            self.held_pages[number] = task.answer.pages
        self.send(task.answer)

    def return_memory(self, number: int) -> None:
        """Report that nothing accesses the memory of a call any more."""
        self.tasks[number].returned = True
        self.send(Returned(number))

    def show(self, number: int, first: int, pages: tuple[int, ...]) -> None:
        task = self.tasks[number]
        assert task.show is None
        task.show = Show(number, first, pages, (8,) * len(pages))
        self.send(task.show)

    def _attach(self, message: dict[str, Any]) -> None:
        assert not self.attached
        assert message["v"] == messages.VERSION
        if self.refusal_code:
            self.out += encode_frame(messages.encode(Attached(v=1, code=self.refusal_code, reason="no room")))
            return
        if self.detached_sessions and message.get("session", 0) in self.detached_sessions:
            self.out += encode_frame(messages.encode(Attached(v=1, code=3, reason="the session ends")))
            return
        requested, life = message.get("session", 0), message.get("life", "")
        resumed = bool(requested) and requested == self.session and life == INCARNATIONS[self.incarnation]
        open_calls = message.get("open", [])
        assert open_calls == sorted(set(open_calls))
        if resumed:
            self.tasks = {n: task for n, task in self.tasks.items() if n in open_calls}
        else:
            self.sessions += 1
            self.session, self.tasks, self.last_number, self.held_pages = self.sessions, {}, 0, {}
        self.attached = True
        self.send(
            Attached(
                v=1,
                session=self.session,
                life=INCARNATIONS[self.incarnation],
                resumed=resumed,
                page_bytes=4096,
                pages=self.pages,
                window=self.window,
                keys=self.keys,
                bytes=self.max_bytes,
                shape=(2, 4),
                dtype="bfloat16",
                tenants=self.limits_tenants,
            )
        )
        for task in list(self.tasks.values()) if resumed else ():
            if task.show is not None:
                self.send(task.show)
            if task.answer is not None:
                self.send(task.answer)
            if task.returned:
                self.send(Returned(task.number))

    def _call(self, message: dict[str, Any]) -> None:
        assert self.attached
        number = message["id"]
        for done in message.get("done", []):
            assert self.tasks.pop(done).is_finished, "done was told of a call that has more to come"
        if number <= self.last_number:
            return  # A repetition after a resumption.
        assert len(self.tasks) < self.window, "more calls are open than the window has"
        self.last_number = number
        assert self.session not in self.detached_sessions, "a call after detach"
        task = self.tasks[number] = Task(message)
        assert set(message) - {"type", "id", "op", "done"} <= FIELDS[task.op], (
            "a field that the operation does not take"
        )
        self.executed.append((self.session, number, task.op))
        (execute if self.on_call is None or task.op == "detach" else self.on_call)(self, task)

    def _handle_shown(self, message: dict[str, Any]) -> None:
        number, first, code = message["id"], message.get("first", 0), message.get("code", 0)
        task = self.tasks.get(number)
        if task is None or task.show is None or task.show.first != first:
            return
        task.show = None
        self.shown.append((number, first, code))
        hits = 0 if code else first + 2
        self.answer(number, code=code, hits=hits or first) if code or first >= 2 else self.show(
            number, first + 2, (0, 1)
        )


def execute(agent: ModelAgent, task: Task) -> None:
    """Execute a call in the simplest way."""
    number, target = task.number, task.entries.get("target", 0)
    if task.op == "reserve":
        used = {page for pages in agent.held_pages.values() for page in pages}
        free = [page for page in range(agent.pages) if page not in used][: task.entries["count"]]
        agent.answer(number, pages=tuple(free), lengths=(4096,) * len(free))
    elif task.op == "put":
        assert target in agent.held_pages
        agent.answer(number, sent=1, held=True)
        agent.return_memory(number)
    elif task.op == "detach":
        agent.detached_sessions.add(agent.session)
        agent.held_pages = {}
        if agent.answers_detach:
            agent.answer(number)
    elif task.op == "release":
        agent.answer(number, code=0 if agent.held_pages.pop(target, None) else 13)
    elif task.op == "fetch":
        agent.show(number, 0, (0, 1))
    elif task.op != "get":  # A get waits.
        agent.answer(number)


def ignore_call(_: ModelAgent, __: Task) -> None:
    """Answer nothing."""
