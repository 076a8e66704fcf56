"""Names of LMCache's chunks: LMCache's key, and what it does not contain."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kvferry
import lmcache_double as double
from kvferry.errors import InvalidError
from kvferry.lmcache import KvferryL2
from kvferry.lmcache.naming import ChunkNaming, make_naming
from lmcache_double import CHUNK, Config, Engine, Key, Server, make_views
from nodes import needs_binary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Folded(Key):
    """A key of LMCache in an engine's process: 64 bits of any hash."""

    def to_string(self) -> str:
        return f"m@1@{self.worker}@{self.chunk:x}@float"


@pytest.fixture(autouse=True)
def lmcache(monkeypatch: pytest.MonkeyPatch) -> None:
    double.install(monkeypatch)


def test_names_have_lmcaches_key_and_the_weights() -> None:
    key, naming = Key(1), ChunkNaming.from_text("step-7")
    assert ChunkNaming("").sent_name(key) == key.to_string()
    assert naming.sent_name(key).startswith(f"{key.to_string()}@weights%")
    assert naming.shared_name(key).split("@")[:3] == ["m", "1", "0"]
    assert len(naming.shared_name(key).split("@")[3]) == 16
    assert naming.shared_name(Folded(5)) == naming.sent_name(Folded(5))
    ways: list[Callable[[ChunkNaming], str]] = [
        lambda named: named.sent_name(key),
        lambda named: named.shared_name(key),
        lambda named: named.server_name("m@0@0@" + "5" * 64),
    ]
    for way in ways:
        names = {way(ChunkNaming.from_text(weights)) for weights in ("", "step-7", "step-8")}
        assert len(names) == 3
        assert way(naming) == way(ChunkNaming.from_text("step-7"))


@pytest.mark.parametrize("digits", ["5", "5" * 16, "-" + "5" * 16, "5" * 31])
def test_hashes_that_anybody_can_find_two_prompts_of_are_refused(digits: str) -> None:
    with pytest.raises(InvalidError, match=r"hash of a chunk is \d+ bits, want at least 128; .*blake3"):
        ChunkNaming("").server_name(f"m@0@0@{digits}")


@pytest.mark.parametrize("algorithm", ["builtin", "xxhash", "sha256_cbor_64bit"])
def test_algorithms_of_such_hashes_are_refused(algorithm: str) -> None:
    with pytest.raises(InvalidError, match=f"pre_caching_hash_algorithm is '{algorithm}', want one of sha256"):
        make_naming(Config({}, pre_caching_hash_algorithm=algorithm), "some")


def test_a_hash_that_lmcache_cannot_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LMCache uses Python's hash then, and only logs it."""
    for name in ("vllm", "vllm.utils", "vllm.utils.hashing"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        InvalidError, match="pre_caching_hash_algorithm is sha256_cbor, of vLLM, which is not installed"
    ):
        make_naming(Config({}), "some")


def test_an_engine_that_is_not_vllm_says_what_its_weights_are() -> None:
    assert make_naming(Config({}), "some") == ChunkNaming.from_text("some")
    with pytest.raises(InvalidError, match=r"extra_config\.kvferry\.weights is empty"):
        make_naming(Config({}), "")


def vllm(patch: pytest.MonkeyPatch, folder: Path, **more: Any) -> None:
    """Simulate a vLLM that starts in this process."""
    (folder / "m.safetensors").write_text("weights")
    model = SimpleNamespace(
        model=str(folder),
        hf_config=SimpleNamespace(to_dict=dict),
        dtype="torch.half",
        quantization=None,
        max_model_len=9,
    )
    config = SimpleNamespace(
        model_config=model,
        cache_config=SimpleNamespace(cache_dtype="auto"),
        load_config=SimpleNamespace(load_format="auto", download_dir=None),
    )
    for name, value in more.items():
        vars(config if name == "lora_config" else model)[name] = value
    module = ModuleType("vllm.config")
    vars(module)["get_current_vllm_config_or_none"] = lambda: config
    patch.setitem(sys.modules, "vllm.config", module)


def test_the_weights_of_a_vllm_are_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vllm(monkeypatch, tmp_path)
    before = make_naming(Config({}), "")
    assert make_naming(Config({}), "") == before
    (tmp_path / "m.safetensors").write_text("other weights")
    assert make_naming(Config({}), "") != before
    (tmp_path / "m.safetensors").unlink()
    with pytest.raises(InvalidError, match=r"weights of the model.*set extra_config\.kvferry\.weights"):
        make_naming(Config({}), "")
    assert make_naming(Config({}), "given") != make_naming(Config({}), "other")


@pytest.mark.parametrize(
    ("field", "more"),
    [("enable_lora", {"lora_config": object()}), ("enable_prompt_embeds", {"enable_prompt_embeds": True})],
)
def test_inputs_of_which_lmcaches_keys_say_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, field: str, more: dict[str, Any]
) -> None:
    vllm(monkeypatch, tmp_path, **more)
    with pytest.raises(InvalidError, match=f"{field} is true, want false; use kvferry.vllm"):
        make_naming(Config({}), "given")


@needs_binary
def test_engines_with_other_weights_share_nothing(sharers: list[str]) -> None:
    old, new = (Engine.create({"socket": sharers[0], "weights": weights}) for weights in ("old", "new"))
    keys = [Key(i) for i in range(3)]
    assert old.count_sent(old.put(keys, 3 * CHUNK)) == 3
    assert old.count_loaded(keys) == 3
    assert new.backend.batched_contains(keys) == new.count_loaded(keys) == 0
    for engine in (old, new):
        engine.backend.close()
        assert engine.local.live_objects == 0


@needs_binary
def test_servers_of_other_weights_share_nothing(sharers: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kvferry.lmcache")
    said = [Server(KvferryL2(socket=sharers[0], weights=weights)) for weights in ("old", "new")]
    assert "adapter_params.weights is empty" not in caplog.text
    unsaid = Server(KvferryL2(socket=sharers[0]))
    assert "adapter_params.weights is empty" in caplog.text
    keys = double.make_l2_keys(2)
    assert said[0].wait(said[0].adapter.submit_batch_set(keys, make_views(2)))[2] == [True, True]
    assert said[0].wait(said[0].adapter.submit_batch_exists(keys))[2] == [True, True]
    for other in (said[1], unsaid):
        assert other.wait(other.adapter.submit_batch_exists(keys))[2] == [False, False]
    ok, why, came = said[0].wait(said[0].adapter.submit_batch_set(["m@0@0@5555"], make_views(1)))
    assert (ok, came) == (False, [False])
    assert "hash of a chunk is 16 bits, want at least 128" in why
    for server in (*said, unsaid):
        server.adapter.close()
    with kvferry.connect(sharers[0]) as client:
        assert client.stats()["node"]["pages_lent"] == 0
