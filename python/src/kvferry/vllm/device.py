"""Copies between pages and a KV cache in device memory, with torch.

Blocks are assembled on the device, so that a page is one copy: between device and host, or within an NPU whose memory
contains the pool (kvferry.npu). Copies run on their own streams, after everything that was submitted to the engine's
stream before; the engine's stream does not wait for them. The calling thread waits for its copy, so that callers need
not know about streams.
"""

from __future__ import annotations

import ctypes
import queue
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from kvferry.npu import DeviceBytes
from kvferry.pool import torch_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from kvferry.vllm.cache import Bytes

# Concurrent copies: two saturate the bus. Each needs one or two pages of device memory, of which the engine leaves
# little.
_STAGES = 2


class CopyStage:
    """A stream, for one copy at a time."""

    def __init__(self, torch: Any, device: Any) -> None:
        """Create the stream."""
        self._torch, self._device = torch, device
        self._streams = torch.get_device_module(device)
        self.stream = self._streams.Stream(device)

    def allocate_bytes(self, *shape: int) -> Any:
        """Allocate device memory, which later copies of the stream may reuse."""
        return self._torch.empty(shape, dtype=self._torch.uint8, device=self._device)

    def block_indices(self, blocks: Sequence[int]) -> Any:
        """Return block numbers as a tensor on the device."""
        return self._torch.tensor(list(blocks), dtype=self._torch.int64, device=self._device)

    @property
    def stream_handle(self) -> int:
        """The handle of the stream in AscendCL; torch_npu provides it as npu_stream."""
        return int(self.stream.npu_stream)

    def synchronize(self) -> None:
        """Wait until the stream has completed its work."""
        event = self._streams.Event()
        event.record(self.stream)
        event.synchronize()


class DeviceCopier:
    """Copies blocks of one rank, on its device."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        """Use the tensors of the layers, which have blocks as their first dimension and no gaps within blocks."""
        torch = torch_module()
        self._torch = torch
        self._device = tensors[0].device
        self._streams = torch.get_device_module(self._device)
        self._rows = [_byte_rows(torch, tensor) for tensor in tensors]
        self._stages: queue.SimpleQueue[CopyStage] = queue.SimpleQueue()
        for _ in range(_STAGES):
            self._stages.put(CopyStage(torch, self._device))
        self.mark_computed()

    def mark_computed(self) -> None:
        """Let later copies wait for everything in the engine's stream so far. The engine's thread calls it."""
        event = self._streams.Event()
        event.record(self._streams.current_stream(self._device))
        self._computed_event = event

    def gather(self, blocks: Sequence[int], page: Bytes | DeviceBytes, stripes: int) -> None:
        """Copy blocks of all layers to the beginning of a page."""
        with _memory_in_use(page), self._stage() as stage:
            places = stage.block_indices(blocks)
            layers = stage.allocate_bytes(len(self._rows), len(blocks), self._row_bytes)
            for layer, row in enumerate(self._rows):
                self._torch.index_select(row, 0, places, out=layers[layer])
            striped = layers.view(len(self._rows), stripes, -1).transpose(0, 1).contiguous().view(-1)
            self._copy_to_page(page, striped, stage)

    def scatter(self, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int], stripes: int) -> None:
        """Copy a page with all layers of a chunk to blocks, without the first blocks of the chunk."""
        with _memory_in_use(page), self._stage() as stage:
            places = stage.block_indices(blocks)
            striped = stage.allocate_bytes(stripes, len(self._rows), len(page) // (stripes * len(self._rows)))
            self._copy_from_page(striped.view(-1), page, stage)
            layers = striped.transpose(0, 1).reshape(len(self._rows), -1, self._row_bytes)
            for layer, row in enumerate(self._rows):
                row.index_copy_(0, places, layers[layer, skip : skip + len(blocks)])

    def gather_layer(self, layer: int, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy blocks of one layer to the beginning of a page."""
        with _memory_in_use(page), self._stage() as stage:
            found = self._rows[layer].index_select(0, stage.block_indices(blocks)).view(-1)
            self._copy_to_page(page, found, stage)

    def scatter_layer(self, layer: int, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy a page with one layer of a chunk to blocks."""
        with _memory_in_use(page), self._stage() as stage:
            found = stage.allocate_bytes(len(blocks), self._row_bytes)
            self._copy_from_page(found.view(-1), page[skip * self._row_bytes :], stage)
            self._rows[layer].index_copy_(0, stage.block_indices(blocks), found)

    @property
    def _row_bytes(self) -> int:
        return int(self._rows[0].shape[1])

    @contextmanager
    def _stage(self) -> Iterator[CopyStage]:
        stage = self._stages.get()
        try:
            with self._streams.stream(stage.stream):
                stage.stream.wait_event(self._computed_event)
                yield stage
        finally:
            try:
                stage.synchronize()  # After a failure, too, because the memory and the page are reused then.
            finally:
                self._stages.put(stage)

    def _copy_to_page(self, page: Bytes | DeviceBytes, source: Any, stage: CopyStage) -> None:
        """Submit a copy from device memory to the beginning of a page."""
        size = source.numel()
        if isinstance(page, DeviceBytes):
            page.enqueue_from(source.data_ptr(), size, stage.stream_handle, on_device=True)
        else:
            self._host_tensor(page, size).copy_(source, non_blocking=True)

    def _copy_from_page(self, target: Any, page: Bytes | DeviceBytes, stage: CopyStage) -> None:
        """Submit a copy from the beginning of a page to device memory."""
        size = target.numel()
        if isinstance(page, DeviceBytes):
            page.enqueue_to(target.data_ptr(), size, stage.stream_handle, on_device=True)
        else:
            target.copy_(self._host_tensor(page, size), non_blocking=True)

    def _host_tensor(self, page: Bytes, size: int) -> Any:
        # By address, because torch warns of read-only arrays, which pages of a get are.
        memory = (ctypes.c_uint8 * size).from_address(page[:size].ctypes.data)
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)


def _memory_in_use(page: Bytes | DeviceBytes) -> AbstractContextManager[Any]:
    """Keep the memory of a page imported until the stream is synchronized."""
    return page.pool.imported() if isinstance(page, DeviceBytes) else nullcontext()


def _byte_rows(torch: Any, tensor: Any) -> Any:
    """Return a tensor's memory as bytes, with one row for each block."""
    size = tensor.element_size()
    width, stride = tensor[0].numel() * size, tensor.stride()[0] * size
    memory = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return memory.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (tensor.shape[0], width), (stride, 1))
