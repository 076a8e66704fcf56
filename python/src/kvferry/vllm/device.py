"""Copies between pages and an engine's KV cache in the memory of a device, by torch.

Blocks are put together on the device, so that a page is one copy: between device and host, or within an NPU where the
pool is memory of it (kvferry.npu). Copies run on streams of
their own, behind all that the engine's stream was given before; the engine's stream waits for none of them. The calling
thread waits for its copy: who is told that it is done need not know of streams.
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

# Copies at once: two fill the bus. Each takes a page or two of the device's memory, which the engine has nearly all of.
_STAGES = 2


class CopyStage:
    """A stream, for one copy at a time."""

    def __init__(self, torch: Any, device: Any) -> None:
        """Make the stream."""
        self._torch, self._device = torch, device
        self._streams = torch.get_device_module(device)
        self.stream = self._streams.Stream(device)

    def allocate_bytes(self, *shape: int) -> Any:
        """Give memory of the device for so many bytes, which the stream's next copies may have again."""
        return self._torch.empty(shape, dtype=self._torch.uint8, device=self._device)

    def block_indices(self, blocks: Sequence[int]) -> Any:
        """Say on the device which blocks."""
        return self._torch.tensor(list(blocks), dtype=self._torch.int64, device=self._device)

    @property
    def stream_handle(self) -> int:
        """What AscendCL calls the stream; torch_npu has it as npu_stream."""
        return int(self.stream.npu_stream)

    def synchronize(self) -> None:
        """Wait until the stream has done all that it was given."""
        event = self._streams.Event()
        event.record(self.stream)
        event.synchronize()


class DeviceCopier:
    """Copies blocks of one rank, on its device."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        """Take the tensors of the layers: blocks first, each without gaps."""
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
        """Have later copies wait for what the engine's stream was given up to now. The engine's thread calls it."""
        event = self._streams.Event()
        event.record(self._streams.current_stream(self._device))
        self._computed_event = event

    def gather(self, blocks: Sequence[int], page: Bytes | DeviceBytes, stripes: int) -> None:
        """Copy blocks, in all layers, to the beginning of a page."""
        with _memory_in_use(page), self._stage() as stage:
            places = stage.block_indices(blocks)
            layers = stage.allocate_bytes(len(self._rows), len(blocks), self._row_bytes)
            for layer, row in enumerate(self._rows):
                self._torch.index_select(row, 0, places, out=layers[layer])
            striped = layers.view(len(self._rows), stripes, -1).transpose(0, 1).contiguous().view(-1)
            self._copy_to_page(page, striped, stage)

    def scatter(self, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int], stripes: int) -> None:
        """Copy from a page that has all layers of a chunk, without its first blocks, to blocks."""
        with _memory_in_use(page), self._stage() as stage:
            places = stage.block_indices(blocks)
            striped = stage.allocate_bytes(stripes, len(self._rows), len(page) // (stripes * len(self._rows)))
            self._copy_from_page(striped.view(-1), page, stage)
            layers = striped.transpose(0, 1).reshape(len(self._rows), -1, self._row_bytes)
            for layer, row in enumerate(self._rows):
                row.index_copy_(0, places, layers[layer, skip : skip + len(blocks)])

    def gather_layer(self, layer: int, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy what one layer has of blocks to the beginning of a page."""
        with _memory_in_use(page), self._stage() as stage:
            found = self._rows[layer].index_select(0, stage.block_indices(blocks)).view(-1)
            self._copy_to_page(page, found, stage)

    def scatter_layer(self, layer: int, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy from a page that has one layer of a chunk."""
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
                stage.synchronize()  # Also for what failed half-way: its memory and its page are others' then.
            finally:
                self._stages.put(stage)

    def _copy_to_page(self, page: Bytes | DeviceBytes, source: Any, stage: CopyStage) -> None:
        """Have the stream copy bytes of the device to the beginning of a page."""
        size = source.numel()
        if isinstance(page, DeviceBytes):
            page.enqueue_from(source.data_ptr(), size, stage.stream_handle, on_device=True)
        else:
            self._host_tensor(page, size).copy_(source, non_blocking=True)

    def _copy_from_page(self, target: Any, page: Bytes | DeviceBytes, stage: CopyStage) -> None:
        """Have the stream copy the beginning of a page to the device."""
        size = target.numel()
        if isinstance(page, DeviceBytes):
            page.enqueue_to(target.data_ptr(), size, stage.stream_handle, on_device=True)
        else:
            target.copy_(self._host_tensor(page, size), non_blocking=True)

    def _host_tensor(self, page: Bytes, size: int) -> Any:
        # By address: torch has no tensors that are only to be read, and says so of what a get gave.
        memory = (ctypes.c_uint8 * size).from_address(page[:size].ctypes.data)
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)


def _memory_in_use(page: Bytes | DeviceBytes) -> AbstractContextManager[Any]:
    """Keep a page's memory imported until the stream that copies it was waited for."""
    return page.pool.imported() if isinstance(page, DeviceBytes) else nullcontext()


def _byte_rows(torch: Any, tensor: Any) -> Any:
    """View a tensor's memory as bytes, a row for each block."""
    size = tensor.element_size()
    width, stride = tensor[0].numel() * size, tensor.stride()[0] * size
    memory = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return memory.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (tensor.shape[0], width), (stride, 1))
