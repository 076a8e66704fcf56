"""An engine's KV cache, as bytes of blocks.

A page of the agent's pool has a chunk, or one layer of it. A layer has the chunk's blocks, one after the other. In a
page of all layers are the first halves of what each layer has, in the layers' order, and then the second ones: an agent
puts it together so where the other end has layers. With one latent head (mla) there are no halves. A part of a chunk
has fewer blocks, and no gaps. What the bytes of a block mean is the engine's own matter: all of them are copied.
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
        """Look at the tensors that vLLM registers, and refuse what is no plain cache of blocks.

        Machine says what else the meaning of bytes depends on.
        """
        if not layers:
            raise unsupported_error("kv_caches", "none", "a tensor for each layer", "use a model with attention")
        self._tensors = dict(layers)  # Their memory is used for as long as this is.
        layer_tensors: list[Any] = []
        # All tensors that have the memory of one of those that compute their own.
        self._layer_tensors: list[list[Any]] = []
        # Which of them a layer has that computes its own.
        self.layer_indices: dict[str, int] = {}
        layout, seen = [f"{machine} blocks of {engine.block_tokens}"], set()
        device = next(iter(self._tensors.values())).device
        for name, tensor in self._tensors.items():
            self._check_tensor(name, tensor, engine, str(device))
            dtype = str(tensor.dtype)
            layout.append(f"{name} {list(tensor.shape[1:])} {list(tensor.stride()[1:])} {dtype}")
            if tensor.data_ptr() not in seen:  # Layers may share what one of them computes.
                seen.add(tensor.data_ptr())
                self.layer_indices[name] = len(layer_tensors)
                layer_tensors.append(tensor)
                self._layer_tensors.append([])
            index = next(i for i, first in enumerate(layer_tensors) if first.data_ptr() == tensor.data_ptr())
            self._layer_tensors[index].append(tensor)
        self.dtype = str(next(iter(self._tensors.values())).dtype)
        self.layout = "; ".join(layout)
        # Parts of what a layer has, by which pages of all layers are put together: the agent knows.
        self.stripes = 1
        # How many layers compute KV of their own; bytes that one of them has of a block, and that all have.
        self.layer_count = len(layer_tensors)
        self.layer_bytes = engine.block_bytes
        self.block_bytes = self.layer_count * self.layer_bytes
        self._copier = (
            HostCopier(layer_tensors) if device_kind(layer_tensors[0]) == "cpu" else DeviceCopier(layer_tensors)
        )

    @staticmethod
    def _check_tensor(name: str, tensor: Any, engine: Engine, device: str) -> None:
        if str(tensor.device) != device:
            raise unsupported_error(f"device of {name}", str(tensor.device), device, "give a rank one device")
        shape = list(tensor.shape)
        if len(shape) < 2 or shape[0] != engine.blocks:
            raise unsupported_error(
                f"shape of {name}",
                str(shape),
                f"{engine.blocks} blocks first",
                "choose an attention backend whose cache is one tensor a layer, blocks first",
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
                f"{engine.block_bytes}, as the cache's specification has it",
                "choose another attention backend: this one pads its blocks, or splits them",
            )

    # ---- where it is ----

    def immovable_reason(self) -> str:
        """Say why the cache cannot be in other memory; nothing if it can."""
        for tensors in self._layer_tensors:
            tensor = tensors[0]
            if device_kind(tensor) != "cpu":
                return f"it is memory of {tensor.device}, which no agent registers"
            distance = tensor.stride()[0] * tensor.element_size()
            if distance != self.layer_bytes:
                return f"blocks of a layer are {distance} bytes apart, and have {self.layer_bytes}"
        return ""

    def move_to(self, regions: Sequence[Bytes] | None) -> None:
        """Have each layer in one of these, which has a row for each block; without them in memory of its own.

        What the cache has comes along, but to memory of its own.
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
        """Have later copies wait for what the engine was given to compute up to now. Its thread calls it."""
        self._copier.mark_computed()

    def gather(self, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy blocks, in all layers, to the beginning of a page."""
        with self._page_to_fill(page, len(blocks) * self.block_bytes) as target:
            self._copier.gather(blocks, target, self.stripes)

    def scatter(self, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy from a page that has all layers of a chunk, without its first blocks, to blocks."""
        self._copier.scatter(self._page_to_read(page), skip, blocks, self.stripes)

    def gather_layer(self, layer: int, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy what one layer has of blocks to the beginning of a page."""
        with self._page_to_fill(page, len(blocks) * self.layer_bytes) as target:
            self._copier.gather_layer(layer, blocks, target)

    def scatter_layer(self, layer: int, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy from a page that has one layer of a chunk."""
        self._copier.scatter_layer(layer, self._page_to_read(page), skip, blocks)

    @contextmanager
    def _page_to_fill(self, page: Bytes | DeviceBytes, size: int) -> Iterator[Any]:
        """Give what is to be filled: the page, or for an engine on the host what is copied to the NPU that has it."""
        if isinstance(self._copier, HostCopier) and isinstance(page, DeviceBytes):
            content = np.empty(size, np.uint8)
            yield content
            page.write(content)
        else:
            yield page

    def _page_to_read(self, page: Bytes | DeviceBytes) -> Any:
        """Give what is to be read, likewise."""
        return page.read() if isinstance(self._copier, HostCopier) and isinstance(page, DeviceBytes) else page

    def check_size(self, size: int, blocks: int, bytes_per_block: int = 0) -> None:
        """Refuse pages of an agent that was started anew with another file, and chunks that somebody else made.

        Of a block they have so many bytes; 0: those of all layers.
        """
        expected = blocks * (bytes_per_block or self.block_bytes)
        if size != expected:
            raise invalid_error(
                "copy", "page", f"{size} bytes", f"{expected}", "start the agent with the file that it had"
            )


def device_kind(tensor: Any) -> str:
    """Say where a tensor is; cpu: in host memory."""
    return str(tensor.device).split(":", maxsplit=1)[0]


def _is_dense(block: Any) -> bool:
    """Say whether a block has no gaps, in whatever order its bytes are."""
    expected = 1
    for stride, count in sorted(zip(block.stride(), block.shape, strict=True)):
        if count > 1 and stride != expected:
            return False
        expected *= count
    return True


def blocks_per_chunk(cache: Cache, engine: Engine, page_bytes: int, shape: Sequence[int], layers: int) -> int:
    """Say how many blocks a page of the agent has; refuse pages that do not have whole ones.

    Layers is how many pages a chunk has, one for each layer; 0: one has all layers.
    """
    if layers not in (0, cache.layer_count):
        raise unsupported_error(
            "layers of the agent",
            str(layers),
            f"{cache.layer_count}, as the engine has at a rank",
            "mend layout.num_layers of the agent's file",
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
            f"mend layout and chunk_size of the agent's file: the engine has {token_text} at a rank",
        )
    tokens = blocks * engine.block_tokens
    if tokens not in shape:
        raise unsupported_error(
            "chunk_size of the agent",
            f"a chunk of shape {list(shape)}",
            f"{tokens} tokens, which have the page's {page_bytes} bytes in this engine",
            "mend layout and chunk_size of the agent's file",
        )
    return blocks
