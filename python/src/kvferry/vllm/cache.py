"""The KV cache of an engine, as bytes of blocks.

A page of the agent's pool contains a chunk, or one layer of a chunk. A layer of a chunk consists of the chunk's blocks
in order. A page with all layers contains the first halves of all layers, in order, and then the second halves, because
an agent assembles it in this way if the other engine sends single layers. With one latent head (MLA) there are no
halves. A part of a chunk has fewer blocks and no gaps. The bytes within a block are opaque: all of them are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from kvferry.errors import invalid_error
from kvferry.npu import DeviceBytes
from kvferry.vllm import block_memory
from kvferry.vllm.device import DeviceCopier
from kvferry.vllm.host import HostCopier
from kvferry.vllm.settings import Engine, unsupported_error

Bytes = npt.NDArray[np.uint8]


class Cache:
    """The layers of one rank."""

    def __init__(self, layers: Mapping[str, Any], engine: Engine, machine: str) -> None:
        """Check the tensors that vLLM registers, and refuse a cache that does not consist of plain blocks.

        Args:
            layers: the tensors by the names of the layers.
            engine: the engine's configuration.
            machine: what else determines the meaning of the bytes.
        """
        if not layers:
            raise unsupported_error("kv_caches", "none", "a tensor for each layer", "use a model with attention")
        self._tensors = dict(layers)  # This keeps their memory alive.
        layer_tensors: list[Any] = []
        # For each layer that computes its own KV, all tensors in its memory.
        self._layer_tensors: list[list[Any]] = []
        # The index of each layer that computes its own KV.
        self.layer_indices: dict[str, int] = {}
        layout, seen = [f"{machine} blocks of {engine.block_tokens}"], set()
        device = next(iter(self._tensors.values())).device
        for name, tensor in self._tensors.items():
            self._check_tensor(name, tensor, engine, str(device))
            dtype = str(tensor.dtype)
            layout.append(f"{name} {list(tensor.shape[1:])} {list(tensor.stride()[1:])} {dtype}")
            if tensor.data_ptr() not in seen:  # A layer may use the KV that another layer computes.
                seen.add(tensor.data_ptr())
                self.layer_indices[name] = len(layer_tensors)
                layer_tensors.append(tensor)
                self._layer_tensors.append([])
            index = next(i for i, first in enumerate(layer_tensors) if first.data_ptr() == tensor.data_ptr())
            self._layer_tensors[index].append(tensor)
        self.dtype = str(next(iter(self._tensors.values())).dtype)
        self.layout = "; ".join(layout)
        # The number of parts of a layer's bytes in pages of all layers, as configured at the agent.
        self.stripes = 1
        # Number of layers that compute their own KV; bytes of a block in one layer and in all layers.
        self.layer_count = len(layer_tensors)
        self.layer_bytes = engine.block_bytes
        self.block_bytes = self.layer_count * self.layer_bytes
        self._copier = (
            HostCopier(layer_tensors) if device_kind(layer_tensors[0]) == "cpu" else DeviceCopier(layer_tensors)
        )

    @staticmethod
    def _check_tensor(name: str, tensor: Any, engine: Engine, device: str) -> None:
        if str(tensor.device) != device:
            raise unsupported_error(f"device of {name}", str(tensor.device), device, "use one device per rank")
        shape = list(tensor.shape)
        if len(shape) < 2 or shape[0] != engine.blocks:
            raise unsupported_error(
                f"shape of {name}",
                str(shape),
                f"{engine.blocks} blocks as the first dimension",
                "choose an attention backend with one tensor per layer and blocks as its first dimension",
            )
        block = tensor[0]
        if not _is_dense(block):
            raise unsupported_error(
                f"strides of {name}",
                str(list(tensor.stride())),
                "a block without gaps",
                "choose another VLLM_KV_CACHE_LAYOUT",
            )
        size = block.numel() * tensor.element_size()
        if size != engine.block_bytes:
            raise unsupported_error(
                f"bytes of a block of {name}",
                str(size),
                f"{engine.block_bytes}, as in the cache's specification",
                "choose another attention backend: this one pads or splits its blocks",
            )

    # ---- location ----

    def immovable_reason(self) -> str:
        """Return why the cache cannot be moved to other memory; empty if it can."""
        for tensors in self._layer_tensors:
            tensor = tensors[0]
            if device_kind(tensor) != "cpu":
                return f"it is in memory of {tensor.device}, which agents do not register"
            distance = tensor.stride()[0] * tensor.element_size()
            if distance != self.layer_bytes:
                return f"the blocks of a layer are {distance} bytes apart, and have {self.layer_bytes} bytes"
        return ""

    def move_to(self, regions: Sequence[Bytes] | None) -> None:
        """Move each layer to one of the regions, which have a row for each block; None means new memory.

        The content moves with the cache, except to new memory.
        """
        for layer, tensors in enumerate(self._layer_tensors):
            blocks = tensors[0].shape[0]
            if regions is None:
                memory = np.empty((blocks, self.layer_bytes), np.uint8)
            else:
                memory = regions[layer][:blocks]
                memory[:] = HostCopier(tensors[:1]).rows(0)
            for tensor in tensors:
                block_memory.set_memory(tensor, memory.reshape(-1))
        self._copier = HostCopier([tensors[0] for tensors in self._layer_tensors])

    # ---- copies ----

    def mark_computed(self) -> None:
        """Let later copies wait for everything that the engine has submitted so far. The engine's thread calls it."""
        self._copier.mark_computed()

    def gather(self, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy blocks of all layers to the beginning of a page."""
        with self._page_to_fill(page, len(blocks) * self.block_bytes) as target:
            self._copier.gather(blocks, target, self.stripes)

    def scatter(self, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy a page with all layers of a chunk to blocks, without the first blocks of the chunk."""
        self._copier.scatter(self._page_to_read(page), skip, blocks, self.stripes)

    def gather_layer(self, layer: int, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy blocks of one layer to the beginning of a page."""
        with self._page_to_fill(page, len(blocks) * self.layer_bytes) as target:
            self._copier.gather_layer(layer, blocks, target)

    def scatter_layer(self, layer: int, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy a page with one layer of a chunk to blocks."""
        self._copier.scatter_layer(layer, self._page_to_read(page), skip, blocks)

    @contextmanager
    def _page_to_fill(self, page: Bytes | DeviceBytes, size: int) -> Iterator[Any]:
        """Yield the memory to fill: the page, or a buffer that is then copied to the page on an NPU."""
        if isinstance(self._copier, HostCopier) and isinstance(page, DeviceBytes):
            content = np.empty(size, np.uint8)
            yield content
            page.write(content)
        else:
            yield page

    def _page_to_read(self, page: Bytes | DeviceBytes) -> Any:
        """Return the memory to read: the page, or a copy of the page on an NPU."""
        return page.read() if isinstance(self._copier, HostCopier) and isinstance(page, DeviceBytes) else page

    def check_size(self, size: int, blocks: int, bytes_per_block: int = 0) -> None:
        """Refuse pages with a wrong size: the agent was restarted with another configuration, or another engine sent
        them.

        Args:
            size: bytes of the page.
            blocks: expected number of blocks.
            bytes_per_block: bytes of one block; 0 means all layers.
        """
        expected = blocks * (bytes_per_block or self.block_bytes)
        if size != expected:
            raise invalid_error(
                "copy", "page", f"{size} bytes", f"{expected}", "start the agent with its former configuration file"
            )


def device_kind(tensor: Any) -> str:
    """Return the kind of a tensor's device; cpu means host memory."""
    return str(tensor.device).split(":", maxsplit=1)[0]


def _is_dense(block: Any) -> bool:
    """Report whether a block has no gaps, in any order of its dimensions."""
    expected = 1
    for stride, count in sorted(zip(block.stride(), block.shape, strict=True)):
        if count > 1 and stride != expected:
            return False
        expected *= count
    return True


def blocks_per_chunk(cache: Cache, engine: Engine, page_bytes: int, shape: Sequence[int], layers: int) -> int:
    """Return how many blocks a page of the agent contains; refuse pages that do not contain whole blocks.

    Args:
        cache: the engine's cache.
        engine: the engine's configuration.
        page_bytes: bytes of a page.
        shape: the shape of a chunk, as the agent describes it.
        layers: the number of pages of a chunk, one for each layer; 0 if one page has all layers.
    """
    if layers not in (0, cache.layer_count):
        raise unsupported_error(
            "layers of the agent",
            str(layers),
            f"{cache.layer_count}, as at a rank of the engine",
            "correct layout.num_layers of the agent's file",
        )
    bytes_per_block = cache.layer_bytes if layers else cache.block_bytes
    layer_text = "one layer" if layers else "all layers"
    blocks, rest = divmod(page_bytes, bytes_per_block)
    if rest or not blocks:
        token, rest = divmod(bytes_per_block, engine.block_tokens)
        token_text = f"{token} bytes of a token" if not rest else f"{bytes_per_block} bytes of a block"
        raise unsupported_error(
            "page of the agent",
            f"{page_bytes} bytes, a chunk of shape {list(shape)}",
            f"a multiple of {bytes_per_block} bytes, a block of {engine.block_tokens} tokens in {layer_text}",
            f"correct layout and chunk_size of the agent's file: the engine has {token_text} at a rank",
        )
    tokens = blocks * engine.block_tokens
    if tokens not in shape:
        raise unsupported_error(
            "chunk_size of the agent",
            f"a chunk of shape {list(shape)}",
            f"{tokens} tokens, which need {page_bytes} bytes in this engine",
            "correct layout and chunk_size of the agent's file",
        )
    return blocks
