"""A double of vLLM's classes, and of torch's: those that a connector takes.

vllm_engine has the scheduler and the worker that call it.
"""

from __future__ import annotations

import enum
import os
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import kvferry.vllm

if TYPE_CHECKING:
    import numpy.typing as npt
    import pytest

BLOCK, HEADS, HEAD, LAYERS = 4, 1, 8, 2
# Bytes of a block in one layer.
BLOCK_BYTES = BLOCK * HEADS * 2 * HEAD * 4
# Blocks of a chunk: what a page of an agent's pool has.
CHUNK = 4
PAGE_BYTES = CHUNK * LAYERS * BLOCK_BYTES
SHAPE = (2, LAYERS, CHUNK * BLOCK, HEADS * HEAD)

PATIENCE = 20.0


class Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class Status(enum.Enum):
    WAITING = 0
    WAITING_FOR_REMOTE_KVS = 1
    RUNNING = 2
    FINISHED_LENGTH_CAPPED = 3
    FINISHED_ABORTED = 4


class Base:
    """vLLM's KVConnectorBase_V1, as far as it is used."""

    def __init__(self, vllm_config: Any, role: Role, kv_cache_config: Any) -> None:
        self._vllm_config = vllm_config
        self._metadata: Any = None

    def bind_connector_metadata(self, metadata: Any) -> None:
        self._metadata = metadata

    def clear_connector_metadata(self) -> None:
        self._metadata = None

    def _get_connector_metadata(self) -> Any:
        assert self._metadata is not None
        return self._metadata


@dataclass
class Stats:
    data: dict[str, Any] = field(default_factory=dict)


class PromMetrics:
    def __init__(self, _: Any, types_: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        self._counter_cls = types_["counter"]


def install(patch: pytest.MonkeyPatch) -> None:
    """Have imports of vLLM and of torch find this."""
    path = "vllm.distributed.kv_transfer.kv_connector.v1"
    names = path.split(".")
    for end in range(1, len(names) + 1):
        patch.setitem(sys.modules, ".".join(names[:end]), types.ModuleType(".".join(names[:end])))
    base, metrics = types.ModuleType(f"{path}.base"), types.ModuleType(f"{path}.metrics")
    base.__dict__.update(KVConnectorBase_V1=Base, KVConnectorMetadata=object, KVConnectorRole=Role)
    base.__dict__.update(KVConnectorHandshakeMetadata=object)
    metrics.__dict__.update(KVConnectorStats=Stats, KVConnectorPromMetrics=PromMetrics)
    patch.setitem(sys.modules, base.__name__, base)
    patch.setitem(sys.modules, metrics.__name__, metrics)
    for name, functions in (
        ("v1.core.kv_cache_utils", {"generate_block_hash_extra_keys": extra_keys}),
        ("lora.utils", {"get_adapter_absolute_path": os.path.abspath}),
    ):
        module = types.ModuleType(f"vllm.{name}")
        module.__dict__.update(functions)
        patch.setitem(sys.modules, module.__name__, module)
    torch = types.ModuleType("torch")
    cpu = types.SimpleNamespace(get_cpu_capability=lambda: "DOUBLE")
    torch.__dict__.update(backends=types.SimpleNamespace(cpu=cpu), cpu=types.SimpleNamespace())
    patch.setitem(sys.modules, "torch", torch)
    patch.delitem(sys.modules, "kvferry.vllm.connector", raising=False)
    patch.delattr(kvferry.vllm, "connector", raising=False)


def extra_keys(request: Any, begin: int, end: int, _: int) -> tuple[tuple[Any, ...] | None, int]:
    """vLLM's, for the first token: what beside tokens its hash of a block has."""
    assert (begin, end) == (0, 1)
    found: list[Any] = []
    if (adapter := getattr(request, "lora_request", None)) is not None:
        found.append(("lora", adapter.lora_name, adapter.lora_path))
    found += [("mm", f.identifier, 0) for f in getattr(request, "mm_features", None) or () if f.mm_position.offset == 0]
    for name in ("cache_salt", "prompt_embeds", "news"):  # The last one is of a vLLM that is to come.
        if getattr(request, name, None) is not None:
            found.append((name,))
    return tuple(found) or None, 0


class Config:
    """A model's configuration."""

    model_type = "double"

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": self.model_type}


class Tensor:
    """What is used of torch's, over numpy."""

    def __init__(self, array: npt.NDArray[Any], device: str = "cpu") -> None:
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, f"torch.{array.dtype}"

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array), self.device)

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def element_size(self) -> int:
        return self.array.itemsize

    def numel(self) -> int:
        return self.array.size

    def __getitem__(self, index: int) -> Tensor:
        return Tensor(self.array[index], self.device)


class FullAttentionSpec:
    block_size = BLOCK
    page_size_bytes = BLOCK_BYTES


def config(role: str, **extra: Any) -> Any:
    """Make vLLM's configuration."""
    space = types.SimpleNamespace
    return space(
        kv_transfer_config=space(
            kv_role=role,
            kv_connector_extra_config={
                "socket": "agent.sock",
                "load_patience": 20,
                "save_patience": 20,
                "weights": "double",
                **extra,
            },
            kv_load_failure_policy="recompute",
        ),
        model_config=space(
            model="double", hf_config=Config(), dtype="torch.float32", quantization=None, max_model_len=4096
        ),
        cache_config=space(cache_dtype="auto"),
        load_config=space(load_format="auto", download_dir=None),
        parallel_config=space(tensor_parallel_size=1, rank=0, pipeline_parallel_size=1),
    )


def cache_config(blocks: int) -> Any:
    group = types.SimpleNamespace(kv_cache_spec=FullAttentionSpec())
    return types.SimpleNamespace(kv_cache_groups=[group], num_blocks=blocks)
