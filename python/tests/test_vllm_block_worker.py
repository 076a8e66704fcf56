"""Engines whose own blocks are in the pools of their agents: real agents, below a double of vLLM.

These tests run if KVFERRY_BIN names the command.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kvferry
import vllm_double as double
from kvferry import agent
from kvferry.codes import Code
from kvferry.errors import make_error
from kvferry.values import PoolMemory
from kvferry.vllm import block_memory, block_worker
from kvferry.vllm.settings import Settings
from kvferry.vllm.step_work import AbandonedLoad, Load, Prompt, Receiver, Save, Work
from nodes import HOST, free_ports, needs_binary
from vllm_engine import Engine, Request, wait_until

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

BLOCKS, SPARE = 64, 16
FILE = f"""
enable_pd: true
pd_role: both
transfer_channel: auto
pd_peer_host: {HOST}
pd_peer_init_port: [{{init}}]
pd_peer_alloc_port: [{{alloc}}]
pd_buffer_device: cpu
chunk_size: {double.BLOCK}
extra_config:
  kvferry:
    layout: {{{{num_layers: {double.LAYERS}, num_kv_heads: {double.HEADS}, head_size: {double.HEAD}, dtype: float}}}}
    register: {{{{engine_id: {{side}}, kv_heads: {double.HEADS}, blocks: {{blocks}}}}}}
"""


class Both:
    """The agents of a prefill and a decode host, and the arguments of their engines."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._ports = dict(zip(("prefill", "decode"), (free_ports(2), free_ports(2)), strict=True))
        self.agents: dict[str, agent.Agent] = {}
        try:
            for side in self._ports:
                self.start(side)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        for one in self.agents.values():
            one.kill()

    def start(self, side: str, blocks: int = BLOCKS + SPARE) -> None:
        init, alloc = self._ports[side]
        file = self._folder / f"{side}.yaml"
        file.write_text(FILE.format(init=init, alloc=alloc, side=side, blocks=blocks))
        self.agents[side] = agent.start(file, self.socket(side))

    def socket(self, side: str) -> str:
        return str(self._folder / f"{side}.sock")

    def engine(self, side: str, **extra: Any) -> Engine:
        from kvferry.vllm import KvferryConnector

        role = "kv_producer" if side == "prefill" else "kv_consumer"
        extra = {"grace": 0.2, "save_patience": 2, "start_patience": 5, **extra}
        return Engine(KvferryConnector, role, BLOCKS, socket=self.socket(side), **extra)

    def spec(self, name: str) -> dict[str, Any]:
        init, alloc = self._ports["decode"]
        return {
            "req_id": name,
            "receiver_host": HOST,
            "receiver_init_port": [init],
            "receiver_alloc_port": [alloc],
        }

    def lent(self, side: str) -> int:
        """Count the pages that peers may read or write."""
        with kvferry.connect(self.socket(side)) as client:
            node = client.stats()["node"]
        return int(node["pages_total"] - node["pages_free"])


@pytest.fixture
def both(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Both]:
    double.install(monkeypatch)
    monkeypatch.setattr(block_memory, "set_memory", set_memory)
    made = Both(tmp_path)
    yield made
    made.kill()
    assert not [r for r in caplog.get_records("call") if r.getMessage().startswith("BUG")]


def set_memory(tensor: double.Tensor, memory: Any) -> None:
    """Do what the real function does, with tensors of the double."""
    tensor.array = memory.view(np.float32).reshape(tensor.shape)


def computed(prefill: Engine, both: Both, name: str, tokens: list[int], **given: Any) -> dict[str, Any]:
    """Let a prefill engine compute a request, and return its parameters for the decode engine."""
    sent = prefill.add(Request(f"{name}-p", tokens, {"disagg_spec": both.spec(name)}, **given))
    # Its blocks stay until they were read.
    prefill.run(lambda: sent.request_id in prefill.outputs)
    answer = prefill.outputs[sent.request_id]
    assert answer is not None
    return answer


@needs_binary
@pytest.mark.parametrize("killed", [None, "decode", "prefill"])
def test_nothing_is_copied(both: Both, killed: str | None) -> None:
    """Whatever agent is killed, both engines end with correct KV."""
    prefill, decode = both.engine("prefill"), both.engine("decode", load_patience=2 if killed else 20)
    drawn, made = random.Random(5), []
    for i in range(30):
        tokens = [drawn.randrange(300) for _ in range(1 + i)]
        sent = prefill.add(Request(f"r{i}-p", tokens, {"disagg_spec": both.spec(f"r{i}")}))
        prefill.run(lambda sent=sent: sent.request_id in prefill.outputs)  # type: ignore[misc]
        made.append(decode.add(Request(f"r{i}-d", tokens, prefill.outputs[f"r{i}-p"])))
        if i == 15 and killed:
            both.agents[killed].kill()
            both.start(killed)
        decode.step()
        prefill.step()
    wait_until(lambda: _both_step(prefill, decode))
    assert all(request.computed_tokens >= 1 for request in made)
    promised = sum(prefill.outputs[f"r{i}-p"] is not None for i in range(30))
    assert decode.counts["loaded_requests"] + decode.counts.get("failed_loads", 0) == promised
    computed_here = sum(request.computed_tokens > 1 for request in made)
    assert computed_here == 0 if killed is None else computed_here < 20
    assert "copied_bytes" not in prefill.counts
    assert "copied_bytes" not in decode.counts
    for engine in (prefill, decode):
        engine.close()
    assert [both.lent("prefill"), both.lent("decode")] == [0, 0]


def _both_step(*engines: Engine) -> bool:
    for engine in engines:
        engine.step()
    return all(engine.is_idle() for engine in engines)


@needs_binary
def test_it_is_copied_where_blocks_cannot_be_moved(
    both: Both, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(block_memory, "set_memory", None)  # It is not called.
    monkeypatch.setattr("kvferry.vllm.cache.Cache.immovable_reason", lambda _: "blocks of a layer are 320 bytes apart")
    prefill, decode = both.engine("prefill"), both.engine("decode")
    assert [r for r in caplog.records if "blocks are copied" in r.getMessage() and "320 bytes apart" in r.getMessage()]
    request = decode.add(Request("r-d", list(range(45)), computed(prefill, both, "r", list(range(45)))))
    wait_until(lambda: _both_step(prefill, decode))
    assert request.computed_tokens == 1
    size = 12 * double.LAYERS * double.BLOCK_BYTES
    assert (prefill.counts["copied_bytes"], decode.counts["copied_bytes"]) == (size, size)
    for engine in (prefill, decode):
        engine.close()


@needs_binary
def test_an_engine_that_restarts_waits_for_the_one_before(both: Both) -> None:
    """While an engine may compute in a pool, no other engine can, even if the first one is silent and disconnected."""
    prefill = both.engine("prefill")
    with pytest.raises(kvferry.Error, match="another engine has this pool as its own memory"):
        both.engine("prefill", start_patience=0.5)
    prefill.close()
    both.engine("prefill").close()


@needs_binary
def test_agents_that_do_not_fit_are_refused(both: Both) -> None:
    both.agents["prefill"].kill()
    both.start("prefill", BLOCKS - 1)
    with pytest.raises(kvferry.InvalidError, match=r"set register.blocks of the agent's file to 64 or more"):
        both.engine("prefill")


@needs_binary
def test_an_agent_that_comes_back_with_another_file_is_not_used(both: Both) -> None:
    prefill = both.engine("prefill")
    both.agents["prefill"].kill()
    both.start("prefill", BLOCKS - 1)
    worker = prefill.worker._worker
    wait_until(lambda: worker._client.attached and worker._client.epoch != worker._memory.epoch)
    sent = prefill.add(Request("r-p", list(range(9)), {"disagg_spec": both.spec("r")}))
    prefill.run(prefill.is_idle)
    assert prefill.outputs[sent.request_id] is None
    prefill.close()


@needs_binary
def test_another_prompt_is_not_taken(both: Both) -> None:
    """Agents cannot compare blocks, because blocks have no names; so engines describe their content."""
    prefill, decode = both.engine("prefill"), both.engine("decode")
    answer = computed(prefill, both, "r", list(range(45)))
    request = decode.add(Request("r-d", list(range(1, 46)), answer))
    decode.run(decode.is_idle)
    assert request.computed_tokens == 45
    prefill.run(prefill.is_idle)  # It was notified that the request is declined.
    for name, producers in (("a", ["no port"]), ("b", 7), ("c", [])):
        other = decode.add(Request(name, list(range(45)), {**answer, "producers": producers}))
        decode.run(decode.is_idle)
        assert other.computed_tokens == 45
    for engine in (prefill, decode):
        engine.close()


@needs_binary
def test_blocks_stay_with_an_agent_that_is_stopped(both: Both) -> None:
    """It may write into them when it continues, so it keeps them until it has ended, whatever timeout passes."""
    prefill, decode = both.engine("prefill"), both.engine("decode", load_patience=0.5)
    answer = computed(prefill, both, "r", list(range(45)))
    stopped = both.agents["decode"].process.pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        request = decode.add(Request("r-d", list(range(45)), answer))
        decode.step()
        worker = decode.worker._worker
        assert len(worker._transfers) == 1
        wait_until(lambda: time.monotonic() > worker._transfers[0].deadline)  # Its timeout has passed.
        for _ in range(10):
            decode.step()
        assert not request.is_ready
        assert worker._busy_blocks == set(request.blocks)
    finally:
        os.kill(stopped, signal.SIGCONT)
    both.agents["decode"].kill()
    decode.run(decode.is_idle)
    assert request.computed_tokens == 45
    both.start("decode")
    for engine in (prefill, decode):
        engine.close()


@needs_binary
def test_a_rank_registers_with_that_of_its_number(tmp_path: pathlib.Path) -> None:
    """Agents of two ranks at both sides, called as workers call them."""
    made: list[agent.Agent] = []
    with contextlib.ExitStack() as stack:
        clients: dict[tuple[str, int], kvferry.Client] = {}
        for side in ("prefill", "decode"):
            for rank in range(2):
                init, alloc = free_ports(2)
                text = FILE.format(init=init, alloc=alloc, side=side, blocks=8)
                text = text.replace(f"kv_heads: {double.HEADS}, b", f"kv_heads: 2, tp_size: 2, tp_rank: {rank}, b")
                file, path = tmp_path / f"{side}-{rank}.yaml", tmp_path / f"{side}-{rank}.sock"
                file.write_text(text)
                made.append(agent.start(file, path))
                stack.callback(made[-1].kill)
                clients[side, rank] = stack.enter_context(kvferry.connect(path, owns_pool=True))
        lent, came = [], []
        producers = tuple(clients["prefill", rank].info.producer for rank in range(2))
        for rank in range(2):
            worker = SimpleNamespace(_client=clients["prefill", rank], _rank=rank)
            clients["prefill", rank].pool_memory().bytes.reshape(double.LAYERS, 8, -1)[:, 1:3] = 7 + rank
            save = Save("r", "r", Prompt(()), (1, 2), Receiver(HOST, (1,), (2,)))
            transfer = block_worker._BlockTransfer("r", (1, 2), 0, time.monotonic() + 20, epoch=1, places=(1, 2))
            lent.append(block_worker.BlockWorker._lend_blocks(worker, save, transfer))  # type: ignore[arg-type]
            worker._client = clients["decode", rank]
            load = Load("r", "r", Prompt(()), (4, 5), 0, producers=producers)
            transfer = block_worker._BlockTransfer("r", (4, 5), 0, time.monotonic() + 20, epoch=1, places=(4, 5))
            came.append(block_worker.BlockWorker._register_blocks(worker, load, transfer))  # type: ignore[arg-type]
        for rank in range(2):
            assert came[rank].result(20).pages == 2 * double.LAYERS  # type: ignore[attr-defined]
            lent[rank].result(20)  # type: ignore[attr-defined]
            blocks = clients["decode", rank].pool_memory().bytes.reshape(double.LAYERS, 8, -1)
            assert (blocks[:, 4:6] == 7 + rank).all()
            assert not blocks[:, :4].any()


# ---- without an agent ----


class Pending:
    """A call that ends when a test says so."""

    def __init__(self) -> None:
        self.ended = self.back = self.cancelled = False
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.ended

    def wait_until_unused(self, _: float) -> bool:
        return self.back

    def cancel(self) -> None:
        self.cancelled = True

    def result(self, _: float) -> None:
        if self.error is not None:
            raise self.error

    def end(self, error: Exception | None = None) -> None:
        self.ended = self.back = True
        self.error = error


class Rig:
    """A worker, with doubles of its agent and of its block memory."""

    def __init__(self, copy_reason: str = "") -> None:
        self.calls: list[tuple[str, dict[str, Any], Pending]] = []
        self.copied: list[tuple[list[int], list[int]]] = []
        self.declined: list[str] = []
        self.memory = SimpleNamespace(
            is_current=True, epoch=1, spare_blocks=range(100, 102), copy_reason=copy_reason,
            follow_session=lambda: None,
            is_returned=lambda _: True, release=lambda: None, copy_to_pool=self._copy_to_pool,
            copy_from_pool=lambda blocks: len(blocks) * 10,
        )  # fmt: skip
        client = SimpleNamespace(
            lend_blocks=self._call("finished"), register_blocks=self._call("register"), close=lambda: None,
            decline_request=lambda **given: self.declined.append(given["request"]),
        )  # fmt: skip
        cache = SimpleNamespace(block_bytes=10, mark_computed=lambda: None)
        settings = Settings(load_patience=60, save_patience=60)
        self.worker = block_worker.BlockWorker(client, cache, self.memory, 0, settings)  # type: ignore[arg-type]

    def _call(self, op: str) -> Callable[..., Pending]:
        def call(**given: Any) -> Pending:
            self.calls.append((op, given, Pending()))
            return self.calls[-1][2]

        return call

    def _copy_to_pool(self, blocks: list[int], to: list[int]) -> int:
        self.copied.append((list(blocks), list(to)))
        return len(blocks) * 10

    def save(self, name: str, *blocks: int) -> None:
        to = Receiver(HOST, (1,), (2,))
        self.worker.end_step(Work(saves=[Save(name, name, Prompt(()), blocks, to)]))

    def load(self, name: str, *blocks: int) -> None:
        self.worker.end_step(Work(loads=[Load(name, name, Prompt(()), blocks, 3, producers=("[::1]:7:8",))]))

    def results(self, calls: int) -> tuple[set[str], set[str]]:
        """Run steps until so many calls were made, and return the requests that ended."""
        sent, received = self.worker.take_results()

        def made() -> bool:
            more = self.worker.take_results()
            sent.update(more[0])
            received.update(more[1])
            return len(self.calls) >= calls

        wait_until(made)
        return sent, received


def test_a_block_is_lent_once_at_a_time() -> None:
    """A copy of a common prefix is lent if it is lent already; a request waits if there is no room for the copy."""
    rig = Rig()
    rig.save("one", 1, 2, 3)
    rig.save("two", 1, 2, 4)
    rig.save("three", 1, 5)
    rig.results(2)
    assert [list(given["blocks"][0].logical) for _, given, _ in rig.calls] == [[1, 2, 3], [100, 101, 4]]
    assert rig.copied == [([1, 2], [100, 101])]
    rig.calls[1][2].end()
    assert rig.results(3)[0] == {"two"}
    assert list(rig.calls[2][1]["blocks"][0].logical) == [100, 5]
    rig.calls[0][2].end()
    rig.calls[2][2].end()
    assert rig.results(3)[0] == {"one", "three"}
    assert not rig.worker._busy_blocks
    assert rig.worker.counts.take_counts() == {"saved_requests": 3, "saved_bytes": 80, "copied_bytes": 30}
    rig.worker.close()


def test_blocks_do_not_move_while_they_are_copied() -> None:
    """A copy uses addresses of memory that is unmapped when the cache moves."""
    rig, begun, goes_on, settled = Rig(), threading.Event(), threading.Event(), []
    rig.memory.follow_session = lambda: settled.append(begun.is_set() and not goes_on.is_set())

    def copy(blocks: list[int], to: list[int]) -> int:
        begun.set()
        assert goes_on.wait(double.TIMEOUT)
        return rig._copy_to_pool(blocks, to)

    rig.memory.copy_to_pool = copy
    rig.save("one", 1)
    rig.save("two", 1)
    assert begun.wait(double.TIMEOUT)
    for _ in range(3):
        rig.worker.take_results()
    goes_on.set()
    rig.results(2)
    assert settled
    assert not any(settled)
    rig.worker.close()


def test_calls_are_of_the_session_that_has_the_blocks() -> None:
    rig = Rig()
    rig.memory.is_current = False
    rig.save("one", 1)
    rig.load("two", 2, 3)
    assert rig.worker.is_agent_away
    assert not rig.calls
    rig.memory.is_current, rig.memory.epoch = True, 7
    rig.results(2)
    assert [given["epoch"] for _, given, _ in rig.calls] == [7, 7]
    op, given, call = rig.calls[1]
    assert (op, str(given["producers"][0]), given["producer_ranks"]) == ("register", "[::1]:7:8", 1)
    assert (list(given["blocks"][0].logical), given["blocks"][0].first) == ([2, 3], 3)
    call.ended, call.error = True, make_error("register", Code.EXPIRED)
    assert rig.results(2) == (set(), set())  # Its blocks may still be written.
    call.back = True
    rig.memory.is_returned = lambda _: False  # The session is over, and its agent runs.
    assert rig.results(2) == (set(), set())
    rig.memory.is_returned = lambda _: True
    assert rig.results(2) == (set(), {"two"})
    assert rig.worker.take_bad_blocks() == {2, 3}
    wait_until(lambda: rig.declined == ["two"])
    rig.worker.close()


def test_what_nobody_needs_is_taken_back() -> None:
    rig = Rig()
    rig.load("one", 1)
    rig.load("two", 2)
    rig.worker.end_step(
        Work(cancels=["one"], abandons=[AbandonedLoad("gone", producers=(f"{HOST}:1:2",)), AbandonedLoad("unsent")])
    )
    assert rig.calls[0][2].cancelled
    assert not rig.calls[1][2].cancelled
    rig.calls[0][2].end(make_error("register", Code.CANCELLED))
    rig.calls[1][2].end()
    assert rig.results(2)[1] == {"one", "two"}
    assert not rig.worker.take_bad_blocks()
    wait_until(lambda: sorted(rig.declined) == ["gone", "one"])
    counted = rig.worker.counts.take_counts()
    assert (counted["cancelled_loads"], counted["loaded_requests"], counted["loaded_bytes"]) == (1, 1, 10)
    rig.worker.close()


def test_a_copy_is_made_before_and_after() -> None:
    rig = Rig("it is memory of a device")
    rig.save("one", 1, 2)
    rig.load("two", 3)
    rig.results(2)
    assert rig.copied == [([1, 2], [1, 2])]
    for _, _, call in rig.calls:
        call.end()
    ended: set[str] = set()

    def all_ended() -> bool:
        for names in rig.worker.take_results():
            ended.update(names)
        return ended == {"one", "two"}

    wait_until(all_ended)
    assert rig.worker.counts.take_counts()["copied_bytes"] == 30
    rig.worker.close()


# ---- the home alone ----


class AttachedClient:
    """The members of a client that BlockMemory uses."""

    def __init__(self, process: int) -> None:
        self.attached, self.epoch, self.process, self.life = True, 1, process, "one"

    @property
    def info(self) -> Any:
        return SimpleNamespace(life=self.life, page_bytes=8, pages=2 * 6)

    def pool_memory(self) -> PoolMemory:
        return PoolMemory(np.zeros(2 * 6 * 8, np.uint8), self.epoch, self.life, self.process)

    def restart(self, process: int, life: str) -> None:
        self.epoch, self.process, self.life = self.epoch + 1, process, life


def test_only_the_end_of_its_process_ends_what_an_agent_may_write() -> None:
    """The end of a session, or a new agent, proves nothing about the former agent."""
    moves: list[Any] = []
    cache = SimpleNamespace(
        layer_count=2, layer_bytes=8, block_bytes=16, immovable_reason=lambda: "", move_to=moves.append
    )
    engine = SimpleNamespace(blocks=4, block_tokens=1)
    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        try:
            client = AttachedClient(first.pid)
            memory = block_memory.BlockMemory(client, cache, engine)  # type: ignore[arg-type]
            assert (memory.is_current, memory.spare_blocks, len(moves)) == (True, range(4, 6), 1)
            assert [region.shape for region in moves[0]] == [(6, 8), (6, 8)]
            client.attached = False
            assert not memory.is_returned(1)
            client.attached = True
            assert memory.is_returned(1)
            client.restart(second.pid, "two")
            memory.follow_session()
            assert not memory.is_current
            assert not memory.is_returned(1)
            first.kill()
            wait_until(lambda: memory.is_returned(1))
            memory.follow_session()
            assert (memory.is_current, memory.epoch, len(moves)) == (True, 2, 2)
            client.restart(second.pid, "two")  # A new session with the same agent: the pool is the same.
            assert memory.is_returned(2)
            memory.follow_session()
            assert (memory.is_current, memory.epoch, len(moves)) == (True, 3, 2)
        finally:
            first.kill()
            second.kill()
    memory.release()
    assert moves[-1] is None
