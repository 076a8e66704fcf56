"""Names of LMCache's chunks at agents: LMCache's key, plus the weights of the model, which the key does not contain."""

from __future__ import annotations

import hashlib
import importlib
import logging
from dataclasses import dataclass
from typing import Any

from kvferry.errors import invalid_error
from kvferry.lmcache.settings import OP, SECTION
from kvferry.tenants import add_tenant, tenant_of_salt
from kvferry.vllm.identity import model_identity

log = logging.getLogger("kvferry.lmcache")

# Hex digits of a hash that directories can store; and the fewest digits for which no attacker can find two prompts with
# one hash.
_DIRECTORY_DIGITS = 16
_SAFE_DIGITS = 32

# Hashes that LMCache takes from vLLM in an engine's process and that resist second preimages. LMCache keeps 64 bits of
# them.
HASHES = ("sha256", "sha256_cbor")


@dataclass(frozen=True)
class ChunkNaming:
    """Names chunks by LMCache's keys and by a digest of the weights, which is empty if the weights are unknown."""

    weights: str

    @classmethod
    def from_text(cls, weights: str) -> ChunkNaming:
        """Return the naming for a text that stands for the weights."""
        return cls(hashlib.sha256(weights.encode()).hexdigest() if weights else "")

    def sent_name(self, key: Any) -> str:
        """Return the name of a chunk between the agents of a prefill and a decode engine: LMCache's key, and the
        weights.
        """
        return f"{key.to_string()}{self._weights_tag()}"

    def shared_name(self, key: Any) -> str:
        """Return the name of a chunk between agents that share.

        Directories store 64 bits of a hash; the rest of a longer hash is a tag. Agents compare both.
        """
        parts = self.sent_name(key).split("@")
        if len(parts[3].lstrip("-")) <= _DIRECTORY_DIGITS:
            return "@".join(parts)
        whole = hashlib.sha256(parts[3].encode()).hexdigest()
        return "@".join([*parts[:3], whole[:_DIRECTORY_DIGITS], *parts[4:], f"hash%{whole[_DIRECTORY_DIGITS:]}"])

    def server_name(self, text: str) -> str:
        """Return the name of a chunk whose key at LMCache's server is model@rank@group@hash, with @salt if there is
        one.
        """
        parts = text.split("@", 4)
        _check_hash(parts[3])
        whole = hashlib.sha256(f"{text}{self._weights_tag()}".encode()).hexdigest()
        name = f"{parts[0]}@1@0@{whole[:_DIRECTORY_DIGITS]}@uint8@l2%{whole[_DIRECTORY_DIGITS:]}"
        return add_tenant(name, tenant_of_salt(parts[4] if len(parts) > 4 else ""))

    def _weights_tag(self) -> str:
        return f"@weights%{self.weights[:_SAFE_DIGITS]}" if self.weights else ""


def _check_hash(digits: str) -> None:
    """Refuse a hash of which an attacker can find two prompts: one user's prompt would be answered from another's."""
    bits = 4 * len(digits.lstrip("-"))
    if bits < 4 * _SAFE_DIGITS:
        remedy = "start the server with --hash-algorithm blake3; LMCache's log names the current one"
        raise invalid_error("name", "hash of a chunk", f"{bits} bits", f"at least {4 * _SAFE_DIGITS}", remedy)


def make_naming(config: Any, weights: str) -> ChunkNaming:
    """Return the naming for the engine of this process.

    Raises:
        Error: KV depends on something that LMCache's keys do not contain.
    """
    if (algorithm := config.pre_caching_hash_algorithm) not in HASHES:
        raise invalid_error(
            OP,
            "pre_caching_hash_algorithm",
            repr(algorithm),
            f"one of {', '.join(HASHES)}",
            "set sha256_cbor: for other hashes an attacker can find a prompt with the hash of another user's prompt",
        )
    if not _can_load_hash(algorithm):
        raise invalid_error(
            OP,
            "pre_caching_hash_algorithm",
            f"{algorithm}, of vLLM, which is not installed",
            "a hash that LMCache can load",
            "use an engine of vLLM: without it LMCache uses Python's hash, as if it were set to builtin",
        )
    vllm = _vllm_config()
    if vllm is None:
        if not weights:
            remedy = "set it, to the same text at all engines, and change it whenever the model's weights change"
            raise invalid_error(
                OP, f"{SECTION}.weights", "empty", "a text, because no vLLM starts in this process", remedy
            )
        return ChunkNaming.from_text(weights)
    if getattr(vllm, "lora_config", None) is not None:
        _refuse_input("enable_lora", "adapters")
    if getattr(vllm.model_config, "enable_prompt_embeds", False):
        _refuse_input("enable_prompt_embeds", "embeddings")
    identity = model_identity(vllm, weights, make_error=_unsupported_error, setting=f"{SECTION}.weights")
    log.info("kvferry: the model is %s (%s)", identity.digest, "; ".join(f"{n}: {v}" for n, v in identity.facts))
    return ChunkNaming(identity.digest)


def _can_load_hash(algorithm: str) -> bool:
    """Report whether LMCache can load a hash. If it cannot, it silently uses Python's hash."""
    for name in ("vllm.utils.hashing", "vllm.utils"):
        try:
            importlib.import_module(name).get_hash_fn_by_name(algorithm)
        except (ImportError, AttributeError, ValueError):
            continue
        return True
    return False


def _vllm_config() -> Any:
    """Return the configuration of the vLLM that starts in this process; None if there is none."""
    try:
        config = importlib.import_module("vllm.config")
    except ImportError:
        return None
    return config.get_current_vllm_config_or_none()


def _unsupported_error(field: str, actual: str, expected: str, remedy: str) -> Exception:
    return invalid_error(OP, field, actual, expected, remedy)


def _refuse_input(field: str, inputs: str) -> None:
    raise invalid_error(
        OP, field, "true", "false", f"use kvferry.vllm, whose names include {inputs}: LMCache's keys do not"
    )
