"""The identity of an engine's model: everything that KV depends on besides the prompt.

Engines on different hosts compute the same identity for the same weights, whether the model is given as a folder, as a
name on the Hub, or as a copy elsewhere: the facts describe content and never paths.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kvferry.vllm.settings import unsupported_error
from kvferry.vllm.weights import UnknownContentError, content_digest, processor_digest, weights_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Members of a model's configuration that only describe its origin.
_ORIGIN_MEMBERS = frozenset({"name_or_path", "transformers_version"})
# Rope scaling methods in which vLLM chooses the factors by max_model_len.
_LENGTH_DEPENDENT_ROPE = ("longrope", "su")
# Settings of the media encoder. Settings that are part of media identifiers, such as the processing, are not included.
_MEDIA_SETTINGS = ("mm_device_do_normalize", "mm_encoder_attn_dtype", "video_pruning_method", "video_pruning_rate")
# Draft methods without a model that has its own KV.
_DRAFTERS_WITHOUT_KV = ("ngram", "ngram_gpu", "suffix")


@dataclass(frozen=True)
class ModelIdentity:
    """Facts of a model on which the KV of any prompt depends, sorted by name.

    Engines may exchange KV only if all facts agree. A fact is a short text: a setting or a digest.
    """

    facts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of all facts, in hex digits."""
        return hashlib.sha256(json.dumps(self.facts).encode()).hexdigest()


def model_identity(
    vllm_config: Any,
    weights: str = "",
    *,
    make_error: Callable[[str, str, str, str], Exception] = unsupported_error,
    setting: str = "kv_connector_extra_config.weights",
) -> ModelIdentity:
    """Return the identity of an engine's model. Call it in a worker's process, where the model is loaded.

    It reads all weight files whose name in the Hub's cache is not a content hash.

    Args:
        vllm_config: vLLM's configuration.
        weights: a text that stands for the weights, so that the files are not read.
        make_error: creates the error of an unsupported engine.
        setting: the name of the setting for weights, for errors.

    Raises:
        Exception: KV depends on something that cannot be determined; make_error creates the error.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    if getattr(cache, "calculate_kv_scales", False):
        raise make_error(
            "calculate_kv_scales",
            "true",
            "false",
            "use the scales of a checkpoint: scales that an engine computes depend on its first requests",
        )
    facts = {
        **_config_facts(model),
        "kv_cache_dtype": str(cache.cache_dtype if cache.cache_dtype != "auto" else model.dtype).removeprefix("torch."),
    }
    try:
        facts["weights"] = f"given {weights}" if weights else _weights_fact(model, vllm_config.load_config)
        facts.update(_media_facts(model, vllm_config.load_config, weights))
        facts.update(_draft_facts(vllm_config, weights))
    except (OSError, UnknownContentError) as error:
        remedy = f"set {setting}, to the same text at all engines, and change it whenever the weights change"
        raise make_error(
            "weights of the model", str(error), "files that can be read when the engine starts", remedy
        ) from error
    return ModelIdentity(tuple(sorted(facts.items())))


def model_label(vllm_config: Any) -> str:
    """Return the name of a model in keys, for people: its type. It is no identity."""
    kind = str(getattr(vllm_config.model_config.hf_config, "model_type", ""))
    return re.sub(r"[^A-Za-z0-9._-]", "_", kind) or "model"


def attention_backends(vllm_config: Any, layers: Mapping[str, Any]) -> str:
    """Return the names of the attention backends of some layers, because each has its own byte order within a block."""
    modules = getattr(getattr(vllm_config, "compilation_config", None), "static_forward_context", {})
    found = set()
    for layer in layers:
        if (backend := getattr(modules.get(layer), "attn_backend", None)) is not None:
            found.add(str(backend.get_name()))
    return " ".join(sorted(found))


def _weights_fact(model: Any, load: Any) -> str:
    where = str(getattr(model, "model_weights", "") or model.model)
    form = getattr(load.load_format, "value", load.load_format)
    return weights_digest(where, str(form), getattr(model, "revision", None), load.download_dir)


def _config_facts(model: Any) -> dict[str, str]:
    """Return the facts of a model besides its weights: its configuration as vLLM has resolved it."""
    config = _to_json(model.hf_config.to_dict())
    facts = {
        "config": _json_digest(config),
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": f"{model.quantization} {_json_digest(_to_json(getattr(model, 'quantization_config', None)))}",
    }
    if any(kind in _LENGTH_DEPENDENT_ROPE for kind in _find_values(config, "rope_type", "type")):
        original = [
            value for value in _find_values(config, "original_max_position_embeddings") if isinstance(value, int)
        ]
        facts["longer than before rope was scaled"] = str(any(model.max_model_len > value for value in original))
    return facts


def _media_facts(model: Any, load: Any, weights: str) -> dict[str, str]:
    """Return what the KV of images, videos and sounds depends on besides their identifiers."""
    config = getattr(model, "multimodal_config", None)
    if config is None:
        return {}
    settings = {name: _to_json(getattr(config, name, None)) for name in _MEDIA_SETTINGS}
    scales = getattr(config, "mm_encoder_fp8_scale_path", None)
    files = [content_digest(scales)] if scales else []
    if not weights:
        files.append(processor_digest(str(model.model), getattr(model, "revision", None), load.download_dir))
    return {"media": _json_digest([settings, files])}


def _draft_facts(vllm_config: Any, weights: str) -> dict[str, str]:
    """Return the facts of a draft model, whose layers have KV in addition to those of the main model."""
    speculative: Any = getattr(vllm_config, "speculative_config", None)
    draft = getattr(speculative, "draft_model_config", None)
    if draft is None or speculative.method in _DRAFTERS_WITHOUT_KV:
        return {}
    load = getattr(speculative, "draft_load_config", None) or vllm_config.load_config
    facts = {"method": str(speculative.method), **_config_facts(draft)}
    facts["weights"] = f"given {weights}" if weights else _weights_fact(draft, load)
    return {f"draft {name}": value for name, value in facts.items()}


def _to_json(value: Any) -> Any:
    """Convert a configuration to JSON values, without members that only describe its origin."""
    value = _object_members(value)
    if isinstance(value, dict):
        members = {str(name): inner for name, inner in value.items() if str(name) not in _ORIGIN_MEMBERS}
        return {name: _to_json(inner) for name, inner in members.items() if not name.startswith("_")}
    if isinstance(value, (list, tuple)):
        return [_to_json(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _object_members(value: Any) -> Any:
    """Return the members of a configuration object."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


def _json_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _find_values(config: Any, *names: str) -> Iterator[Any]:
    if isinstance(config, dict):
        for name, value in config.items():
            if name in names:
                yield value
            yield from _find_values(value, *names)
    elif isinstance(config, list):
        for value in config:
            yield from _find_values(value, *names)
