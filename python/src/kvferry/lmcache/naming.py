"""How agents call LMCache's chunks: what LMCache's keys say, and what they leave out, the weights of the model."""

from __future__ import annotations

import hashlib
import importlib
import logging
from dataclasses import dataclass
from typing import Any

from kvferry.errors import wrong
from kvferry.lmcache.settings import OP, WITHIN
from kvferry.vllm.identity import model_identity

log = logging.getLogger("kvferry.lmcache")

# Hex digits of a hash that directories can be told; and of the least one that nobody can find two prompts for.
_TOLD = 16
_LEAST = 32

# Hashes that LMCache takes from vLLM, in an engine's process, and of which nobody can find a prompt for a given one. It
# keeps 64 bits of them.
HASHES = ("sha256", "sha256_cbor")


@dataclass(frozen=True)
class Naming:
    """Names chunks by LMCache's keys and by the weights: a digest, or none where nobody says which they are."""

    weights: str

    @classmethod
    def of_text(cls, weights: str) -> Naming:
        """Make one of what an operator calls the weights."""
        return cls(hashlib.sha256(weights.encode()).hexdigest() if weights else "")

    def sent(self, key: Any) -> str:
        """Return how the agents of a prefill and a decode call a chunk: as LMCache writes its key, and the weights."""
        return f"{key.to_string()}{self._tag()}"

    def shared(self, key: Any) -> str:
        """Return how agents that share call a chunk.

        Directories know 64 bits of a hash: of a longer one the rest is a tag. Agents compare all.
        """
        parts = self.sent(key).split("@")
        if len(parts[3].lstrip("-")) <= _TOLD:
            return "@".join(parts)
        whole = hashlib.sha256(parts[3].encode()).hexdigest()
        return "@".join([*parts[:3], whole[:_TOLD], *parts[4:], f"hash%{whole[_TOLD:]}"])

    def served(self, text: str) -> str:
        """Return how agents call what LMCache's server calls model@rank@group@hash, and @salt where there is one."""
        parts = text.split("@")
        _check_hash(parts[3])
        whole = hashlib.sha256(f"{text}{self._tag()}".encode()).hexdigest()
        return f"{parts[0]}@1@0@{whole[:_TOLD]}@uint8@l2%{whole[_TOLD:]}"

    def _tag(self) -> str:
        return f"@weights%{self.weights[:_LEAST]}" if self.weights else ""


def _check_hash(digits: str) -> None:
    """Refuse a hash of which anybody can find two prompts: one user would be answered from the prompt of another."""
    bits = 4 * len(digits.lstrip("-"))
    if bits < 4 * _LEAST:
        remedy = "start the server with --hash-algorithm blake3; LMCache's log says which one it uses"
        raise wrong("name", "hash of a chunk", f"{bits} bits", f"at least {4 * _LEAST}", remedy)


def naming_of(config: Any, weights: str) -> Naming:
    """Name chunks for the engine in whose process this is. What LMCache's keys cannot express is refused, by name."""
    if (algorithm := config.pre_caching_hash_algorithm) not in HASHES:
        raise wrong(
            OP,
            "pre_caching_hash_algorithm",
            repr(algorithm),
            f"one of {', '.join(HASHES)}",
            "set sha256_cbor: of others anybody can find a prompt that has the hash of somebody else's",
        )
    if not _has_hash(algorithm):
        raise wrong(
            OP,
            "pre_caching_hash_algorithm",
            f"{algorithm}, of vLLM, which is not there",
            "a hash that LMCache can load",
            "use an engine of vLLM: without it LMCache takes Python's hash, as if it were told builtin",
        )
    vllm = _vllm_config()
    if vllm is None:
        if not weights:
            remedy = "set it, at all engines alike, to a text that is another one whenever the model's weights are"
            raise wrong(OP, f"{WITHIN}.weights", "empty", "a text, as no vLLM starts in this process", remedy)
        return Naming.of_text(weights)
    if getattr(vllm, "lora_config", None) is not None:
        _refuse("enable_lora", "adapters")
    if getattr(vllm.model_config, "enable_prompt_embeds", False):
        _refuse("enable_prompt_embeds", "embeddings")
    identity = model_identity(vllm, weights, refuse=_refused, setting=f"{WITHIN}.weights")
    log.info("kvferry: the model is %s (%s)", identity.digest, "; ".join(f"{n}: {v}" for n, v in identity.facts))
    return Naming(identity.digest)


def _has_hash(algorithm: str) -> bool:
    """Say whether LMCache can load a hash: it takes Python's where it cannot, and goes on."""
    for name in ("vllm.utils.hashing", "vllm.utils"):
        try:
            importlib.import_module(name).get_hash_fn_by_name(algorithm)
        except (ImportError, AttributeError, ValueError):
            continue
        return True
    return False


def _vllm_config() -> Any:
    """Give the configuration of the vLLM that starts in this process, if one does."""
    try:
        config = importlib.import_module("vllm.config")
    except ImportError:
        return None
    return config.get_current_vllm_config_or_none()


def _refused(field: str, given: str, wanted: str, remedy: str) -> Exception:
    return wrong(OP, field, given, wanted, remedy)


def _refuse(field: str, what: str) -> None:
    raise wrong(
        OP, field, "true", "false", f"use kvferry.vllm, whose names have {what}: LMCache's keys say nothing of them"
    )
