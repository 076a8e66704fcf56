"""The identity of a model: the content of its files and its resolved configuration, wherever they are."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kvferry import InvalidError
from kvferry.vllm import weights
from kvferry.vllm.identity import ModelIdentity, attention_backends, model_identity, model_label
from kvferry.vllm.weights import UnknownContentError, adapter_digest, adapter_files, weight_files, weights_digest

if TYPE_CHECKING:
    from collections.abc import Callable


class Config:
    """The members of a Hugging Face configuration that are used."""

    model_type = "llama"

    def __init__(self, **members: Any) -> None:
        self.members = {"_name_or_path": "/x", "transformers_version": "4", "rope_theta": 10000.0, **members}

    def to_dict(self) -> dict[str, Any]:
        return dict(self.members)


def configured(folder: Path | str) -> Any:
    model = SimpleNamespace(
        model=str(folder),
        revision=None,
        hf_config=Config(),
        dtype="torch.bfloat16",
        quantization=None,
        quantization_config=None,
        max_model_len=4096,
    )
    return SimpleNamespace(
        model_config=model,
        cache_config=SimpleNamespace(cache_dtype="auto"),
        load_config=SimpleNamespace(load_format="auto", download_dir=None),
        speculative_config=None,
    )


def filled(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return filled(tmp_path / "model", a__safetensors="first", b__safetensors="second", config__json="{}")


def changed(change: Callable[[Any], None], model: Path) -> ModelIdentity:
    config = configured(model)
    change(config)
    return model_identity(config)


def test_a_copy_elsewhere_is_the_same_model(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    (copy / "README.md").write_text("not a weight")
    (copy / "a.safetensors").touch()
    other = configured(copy)
    other.model_config.hf_config = Config(_name_or_path="/elsewhere", transformers_version="5")
    assert model_identity(configured(model)) == model_identity(other)


def test_the_same_model_of_the_hub_is_the_same_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub's client names files by the digest of their content: they are not read again."""
    snapshot, blobs = tmp_path / "models--a--b/snapshots/c0ffee", tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("a.safetensors", "b.safetensors"):
        digest = hashlib.sha256((model / name).read_bytes()).hexdigest()
        (blobs / digest).write_text("never read")
        (snapshot / name).symlink_to(f"../../blobs/{digest}")
    asked: dict[str, Any] = {}

    def snapshot_download(repo: str, **rest: Any) -> str:
        asked.update(rest, repo=repo)
        return str(snapshot)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    hub = configured("a/b")
    hub.model_config.revision = "v1"
    assert model_identity(hub) == model_identity(configured(model))
    assert asked == {"repo": "a/b", "revision": "v1", "cache_dir": None, "local_files_only": True}


@pytest.mark.parametrize(
    ("fact", "change"),
    [
        ("weights", lambda c: filled(Path(c.model_config.model), a__safetensors="firsT")),
        ("config", lambda c: setattr(c.model_config, "hf_config", Config(rope_theta=500000.0))),
        ("config", lambda c: setattr(c.model_config, "hf_config", Config(quantization_config={"bits": 4}))),
        ("dtype", lambda c: setattr(c.model_config, "dtype", "torch.float16")),
        ("quantization", lambda c: setattr(c.model_config, "quantization", "fp8")),
        ("kv_cache_dtype", lambda c: setattr(c.cache_config, "cache_dtype", "fp8_e5m2")),
    ],
)
def test_what_changes_kv_changes_the_identity(model: Path, fact: str, change: Callable[[Any], None]) -> None:
    before, after = model_identity(configured(model)), changed(change, model)
    assert before.digest != after.digest
    assert fact in {name for name, value in before.facts if dict(after.facts)[name] != value}


def test_a_cache_of_the_models_own_type_is_that_type(model: Path) -> None:
    assert changed(lambda c: setattr(c.cache_config, "cache_dtype", "bfloat16"), model) == changed(
        lambda _: None, model
    )


def test_factors_of_rope_that_the_longest_prompt_chooses_are_told_apart(model: Path) -> None:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 4096}

    def made(longest: int) -> ModelIdentity:
        config = configured(model)
        config.model_config.hf_config = Config(rope_parameters=rope)
        config.model_config.max_model_len = longest
        return model_identity(config)

    assert made(1024) == made(4096) != made(4097) == made(8192)


def test_a_draft_model_is_a_part_of_it(model: Path, tmp_path: Path) -> None:
    draft = filled(tmp_path / "draft", model__safetensors="draft")

    def drafted(method: str) -> ModelIdentity:
        config = configured(model)
        config.speculative_config = SimpleNamespace(
            method=method, draft_model_config=configured(draft).model_config, draft_load_config=None
        )
        return model_identity(config)

    plain = model_identity(configured(model))
    assert drafted("ngram") == plain
    assert (before := drafted("eagle")) != plain
    (draft / "model.safetensors").write_text("another draft")
    assert drafted("eagle") != before


def test_how_media_are_encoded_is_a_part_of_it(model: Path) -> None:
    def encoded(**settings: Any) -> ModelIdentity:
        return changed(lambda c: setattr(c.model_config, "multimodal_config", SimpleNamespace(**settings)), model)

    plain = encoded()
    assert plain == encoded(mm_processor_cache_gb=4)
    assert plain not in (model_identity(configured(model)), encoded(video_pruning_rate=0.5))
    filled(model, preprocessor_config__json='{"size": 224}')
    assert (before := encoded()) != plain
    scales = filled(model, scales__json="1") / "scales.json"
    assert encoded(mm_encoder_fp8_scale_path=str(scales)) != before


def test_weights_that_cannot_be_read_are_refused_by_name(model: Path, tmp_path: Path) -> None:
    def dummy(config: Any) -> None:
        config.load_config.load_format = "dummy"

    for change, text in (
        (dummy, "load_format dummy"),
        (lambda c: setattr(c.model_config, "model", str(filled(tmp_path / "empty"))), "has no weights"),
        (lambda c: setattr(c.model_config, "model", "s3://bucket/model"), "neither a folder nor in the Hub's cache"),
    ):
        with pytest.raises(InvalidError, match=r"weights of the model.*kv_connector_extra_config\.weights") as refusal:
            changed(change, model)
        assert text in str(refusal.value)
    config = configured(model)
    dummy(config)
    assert model_identity(config, "step-7") != model_identity(config, "step-8")
    config.cache_config.calculate_kv_scales = True
    with pytest.raises(InvalidError, match="calculate_kv_scales"):
        model_identity(config, "step-7")


def test_the_files_are_those_that_vllm_loads(tmp_path: Path) -> None:
    def names(folder: Path, *, plain: bool = True) -> list[str]:
        return [file.rpartition("/")[2] for file in weight_files(str(folder), plain=plain)]

    folder = filled(tmp_path / "m", x__bin="", y__pt="", training_args__bin="")
    assert names(folder) == ["x.bin"]
    filled(folder, b__safetensors="", a__safetensors="", stray__safetensors="")
    assert names(folder) == ["a.safetensors", "b.safetensors", "stray.safetensors"]
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"one": "a.safetensors", "two": "b.safetensors"}})
    )
    assert names(folder) == ["a.safetensors", "b.safetensors"]
    filled(folder, consolidated__safetensors="")
    assert names(folder) == ["consolidated.safetensors"]
    assert names(folder, plain=False) == [
        "consolidated.safetensors",
        "a.safetensors",
        "b.safetensors",
        "stray.safetensors",
        "x.bin",
        "y.pt",
    ]


def test_a_model_may_be_one_file(tmp_path: Path) -> None:
    folder = filled(tmp_path / "m", m__gguf="weights")
    assert weights_digest(str(folder / "m.gguf"), "gguf") == weights_digest(str(folder), "gguf")
    with pytest.raises(UnknownContentError, match="tensorizer"):
        weights_digest(str(folder), "tensorizer")


def test_large_files_are_read_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_BUFFER", 3)
    file = filled(tmp_path, m__bin="0123456789") / "m.bin"
    assert weights.content_digest(str(file)) == hashlib.sha256(b"0123456789").hexdigest()


def test_an_adapter_is_its_files(tmp_path: Path) -> None:
    def digest(folder: Path) -> str:
        return adapter_digest(adapter_files(str(folder)))

    one = filled(tmp_path / "one", adapter_config__json="{}", adapter_model__safetensors="w", optimizer__pt="1")
    two = filled(tmp_path / "two", adapter_config__json="{}", adapter_model__safetensors="w", optimizer__pt="2")
    assert digest(one) == digest(two)
    filled(two, adapter_config__json='{"r": 8}')
    assert digest(one) != digest(two)


def test_the_label_is_one_that_keys_may_have() -> None:
    config = configured("m")
    assert model_label(config) == "llama"
    config.model_config.hf_config = SimpleNamespace(model_type="a@b c")
    assert model_label(config) == "a_b_c"
    config.model_config.hf_config = SimpleNamespace()
    assert model_label(config) == "model"


def test_attention_backends_are_named() -> None:
    def layer(name: str) -> Any:
        return SimpleNamespace(attn_backend=SimpleNamespace(get_name=lambda: name))

    context = {"a": layer("FLASH_ATTN"), "b": layer("FLASH_ATTN"), "c": layer("TRITON_ATTN"), "d": layer("OTHER")}
    config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=context))
    assert attention_backends(config, dict.fromkeys("abc")) == "FLASH_ATTN TRITON_ATTN"
    assert not attention_backends(SimpleNamespace(), {"a": None})
