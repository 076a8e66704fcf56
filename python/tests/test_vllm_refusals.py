"""Engines, caches and requests that the connector of vLLM refuses."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vllm_double as double
from agents_double import Agent, AgentsDouble, EnginePair, prompt
from kvferry import InvalidError, client
from vllm_engine import Request

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "r",
        {},
        {"req_id": ""},
        {"req_id": "r" * 129},
        {"req_id": "r", "receiver_host": 5},
        {"req_id": "r", "receiver_host": "d", "receiver_init_port": [], "receiver_alloc_port": []},
        {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1, 2], "receiver_alloc_port": [1]},
        {"req_id": "r", "receiver_host": "d", "receiver_init_port": 0, "receiver_alloc_port": 70000},
    ],
)
def test_parameters_of_no_use_end_no_engine(wire: AgentsDouble, spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    pair, tokens = EnginePair(wire, load_patience=0.1), prompt(1, 9)
    sent = pair.prefill.add(Request("p", tokens, {"disagg_spec": spec}))
    wanted = pair.decode.add(Request("d", tokens, {"disagg_spec": spec, "do_remote_prefill": True}))
    pair.close_all()
    assert sent.computed_tokens == wanted.computed_tokens == 9
    assert pair.prefill.outputs["p"] is None
    assert "disagg_spec" in caplog.text or "port" in caplog.text
    assert not wire.chunks


@pytest.mark.parametrize("params", ["do_remote_prefill", 1, ["disagg_spec"]])
def test_parameters_that_are_no_object_are_none(wire: AgentsDouble, params: Any) -> None:
    pair, tokens = EnginePair(wire), prompt(1, 9)
    for engine in (pair.prefill, pair.decode):
        request = engine.add(Request("r", tokens, params))
        engine.run(engine.is_idle)
        assert request.computed_tokens == 9
        assert engine.outputs["r"] is None
    pair.close_all()


def test_engines_that_are_not_supported_are_refused_by_name(wire: AgentsDouble) -> None:
    from kvferry.vllm.connector import KvferryConnector

    def made(change: Callable[[Any, Any], None]) -> None:
        vllm, cache = double.config("kv_producer"), double.cache_config(8)
        change(vllm, cache)
        KvferryConnector(vllm, double.Role.SCHEDULER, cache)

    group = double.cache_config(8).kv_cache_groups[0]
    sliding = SimpleNamespace(kv_cache_spec=type("SlidingWindowSpec", (double.FullAttentionSpec,), {})())
    for field_, change in (
        ("kv_cache_groups", lambda _, c: c.kv_cache_groups.append(group)),
        ("kv_cache_groups", lambda _, c: c.kv_cache_groups.clear()),
        ("SlidingWindowSpec", lambda _, c: c.kv_cache_groups.__setitem__(0, sliding)),
        ("pipeline_parallel_size", lambda v, _: setattr(v.parallel_config, "pipeline_parallel_size", 2)),
        ("kv_role", lambda v, _: setattr(v.kv_transfer_config, "kv_role", "kv_none")),
        ("loadpatience", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(loadpatience=1)),
        ("load_patience", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(load_patience="1")),
        ("delayed", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(delayed=1)),
        ("loads", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(loads=True)),
        ("saves", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(saves=0)),
    ):
        with pytest.raises(InvalidError, match=field_):
            made(change)


def test_caches_that_are_not_supported_are_refused_by_name(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvferry.vllm.connector import KvferryConnector

    whole = np.zeros((2, 8, double.HEADS, double.BLOCK, 2 * double.HEAD), np.float32)

    def registered(layers: dict[str, double.Tensor]) -> None:
        vllm, cache = double.config("kv_producer"), double.cache_config(8)
        KvferryConnector(vllm, double.Role.WORKER, cache).register_kv_caches(layers)

    good = {"a": double.Tensor(whole[0]), "b": double.Tensor(whole[1])}
    registered(good)
    registered({**good, "c": double.Tensor(whole[0])})  # A layer that uses the KV of another layer.
    registered({**good, "b": double.Tensor(whole[1].swapaxes(1, 2))})  # Tokens first: without gaps as well.
    for field_, tensor in (
        ("device of b", double.Tensor(whole[1], "cuda:0")),
        ("shape of b", double.Tensor(whole[1].swapaxes(0, 1))),
        ("strides of b", double.Tensor(whole.repeat(2, 4)[1][..., ::2])),
        ("bytes of a block of b", double.Tensor(np.zeros((8, 3), np.float32))),
    ):
        with pytest.raises(InvalidError, match=field_):
            registered({**good, "b": tensor})
    with pytest.raises(InvalidError, match="page of the agent"):
        registered({**good, "c": double.Tensor(whole[0] + 0)})
    for change, field_ in (
        ({"sides": ("receiver",)}, "sides of the agent"),
        ({"shape": (2, 2, 32, 4)}, "chunk_size of the agent"),
    ):
        agent = Agent(wire)
        vars(agent.info).update(change)
        monkeypatch.setattr(client, "connect", lambda *_, agent=agent, **__: agent)
        with pytest.raises(InvalidError, match=field_):
            registered(good)


def test_what_goes_between_processes_can_be_pickled(wire: AgentsDouble) -> None:
    """Scheduler and workers may be separate processes."""
    from kvferry.vllm import connector
    from kvferry.vllm.chunk_names import ChunkNames
    from kvferry.vllm.settings import ConnectorDuties
    from kvferry.vllm.step_work import (
        AbandonedLoad,
        CancelledSend,
        Load,
        Part,
        Prompt,
        Push,
        Receiver,
        Save,
        Store,
        Work,
    )

    some = Prompt((1, 2), "beside")
    to = Receiver("h", (1,), (2,))
    work = Work(
        saves=[Save("a", "b", some, (1,), to)],
        loads=[Load("a", "b", some, (1,), 0, is_shared=True)],
        stores=[Store("a", some, (1,))],
        pushes=[Push("a", "b", some, to)],
        parts=[Part("a", 0, (1,), 2, is_last=True)],
        preempts=["a"],
        cancelled_sends=[CancelledSend("b", to)],
        cancels=["a"],
        abandons=[AbandonedLoad("b", "why")],
    )
    metadata = pickle.loads(pickle.dumps(connector.Metadata(work)))  # noqa: S301
    assert metadata.work == work
    told = connector.WorkerInfos(
        {0: connector.WorkerInfo(ChunkNames("m", 1, 0, "half", "l", 4), ConnectorDuties(shares=True))}
    )
    assert pickle.loads(pickle.dumps(told)) == told  # noqa: S301
