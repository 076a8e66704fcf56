"""Common fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lmcache_double
import nodes
import vllm_double
from agents_double import Agent, AgentsDouble
from hosts import Hosts, run_sharing_agents, sharing_config
from kvferry import agent, client
from stub_agent import StubAgent

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator


@pytest.fixture
def stub(tmp_path: pathlib.Path) -> Iterator[StubAgent]:
    with StubAgent(tmp_path) as agent:
        yield agent


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[AgentsDouble]:
    vllm_double.install(monkeypatch)
    made = AgentsDouble()

    def connect(path: str, *, name: str, **_: Any) -> Agent:
        return Agent(made, path, made.layers.get(name.removeprefix("vllm "), 0))

    monkeypatch.setattr(client, "connect", connect)
    yield made
    # Errors on threads are only logged.
    assert not [r for r in caplog.get_records("call") if r.getMessage().startswith("BUG")]


@pytest.fixture
def sender(tmp_path: pathlib.Path) -> Iterator[nodes.Node]:
    with nodes.run_node(tmp_path / "s", nodes.SENDER) as node:
        yield node


@pytest.fixture
def receiver(tmp_path: pathlib.Path) -> Iterator[nodes.Node]:
    with nodes.run_node(tmp_path / "r", nodes.receiver_config()) as node:
        yield node


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Run the agents of two hosts; a test may select sides with layer-by-layer pushes, or pull modes."""
    vllm_double.install(monkeypatch)
    modes = getattr(request, "param", ())
    made = Hosts(tmp_path, modes, pull="pull" in modes, delayed="delayed" in modes)
    yield made
    made.stop()


@pytest.fixture
def sharers(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[list[str]]:
    vllm_double.install(monkeypatch)
    with run_sharing_agents(tmp_path) as sockets:
        yield sockets


@pytest.fixture
def alone(tmp_path: pathlib.Path) -> Iterator[tuple[Callable[[], agent.Agent], str]]:
    """Return a function that starts an agent that shares without a directory, and its socket."""
    file, path = tmp_path / "alone.yaml", str(tmp_path / "alone.sock")
    file.write_text(sharing_config())
    running: list[agent.Agent] = []

    def start() -> agent.Agent:
        running.append(agent.start(file, path))
        return running[-1]

    yield start, path
    for one in running:
        one.kill()


@pytest.fixture
def zmq(monkeypatch: pytest.MonkeyPatch) -> lmcache_double.ZmqDouble:
    return lmcache_double.install(monkeypatch)
