"""vLLM's own knowledge of the inputs that the KV of a block depends on. vLLM is imported on first use."""

from __future__ import annotations

import importlib
from typing import Any


def extra_keys(request: Any) -> int:
    """Return how many inputs besides tokens vLLM's own hash of a request's first token has."""
    found, _ = importlib.import_module("vllm.v1.core.kv_cache_utils").generate_block_hash_extra_keys(request, 0, 1, 0)
    return len(found or ())


def adapter_folder(path: str) -> str:
    """Return the folder with an adapter's files, as vLLM finds it. An adapter on the Hub is downloaded, as by a
    worker.
    """
    return str(importlib.import_module("vllm.lora.utils").get_adapter_absolute_path(path))


def adapter_dtype(vllm_config: Any) -> str:
    """Return the dtype in which adapters are computed; empty if there are no adapters."""
    return str(getattr(getattr(vllm_config, "lora_config", None), "lora_dtype", ""))
