"""An agent as the protocol has it, without I/O, for tests of the session: it holds one engine to the rules.

It is no agent: it moves nothing. What it answers a test decides, or the few rules below.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from kvferry import messages
from kvferry.frames import Frames, frame
from kvferry.messages import Answer, Attached, Returned, Show

LIVES = [f"6f1c2d3e-4a5b-6c7d-8e9f-00112233445{n}" for n in range(10)]


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "protocol-agent.md"


def fields_of_operations() -> dict[str, set[str]]:
    """Read which fields an operation takes, where users do: the agent refuses others."""
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
    show: Show | None = None  # that waits for its KvfShown

    @property
    def number(self) -> int:
        return int(self.entries["id"])

    @property
    def op(self) -> str:
        return str(self.entries["op"])

    @property
    def whole(self) -> bool:
        return self.answer is not None and (not self.answer.held or self.returned)


@dataclass
class ModelAgent:
    """It keeps a session over connections until it restarts."""

    window: int = 4
    pages: int = 64
    keys: int = 16
    most: int = 4096
    executes: Callable[[ModelAgent, Task], None] | None = None
    life: int = 0
    sessions: int = 0
    session: int = 0
    refuses: int = 0
    ending: set[int] = field(default_factory=set)  # sessions that were told to detach
    detaches: bool = True
    connected: bool = False
    attached: bool = False
    out: bytearray = field(default_factory=bytearray)
    frames: Frames = field(default_factory=Frames)
    tasks: dict[int, Task] = field(default_factory=dict)  # of the session, until they are done
    last: int = 0
    executed: list[tuple[int, int, str]] = field(default_factory=list)  # session, number, op: all that ever was
    held: dict[int, tuple[int, ...]] = field(default_factory=dict)  # pages by the call that brought them
    shown: list[tuple[int, int, int]] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)

    def connect(self) -> None:
        self.connected, self.attached = True, False
        self.frames, self.out = Frames(), bytearray()

    def disconnect(self) -> None:
        self.connected = self.attached = False
        self.out = bytearray()

    def restart(self) -> None:
        """Lose everything, as a process does that is killed."""
        self.disconnect()
        self.life += 1
        self.session, self.tasks, self.last, self.held = 0, {}, 0, {}

    def receive(self, data: bytes) -> None:
        self.frames.feed(data)
        while (payload := self.frames.next()) is not None:
            message = msgpack.unpackb(payload, raw=False)
            self.heard.append(message)
            kind = message["type"]
            if kind == "KvfAttachRequest":
                self._attach(message)
            elif kind == "KvfCall":
                self._call(message)
            else:
                assert kind == "KvfShown"
                self._was_shown(message)

    def say(self, message: messages.Message) -> None:
        """Say something, if anybody is there to hear it."""
        if self.attached:
            self.out += frame(messages.encode(message))

    def answer(self, number: int, **values: Any) -> None:
        """End a call."""
        task = self.tasks[number]
        assert task.answer is None
        task.answer = Answer(id=number, **values)
        if task.answer.pages:
            self.held[number] = task.answer.pages
        self.say(task.answer)

    def give_back(self, number: int) -> None:
        """Say that nothing touches the memory of a call any more."""
        self.tasks[number].returned = True
        self.say(Returned(number))

    def show(self, number: int, first: int, pages: tuple[int, ...]) -> None:
        task = self.tasks[number]
        assert task.show is None
        task.show = Show(number, first, pages, (8,) * len(pages))
        self.say(task.show)

    def _attach(self, message: dict[str, Any]) -> None:
        assert not self.attached
        assert message["v"] == messages.VERSION
        if self.refuses:
            self.out += frame(messages.encode(Attached(v=1, code=self.refuses, reason="no room")))
            return
        if self.ending and message.get("session", 0) in self.ending:
            self.out += frame(messages.encode(Attached(v=1, code=3, reason="the session ends")))
            return
        asked, life = message.get("session", 0), message.get("life", "")
        resumed = bool(asked) and asked == self.session and life == LIVES[self.life]
        waits = message.get("open", [])
        assert waits == sorted(set(waits))
        if resumed:
            self.tasks = {n: task for n, task in self.tasks.items() if n in waits}
        else:
            self.sessions += 1
            self.session, self.tasks, self.last, self.held = self.sessions, {}, 0, {}
        self.attached = True
        self.say(
            Attached(
                v=1,
                session=self.session,
                life=LIVES[self.life],
                resumed=resumed,
                page_bytes=4096,
                pages=self.pages,
                window=self.window,
                keys=self.keys,
                bytes=self.most,
                shape=(2, 4),
                dtype="bfloat16",
            )
        )
        for task in list(self.tasks.values()) if resumed else ():
            if task.show is not None:
                self.say(task.show)
            if task.answer is not None:
                self.say(task.answer)
            if task.returned:
                self.say(Returned(task.number))

    def _call(self, message: dict[str, Any]) -> None:
        assert self.attached
        number = message["id"]
        for done in message.get("done", []):
            assert self.tasks.pop(done).whole, "done was told of a call that has more to come"
        if number <= self.last:
            return  # It came again, after a resumption.
        assert len(self.tasks) < self.window, "more calls are open than the window has"
        self.last = number
        assert self.session not in self.ending, "a call after detach"
        task = self.tasks[number] = Task(message)
        assert set(message) - {"type", "id", "op", "done"} <= FIELDS[task.op], (
            "a field that the operation does not take"
        )
        self.executed.append((self.session, number, task.op))
        (execute if self.executes is None or task.op == "detach" else self.executes)(self, task)

    def _was_shown(self, message: dict[str, Any]) -> None:
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
    """Do what a call asks for, in the simplest way."""
    number, target = task.number, task.entries.get("target", 0)
    if task.op == "reserve":
        used = {page for pages in agent.held.values() for page in pages}
        free = [page for page in range(agent.pages) if page not in used][: task.entries["count"]]
        agent.answer(number, pages=tuple(free), lengths=(4096,) * len(free))
    elif task.op == "put":
        assert target in agent.held
        agent.answer(number, sent=1, held=True)
        agent.give_back(number)
    elif task.op == "detach":
        agent.ending.add(agent.session)
        agent.held = {}
        if agent.detaches:
            agent.answer(number)
    elif task.op == "release":
        agent.answer(number, code=0 if agent.held.pop(target, None) else 13)
    elif task.op == "fetch":
        agent.show(number, 0, (0, 1))
    elif task.op != "get":  # Which waits.
        agent.answer(number)


def silent(_: ModelAgent, __: Task) -> None:
    """Answer nothing by itself."""
