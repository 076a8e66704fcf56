"""What tests have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import vllm_double
from agents_double import Agent, Wire
from kvferry import client
from stub import StubAgent

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@pytest.fixture
def stub(tmp_path: pathlib.Path) -> Iterator[StubAgent]:
    with StubAgent(tmp_path) as agent:
        yield agent


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Wire]:
    vllm_double.install(monkeypatch)
    made = Wire()

    def connect(path: str, *, name: str, **_: Any) -> Agent:
        return Agent(made, path, made.layers.get(name.removeprefix("vllm "), 0))

    monkeypatch.setattr(client, "connect", connect)
    yield made
    # What fails on a thread is only logged.
    assert not [r for r in caplog.get_records("call") if r.getMessage().startswith("BUG")]
