"""A test double of the classes of vLLM and torch that the connector uses.

vllm_engine has the scheduler and the worker that call it.
"""

from __future__ import annotations

import enum
import os
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import kvferry.vllm
from kvferry.vllm import versions

if TYPE_CHECKING:
    import numpy.typing as npt
    import pytest

BLOCK, HEADS, HEAD, LAYERS = 4, 1, 8, 2
# Bytes of a block in one layer.
BLOCK_BYTES = BLOCK * HEADS * 2 * HEAD * 4
# Blocks of a chunk, which fills a page of an agent's pool.
CHUNK = 4
PAGE_BYTES = CHUNK * LAYERS * BLOCK_BYTES
SHAPE = (2, LAYERS, CHUNK * BLOCK, HEADS * HEAD)

TIMEOUT = 20.0


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
    """The members of vLLM's KVConnectorBase_V1 that are used."""

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


# The members that the connector implements itself.
for member in versions.REQUIRED_MEMBERS["KVConnectorBase_V1"]:
    if not hasattr(Base, member):
        setattr(Base, member, None)


@dataclass
class KVConnectorOutput:
    finished_recving: Any = None
    kv_connector_worker_meta: Any = None


@dataclass
class SchedulerOutput:
    has_sync_kv_loads: Any = None
    kv_connector_block_state: Any = None
    num_scheduled_tokens: Any = None
    preempted_req_ids: Any = None


@dataclass
class Stats:
    data: dict[str, Any] = field(default_factory=dict)


class PromMetrics:
    def __init__(self, _: Any, types_: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        self._counter_cls = types_["counter"]


class Factory:
    """vLLM's KVConnectorFactory."""

    registered: ClassVar[dict[str, tuple[str, str]]] = {}

    @classmethod
    def register_connector(cls, name: str, module_path: str, class_name: str) -> None:
        if name in cls.registered:
            raise ValueError(f"Connector '{name}' is already registered.")
        cls.registered[name] = (module_path, class_name)


def install(patch: pytest.MonkeyPatch) -> None:
    """Let imports of vLLM and torch find the doubles."""
    v1 = "vllm.distributed.kv_transfer.kv_connector.v1"
    contents: dict[str, dict[str, Any]] = {
        f"{v1}.base": {
            "KVConnectorBase_V1": Base,
            "KVConnectorMetadata": object,
            "KVConnectorRole": Role,
            "KVConnectorWorkerMetadata": object,
        },
        f"{v1}.metrics": {"KVConnectorStats": Stats, "KVConnectorPromMetrics": PromMetrics},
        "vllm.distributed.kv_transfer.kv_connector.factory": {"KVConnectorFactory": Factory},
        "vllm.v1.core.sched.output": {"SchedulerOutput": SchedulerOutput},
        "vllm.v1.outputs": {"KVConnectorOutput": KVConnectorOutput},
        "vllm.v1.core.kv_cache_utils": {"generate_block_hash_extra_keys": extra_keys},
        "vllm.lora.utils": {"get_adapter_absolute_path": os.path.abspath},
        "vllm": {"__version__": "0.32.0"},
    }
    made: dict[str, types.ModuleType] = {}
    for path, content in contents.items():
        parts = path.split(".")
        for name in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
            made.setdefault(name, types.ModuleType(name))
            patch.setitem(sys.modules, name, made[name])
        vars(made[path]).update(content)
    Factory.registered = {}
    torch = types.ModuleType("torch")
    cpu = types.SimpleNamespace(get_cpu_capability=lambda: "DOUBLE")
    torch.__dict__.update(backends=types.SimpleNamespace(cpu=cpu), cpu=types.SimpleNamespace())
    patch.setitem(sys.modules, "torch", torch)
    patch.delitem(sys.modules, "kvferry.vllm.connector", raising=False)
    patch.delattr(kvferry.vllm, "connector", raising=False)


def extra_keys(request: Any, begin: int, end: int, _: int) -> tuple[tuple[Any, ...] | None, int]:
    """vLLM's function: the inputs besides tokens in the hash of a first block."""
    assert (begin, end) == (0, 1)
    found: list[Any] = []
    if (adapter := getattr(request, "lora_request", None)) is not None:
        found.append(("lora", adapter.lora_name, adapter.lora_path))
    found += [("mm", f.identifier, 0) for f in getattr(request, "mm_features", None) or () if f.mm_position.offset == 0]
    for name in ("cache_salt", "prompt_embeds", "news"):  # The last one belongs to a future vLLM.
        if getattr(request, name, None) is not None:
            found.append((name,))
    return tuple(found) or None, 0


class Config:
    """The configuration of a model."""

    model_type = "double"

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": self.model_type}


class Tensor:
    """The members of a torch tensor that are used, over numpy."""

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
    """Return vLLM's configuration."""
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
