"""Names of chunks contain everything that KV depends on; otherwise the request is computed and its KV not sent."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vllm_double as double
from agents_double import AgentsDouble, EnginePair, close_engines, prompt, sharing_engines
from kvferry.tenants import tenant_of_salt
from kvferry.vllm import request_inputs, weights
from kvferry.vllm.chunk_names import ChunkNames
from kvferry.vllm.request_inputs import RequestInputs, UnnamableInputError
from kvferry.vllm.step_work import Prompt, Span
from vllm_engine import Engine, Request

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ChunkNames("m", 2, 1, "bfloat16", "layout", 4)
LENGTH = 60


@dataclass
class Adapter:
    """vLLM's LoRARequest."""

    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool = False
    is_3d_lora_weight: bool = False

    def weights(self) -> str:
        with open(f"{self.lora_path}/adapter_model.safetensors", encoding="utf-8") as opened:
            return opened.read()


@dataclass(frozen=True)
class Position:
    offset: int
    length: int


@dataclass(frozen=True)
class Feature:
    identifier: str
    mm_position: Position


def adapter(folder: Path, number: int, content: str, **more: Any) -> Adapter:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_text(content)
    return Adapter("adapter", number, str(folder), **more)


def embedded(seed: int, length: int = LENGTH) -> double.Tensor:
    return double.Tensor(np.random.default_rng(seed).random((length, 8), np.float32))


def serve_prompt(engine: Engine, name: str, **depends: Any) -> int:
    """Let an engine serve a prompt; return how many of its tokens were computed there."""
    request = engine.add(Request(name, prompt(1, LENGTH), **depends))
    engine.run(engine.is_idle)
    return request.computed_tokens


# ---- keys ----


def test_names_are_the_same_in_every_process_and_differ_where_kv_does() -> None:
    plain = Prompt((1, 2, 3, 4, 5))
    keys = NAMES.chunk_keys(plain)
    assert keys == [
        "m@2@1@57560065a92c9d14@bfloat16@hash%8bdfe244d6bc81d01b05a296851220fbc932d843b9e173a1",
        "m@2@1@93ed9e9b26361698@bfloat16@hash%89c661c63b12af6a90a5e6f622c50c39da7f3e5108cc9a1a",
    ]
    assert NAMES.chunk_keys(Prompt((1, 2, 3, 4)))[0] == keys[0]
    assert NAMES.chunk_keys(Prompt((1, 2, 3, 4, 5, 6)))[1] != keys[1]
    others = [NAMES.chunk_keys(Prompt(plain.tokens, "x")), replace(NAMES, layout="other").chunk_keys(plain)]
    assert all(other[0] != keys[0] and other[1] != keys[1] for other in others)


def test_a_salt_is_a_tenant_of_agents() -> None:
    # The digest that `kvferry tenant` prints (effects.TenantOfSalt in Go).
    assert tenant_of_salt("salt-of-a") == "76eff33a338b6205"
    assert tenant_of_salt("") == ""
    assert tenant_of_salt("\ud800")  # JSON may contain halves of characters.
    keys = NAMES.chunk_keys(Prompt((1, 2, 3, 4, 5), "x", (), tenant_of_salt("salt-of-a")))
    assert [key.rpartition("@")[2] for key in keys] == ["kvft%76eff33a338b6205"] * 2
    assert [key.rpartition("@")[0] for key in keys] == NAMES.chunk_keys(Prompt((1, 2, 3, 4, 5), "x"))


def test_a_span_changes_names_from_its_first_chunk_on() -> None:
    tokens = tuple(range(16))
    plain = NAMES.chunk_keys(Prompt(tokens))

    def differ(*spans: Span) -> list[bool]:
        return [one != other for one, other in zip(plain, NAMES.chunk_keys(Prompt(tokens, "", spans)), strict=True)]

    assert differ() == [False] * 4
    assert differ(Span(5, 7, "a")) == [False, True, True, True]
    assert differ(Span(12, 99, "a")) == [False] * 3 + [True]
    names = [
        tuple(NAMES.chunk_keys(Prompt(tokens, "", spans)))
        for spans in (
            (Span(5, 7, "a"),),
            (Span(5, 7, "b"),),
            (Span(4, 6, "a"),),
            (Span(5, 8, "a"),),
            (Span(1, 7, "a"),),
            (Span(5, 7, "a"), Span(5, 7, "b")),
        )
    ]
    assert len(set(names)) == len(names)


def test_a_prompt_that_is_cut_has_the_names_of_its_beginning() -> None:
    spans = (Span(2, 9, "image"),)
    assert NAMES.chunk_keys(Prompt(tuple(range(16)), "", spans))[:2] == NAMES.chunk_keys(
        Prompt(tuple(range(8)), "", spans)
    )


# ---- engines ----


def test_embeddings_in_place_of_tokens_are_no_others(wire: AgentsDouble) -> None:
    engines = sharing_engines(2)
    for seed in (1, 2):
        assert serve_prompt(engines[0], f"first-{seed}", prompt_embeds=embedded(seed)) == LENGTH
    for seed in (1, 2):
        assert serve_prompt(engines[1], f"again-{seed}", prompt_embeds=embedded(seed)) == LENGTH - 48
    assert serve_prompt(engines[1], "plain") == LENGTH
    close_engines(engines, wire)


@pytest.mark.parametrize("layers", [0, double.LAYERS])
def test_embeddings_are_sent_and_are_no_others(wire: AgentsDouble, layers: int) -> None:
    wire.layers = dict.fromkeys(wire.layers, layers)
    pair, tokens = EnginePair(wire), prompt(1, LENGTH)
    for seed in (1, 2):
        request = Request(f"p{seed}", tokens, pair.transfer_params(f"r{seed}"), prompt_embeds=embedded(seed))
        pair.prefill.add(request)
    pair.prefill.run(pair.prefill.is_idle)
    made = [
        pair.decode.add(Request(f"d{seed}", tokens, pair.prefill.outputs[f"p{seed}"], prompt_embeds=embedded(seed)))
        for seed in (1, 2)
    ]
    pair.close_all()
    assert [request.computed_tokens for request in made] == [1, 1]


def test_a_prompt_of_embeddings_alone_has_tokens_that_mean_nothing(wire: AgentsDouble) -> None:
    named = RequestInputs(double.BLOCK, 20)

    def keys(given: Any, tokens: list[int] | None, mask: list[bool] | None = None, end: int = 10) -> list[str]:
        request = Request("r", tokens, prompt_embeds=given, prompt_is_token_ids=mask)  # type: ignore[arg-type]
        while not named.is_ready(request):
            pass
        made = NAMES.chunk_keys(named.make_prompt(request, end))
        named.forget_request("r")
        return made

    rows, zeros = embedded(1, 10), [0] * 10
    assert request_inputs.prompt_length(Request("r", None, prompt_embeds=rows)) == 10  # type: ignore[arg-type]
    assert len(keys(rows, None)) == 3
    marks = [True] * 2 + [False] * 8
    assert keys(rows, [7] * 10, marks) == keys(rows, [7, 7] + [9] * 8, marks)
    different = [
        keys(rows, None),
        keys(rows, zeros, marks),
        keys(rows, zeros, [False] * 10),
        keys(embedded(2, 10), None),
    ]
    different.append(keys(double.Tensor(rows.array.astype(np.float64)), None))
    assert len({tuple(one) for one in different}) == len(different)
    # A part of a block of embeddings is named by its own content only.
    longer = double.Tensor(np.concatenate([rows.array, rows.array]))
    assert keys(longer, None) == keys(rows, None)
    with pytest.raises(UnnamableInputError, match="cuda:0"):
        keys(double.Tensor(rows.array, "cuda:0"), None)
    named.close()


@pytest.mark.parametrize("kind", ["device", "mask"])
def test_embeddings_without_a_name_are_computed(
    wire: AgentsDouble, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    engines = sharing_engines(1)
    given = double.Tensor(embedded(1).array, "cuda:0" if kind == "device" else "cpu")
    mask = [True] if kind == "mask" else None
    for name in ("one", "two"):
        assert serve_prompt(engines[0], name, prompt_embeds=given, prompt_is_token_ids=mask) == LENGTH
    assert {"device": "in memory of cuda:0", "mask": "1 of 60 tokens are marked"}[kind] in caplog.text
    assert not wire.shared["0.sock"]
    close_engines(engines, wire)


def test_adapters_are_their_content(wire: AgentsDouble, tmp_path: Path) -> None:
    """Neither a name nor a path nor a number identifies an adapter."""
    engines = sharing_engines(2)
    one, other = adapter(tmp_path / "one", 1, "first"), adapter(tmp_path / "other", 2, "second")
    copy = adapter(tmp_path / "copy", 2, "first")
    for made in (one, other):
        assert serve_prompt(engines[0], made.lora_path, lora_request=made) == LENGTH
    assert serve_prompt(engines[1], "copy", lora_request=copy) == LENGTH - 48
    assert serve_prompt(engines[1], "plain") == LENGTH
    close_engines(engines, wire)


def test_adapters_that_no_name_expresses_are_refused_by_name(
    wire: AgentsDouble, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engines = sharing_engines(1)
    loaded = adapter(tmp_path / "one", 1, "first")
    assert serve_prompt(engines[0], "first", lora_request=loaded) == LENGTH
    assert serve_prompt(engines[0], "again", lora_request=loaded) == LENGTH - 48
    stored = dict(wire.shared["0.sock"])
    for name, made, why in (
        ("in place", adapter(tmp_path / "place", 2, "x", load_inplace=True), "was loaded in place"),
        ("number", adapter(tmp_path / "another", 1, "y"), "has number 1, which"),
        ("empty", Adapter("empty", 3, str(tmp_path)), "has no adapter files"),
        ("gone", Adapter("gone", 4, str(tmp_path / "gone")), "cannot be read"),
        ("changed", adapter(tmp_path / "one", 1, "after"), "was changed after it was loaded"),
    ):
        if name in ("empty", "gone"):
            engines[0].adapters[made.lora_int_id] = name
        caplog.clear()
        engines[0].scheduler._scheduler_side._inputs._logged_kinds.clear()
        assert serve_prompt(engines[0], name, lora_request=made) == LENGTH
        assert why in caplog.text
        assert "it is computed, and its KV is neither sent nor stored" in caplog.text
    assert wire.shared["0.sock"] == stored
    close_engines(engines, wire)


def test_a_request_waits_for_a_digest_and_others_do_not(
    wire: AgentsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, go, digest = sharing_engines(1), threading.Event(), weights.adapter_digest
    monkeypatch.setattr(
        request_inputs, "adapter_digest", lambda files: digest(files) if go.wait(double.TIMEOUT) else ""
    )
    slow = engines[0].add(Request("slow", prompt(1, LENGTH), lora_request=adapter(tmp_path / "one", 1, "first")))
    other = engines[0].add(Request("other", prompt(2, LENGTH)))
    engines[0].run(lambda: "other" in engines[0].outputs)
    assert (slow.computed_tokens, other.computed_tokens) == (0, LENGTH)
    go.set()
    engines[0].run(engines[0].is_idle)
    assert slow.computed_tokens == LENGTH
    assert serve_prompt(engines[0], "again", lora_request=slow.lora_request) == LENGTH - 48
    close_engines(engines, wire)


def test_a_digest_that_takes_too_long_is_done_without(
    wire: AgentsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engines, go = sharing_engines(1, load_patience=0.05), threading.Event()
    monkeypatch.setattr(request_inputs, "adapter_digest", lambda _: "late" if go.wait(double.TIMEOUT) else "")
    made = adapter(tmp_path / "one", 1, "first")
    assert serve_prompt(engines[0], "slow", lora_request=made) == LENGTH
    assert "were not read in 0.05 s" in caplog.text
    assert not wire.shared["0.sock"]
    go.set()
    close_engines(engines, wire)


def test_media_are_told_apart_where_they_are(wire: AgentsDouble) -> None:
    engines = sharing_engines(1)

    def media(identifier: str, offset: int) -> list[Feature]:
        return [Feature(identifier, Position(offset, 10))]

    assert serve_prompt(engines[0], "one", mm_features=media("cat", 20)) == LENGTH
    assert serve_prompt(engines[0], "two", mm_features=media("cat", 20)) == LENGTH - 48
    assert serve_prompt(engines[0], "three", mm_features=media("dog", 20)) == LENGTH - 16  # They have a common prefix.
    assert serve_prompt(engines[0], "four", mm_features=media("dog", 0)) == LENGTH
    assert serve_prompt(engines[0], "five", mm_features=media("", 0)) == LENGTH
    assert serve_prompt(engines[0], "six", mm_features=media("", 0)) == LENGTH  # Without a name it is not stored.
    close_engines(engines, wire)


def test_salts_are_told_apart(wire: AgentsDouble) -> None:
    engines = sharing_engines(1)
    for salt in ("a", "b"):
        assert serve_prompt(engines[0], f"one-{salt}", cache_salt=salt) == LENGTH
        assert serve_prompt(engines[0], f"two-{salt}", cache_salt=salt) == LENGTH - 48
    assert serve_prompt(engines[0], "plain") == LENGTH
    close_engines(engines, wire)


def test_an_input_of_a_vllm_to_come_is_refused_by_name(wire: AgentsDouble, caplog: pytest.LogCaptureFixture) -> None:
    engines = sharing_engines(1)
    assert serve_prompt(engines[0], "one") == LENGTH
    request = Request("two", prompt(1, LENGTH))
    request.news = "something"  # type: ignore[attr-defined]
    engines[0].add(request)
    engines[0].run(engines[0].is_idle)
    assert request.computed_tokens == LENGTH
    assert "vLLM's own hash has 1 of them, of which 0 are known here" in caplog.text
    close_engines(engines, wire)


def test_a_decode_engine_is_told_of_what_has_no_name(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire), prompt(1, LENGTH)
    waits = pair.add_decode("r", tokens)
    request = Request("r-0a", tokens, pair.transfer_params("r"))
    request.news = "something"  # type: ignore[attr-defined]
    pair.prefill.add(request)
    pair.close_all()
    assert waits.computed_tokens == LENGTH
    assert pair.prefill.outputs["r-0a"] is None


def test_what_is_sent_for_a_request_without_a_name_is_given_up(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire), prompt(1, LENGTH)
    request = Request("r-0b", tokens, pair.run_prefill("r", tokens))
    request.news = "something"  # type: ignore[attr-defined]
    pair.decode.add(request)
    pair.close_all()
    assert request.computed_tokens == LENGTH
    assert "r" in wire.abandoned_requests
    assert not wire.claims


def test_engines_with_other_weights_share_nothing(wire: AgentsDouble) -> None:
    from kvferry.vllm import KvferryConnector

    old, new = (Engine(KvferryConnector, "kv_both", socket="0.sock", weights=weights) for weights in ("old", "new"))
    new.weights = "new"
    assert [serve_prompt(engine, "first") for engine in (old, new)] == [LENGTH, LENGTH]
    assert [serve_prompt(engine, "again") for engine in (old, new)] == [LENGTH - 48, LENGTH - 48]
    close_engines([old, new], wire)


# ---- new weights in an engine that runs ----


def test_kv_from_before_a_reset_is_not_used(wire: AgentsDouble) -> None:
    engines = sharing_engines(1)
    assert serve_prompt(engines[0], "before") == LENGTH
    engines[0].weights = "new"
    assert engines[0].scheduler.reset_cache() is True
    assert serve_prompt(engines[0], "after") == LENGTH
    assert serve_prompt(engines[0], "own") == LENGTH - 48
    assert serve_prompt(engines[1], "an engine with old weights") == LENGTH - 48
    engines[1].weights = "others"
    assert engines[1].scheduler.reset_cache() is True
    assert serve_prompt(engines[1], "others") == LENGTH
    assert engines[0].scheduler.reset_cache() is True
    assert serve_prompt(engines[0], "once more") == LENGTH
    close_engines(engines, wire)


def test_a_reset_before_workers_have_said_anything_counts(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's weights and cache may be reset before its first step."""
    engines, step = sharing_engines(1), Engine.step
    assert serve_prompt(engines[0], "before") == LENGTH

    def reset_first(self: Engine, finish: bool = True) -> None:
        monkeypatch.setattr(Engine, "step", step)
        assert self.scheduler.reset_cache() is True
        self.step(finish)

    monkeypatch.setattr(Engine, "step", reset_first)
    new = sharing_engines(1)[0]
    new.weights = "new"
    assert serve_prompt(new, "after") == LENGTH
    close_engines([*engines, new], wire)


def test_a_reset_while_kv_from_before_is_loaded_says_so(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    from agents_double import Agent

    engines = sharing_engines(1)
    assert serve_prompt(engines[0], "before") == LENGTH
    go, get = threading.Event(), Agent.shared_get
    monkeypatch.setattr(Agent, "shared_get", lambda *a, **k: get(*a, **k) if go.wait(double.TIMEOUT) else None)
    request = engines[0].add(Request("loads", prompt(1, LENGTH)))
    engines[0].run(lambda: request.status == double.Status.WAITING_FOR_REMOTE_KVS)
    assert engines[0].scheduler.reset_cache() is False
    go.set()
    engines[0].run(engines[0].is_idle)
    assert engines[0].scheduler.reset_cache() is True
    close_engines(engines, wire)


def test_what_was_looked_for_before_a_reset_is_looked_for_again(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents_double import Agent

    engines = sharing_engines(1)
    assert serve_prompt(engines[0], "before") == LENGTH
    go, contains = threading.Event(), Agent.contains
    monkeypatch.setattr(Agent, "contains", lambda *a: contains(*a) if go.wait(double.TIMEOUT) else 0)
    request = engines[0].add(Request("asks", prompt(1, LENGTH)))
    engines[0].step()
    engines[0].weights = "new"
    assert engines[0].scheduler.reset_cache() is True
    go.set()
    engines[0].run(engines[0].is_idle)
    assert request.computed_tokens == LENGTH
    close_engines(engines, wire)
    assert "failed_loads" not in engines[0].counts


@pytest.mark.parametrize("layers", [0, double.LAYERS])
def test_what_began_before_a_reset_is_neither_stored_nor_sent(wire: AgentsDouble, layers: int) -> None:
    wire.layers["kv_producer"] = layers
    pair, tokens = EnginePair(wire, budget=20), prompt(1, LENGTH)
    waits = pair.add_decode("r", tokens)
    request = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step()
    assert 0 < request.num_computed_tokens < LENGTH
    assert pair.prefill.scheduler.reset_cache() is True
    pair.close_all()
    assert pair.prefill.outputs["r-0a"] is None
    # With layer-by-layer pushes one chunk was sent before the reset: the decode engine has the same weights.
    assert waits.computed_tokens in ((LENGTH, LENGTH - 16) if layers else (LENGTH,))


def test_a_shared_prompt_that_began_before_a_reset_is_not_stored(wire: AgentsDouble) -> None:
    from kvferry.vllm import KvferryConnector

    engine = Engine(KvferryConnector, "kv_both", budget=20, socket="0.sock")
    request = engine.add(Request("r", prompt(1, LENGTH)))
    engine.run(lambda: request.num_computed_tokens > 0)
    assert request.num_computed_tokens < LENGTH
    assert engine.scheduler.reset_cache() is True
    engine.run(engine.is_idle)
    assert not wire.shared["0.sock"]
    close_engines([engine], wire)


def test_a_decode_loads_nothing_for_requests_from_before_a_reset(
    wire: AgentsDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """Their prefill engine may have had the old weights."""
    caplog.set_level("INFO")
    pair, tokens = EnginePair(wire), prompt(1, LENGTH)
    params = pair.run_prefill("r", tokens)
    request = pair.add_decode("r", tokens, params)
    assert pair.decode.scheduler.reset_cache() is True
    pair.decode.run(lambda: "r" in wire.abandoned_requests, finish=False)
    pair.decode.run(pair.decode.is_idle)
    assert request.computed_tokens == LENGTH
    assert caplog.text.count("came before the cache was reset") == 1
    later = pair.add_decode("s", tokens, pair.run_prefill("s", tokens))
    later.arrival_time = float("inf")
    pair.close_all()
    assert later.computed_tokens == 1
    assert not wire.claims
