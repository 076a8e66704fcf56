"""Integration of the connector with vLLM: its registry, its releases, its log, and other connectors."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import kvferry
import vllm_double as double
from agents_double import AgentsDouble, EnginePair, close_engines, prompt, sharing_engines
from kvferry import InvalidError
from kvferry.vllm import plugin, versions
from vllm_engine import Output, Request


def test_the_connector_is_registered_by_its_name(wire: AgentsDouble) -> None:
    """MultiConnector looks it up by name when it reports statistics, even without an entry point."""
    import kvferry.vllm

    assert kvferry.vllm.KvferryConnector.__name__
    assert double.Factory.registered == {"KvferryConnector": ("kvferry.vllm", "KvferryConnector")}
    plugin.register()  # vLLM's own call in each process.


@pytest.mark.usefixtures("wire")
def test_the_entry_point_does_no_harm_where_vllm_has_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.distributed.kv_transfer.kv_connector.factory", None)
    plugin.register()


# ---- the scheduler's side hears of the worker's ----


def make_scheduler_and_report(wire: AgentsDouble) -> tuple[Any, Any]:
    """Return a scheduler's side without reports, and the report of a worker's side."""
    pair = EnginePair(wire)
    from kvferry.vllm import connector

    identity = pair.decode.worker._read_identity()
    info = connector.WorkerInfo(pair.decode.worker._worker._names, pair.decode.scheduler._scheduler._duties, identity)
    told = connector.WorkerInfos({0: info})
    pair.close_all()
    return connector.KvferryConnector(double.config("kv_consumer"), double.Role.SCHEDULER, double.cache_config(8)), told


def output(told: Any = None) -> Any:
    return SimpleNamespace(finished_recving=None, finished_sending=None, kv_connector_worker_meta=told)


def test_a_request_waits_for_what_workers_say_first(wire: AgentsDouble) -> None:
    """Handshake metadata is not used, because MultiConnector passes the same metadata to all connectors."""
    scheduler, told = make_scheduler_and_report(wire)
    spec = {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1], "receiver_alloc_port": [2]}
    request = Request("r", prompt(1, 20), {"do_remote_prefill": True, "disagg_spec": spec})
    assert scheduler.get_num_new_matched_tokens(request, 0) == (None, False)
    for other in (None, SimpleNamespace(), told):
        assert scheduler.get_num_new_matched_tokens(request, 0) == (None, False)
        scheduler.build_connector_meta(Output({}, set(), {}))
        scheduler.update_connector_output(output(other))
    assert scheduler.get_num_new_matched_tokens(request, 0) == (20, True)


def test_workers_of_all_ranks_say_so_once(wire: AgentsDouble) -> None:
    _, told = make_scheduler_and_report(wire)
    (info,) = told.ranks.values()
    both = told.aggregate(type(told)({1: info}))
    assert set(both.ranks) == {0, 1}
    pair = EnginePair(wire)
    assert pair.prefill.worker.build_connector_worker_meta() is None
    pair.close_all()


def test_no_handshake_metadata_stands_in_the_way_of_others(wire: AgentsDouble) -> None:
    """NIXL's connector stops the engine when it receives foreign metadata."""
    pair = EnginePair(wire)
    assert "get_handshake_metadata" not in vars(type(pair.prefill.worker))
    assert "set_xfer_handshake_metadata" not in vars(type(pair.prefill.worker))
    pair.close_all()


# ---- releases ----

CLASSES = {
    "KVConnectorBase_V1": double.Base,
    "KVConnectorOutput": double.KVConnectorOutput,
    "SchedulerOutput": double.SchedulerOutput,
}


@pytest.mark.parametrize("version", ["0.31.0", "0.31.2", "0.32.0", "0.32.1.dev3+g1.cpu", "0.33.0", "0.33.0rc1"])
def test_releases_that_were_tried(version: str, caplog: pytest.LogCaptureFixture) -> None:
    versions.check_version(version, CLASSES)
    assert not caplog.records


@pytest.mark.parametrize("version", ["0.30.2", "0.34.0", "1.0.0", "dev", ""])
def test_a_release_that_was_not_tried_is_named(version: str, caplog: pytest.LogCaptureFixture) -> None:
    versions.check_version(version, CLASSES)
    assert f"not tested with vLLM {version}, but with 0.31 and 0.32" in caplog.text


@pytest.mark.parametrize("name", ["KVConnectorBase_V1", "KVConnectorOutput", "SchedulerOutput"])
def test_a_release_with_another_interface_is_refused(name: str) -> None:
    with pytest.raises(
        InvalidError, match=f"vLLM is 0.26.0, whose {name} has no .*0.31 and 0.32.*install a tested release"
    ):
        versions.check_version("0.26.0", {**CLASSES, name: object})


@pytest.mark.usefixtures("wire")
def test_a_release_without_our_modules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import kvferry.vllm

    monkeypatch.setitem(sys.modules, "vllm.v1.core.sched.output", None)
    with pytest.raises(InvalidError, match=r"vLLM is 0.32.0: .*sched.output"):
        assert kvferry.vllm.KvferryConnector.__name__


@pytest.mark.usefixtures("wire")
def test_without_vllm_its_import_fails_as_imports_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import kvferry.vllm

    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ImportError):
        assert kvferry.vllm.KvferryConnector.__name__


def test_the_release_is_looked_at_when_the_engine_starts(wire: AgentsDouble, caplog: pytest.LogCaptureFixture) -> None:
    sys.modules["vllm"].__version__ = "0.99.0"  # type: ignore[attr-defined]
    EnginePair(wire).close_all()
    assert "not tested with vLLM 0.99.0" in caplog.text


# ---- its log ----


def test_the_log_goes_where_that_of_vllm_goes(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM has a handler at its own logger, which does not propagate, and none at the root."""
    vllm, client = logging.getLogger("vllm"), logging.getLogger("kvferry")
    heard: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", heard.append)
    monkeypatch.setattr(vllm, "handlers", [handler])
    monkeypatch.setattr(vllm, "propagate", False)
    monkeypatch.setattr(vllm, "level", logging.INFO)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(client, "parent", client.parent)
    for each in (vllm, client):
        each.manager._clear_cache()  # type: ignore[attr-defined]
    EnginePair(wire).close_all()
    client.info("attached anew")
    (chunks, *_) = [r for r in heard if r.getMessage().startswith("kvferry: chunks of 16 tokens")]
    assert chunks.name == "vllm.kvferry"  # Regardless of the root's handlers.
    assert heard[-1].getMessage() == "attached anew"
    vllm.manager._clear_cache()  # type: ignore[attr-defined]


# ---- what an operator is told when it starts ----


def test_sharing_without_a_directory_is_refused(wire: AgentsDouble) -> None:
    wire.has_directory = False
    with pytest.raises(InvalidError, match=r"controller_reply_url of the agent is none, want a directory; run kvferry"):
        sharing_engines(1)
    assert not wire.held_pages


def test_sharing_with_a_directory_that_is_down_begins(wire: AgentsDouble, caplog: pytest.LogCaptureFixture) -> None:
    wire.directory_up = False
    engines = sharing_engines(1)
    assert "not found while no directory answers" in caplog.text
    close_engines(engines, wire)


@pytest.mark.parametrize(("chunks", "said"), [(255, True), (256, False)])
@pytest.mark.parametrize("layers", [0, double.LAYERS])
def test_a_pool_that_has_no_room_for_the_longest_prompt_is_named(
    wire: AgentsDouble, caplog: pytest.LogCaptureFixture, chunks: int, said: bool, layers: int
) -> None:
    wire.layers = dict.fromkeys(wire.layers, layers)
    wire.pages = chunks
    EnginePair(wire).close_all()
    wanted = f"has room for {chunks * 16} tokens, and a prompt may have 4096 (max_model_len)"
    assert (wanted in caplog.text) == said
    assert (f"set pd_buffer_size to {256 * double.PAGE_BYTES} or more" in caplog.text) == said


@pytest.mark.parametrize("role", ["kv_consumer", "kv_both", "kv_producer"])
@pytest.mark.parametrize("policy", ["fail", "recompute"])
@pytest.mark.usefixtures("wire")
def test_a_policy_that_fails_requests_is_named(role: str, policy: str, caplog: pytest.LogCaptureFixture) -> None:
    from kvferry.vllm import KvferryConnector

    vllm = double.config(role)
    vllm.kv_transfer_config.kv_load_failure_policy = policy
    KvferryConnector(vllm, double.Role.SCHEDULER, double.cache_config(8))
    said = "kv_load_failure_policy is fail: requests whose KV is lost fail" in caplog.text
    assert said == (policy == "fail" and role != "kv_producer")


@pytest.mark.parametrize("socket", ["unix:///run/agent.sock", "unix://run/agent.sock", "tcp://run/agent.sock"])
@pytest.mark.usefixtures("wire")
def test_a_url_is_no_socket(socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvferry.vllm import KvferryConnector

    remedy = "give the path alone: /run/agent.sock"
    for given in ({"socket": socket}, {"socket": ""}):
        monkeypatch.setenv("KVFERRY_SOCKET", socket)
        with pytest.raises(
            InvalidError, match=rf"kv_connector_extra_config.socket is '{socket}', want a path; {remedy}"
        ):
            KvferryConnector(double.config("kv_both", **given), double.Role.SCHEDULER, double.cache_config(8))
    with pytest.raises(InvalidError, match=remedy):
        kvferry.connect(socket)


def test_waits_that_failed_are_counted_apart(wire: AgentsDouble) -> None:
    pair = EnginePair(wire, load_patience=0.1)
    pair.add_decode("nobody", prompt(1, 20))
    pair.decode.run(lambda: not pair.decode.requests)
    pair.close_all()
    assert pair.decode.counts["failed_load_seconds"] >= 0.1
    assert "load_seconds" not in pair.decode.counts
