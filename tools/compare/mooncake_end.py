"""One end of transfers by Mooncake's TransferEngine over TCP, told by lines of JSON as tools/compare/peer is."""

from __future__ import annotations

import ctypes
import json
import mmap
import random
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

from mooncake.engine import TransferEngine

if TYPE_CHECKING:
    from collections.abc import Callable

# The memory of each end, as tools/compare/peer has it.
TOTAL = 256 << 20

# The most chunks of one batch: its queue of TCP refuses 4,096.
BATCH = 1024


class End:
    """A process's engine, and memory that is registered with it."""

    def __init__(self) -> None:
        """Register all memory, written once."""
        self.memory = mmap.mmap(-1, TOTAL)
        for at in range(0, TOTAL, mmap.PAGESIZE):
            self.memory[at] = 1
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") or self.engine.register_memory(
            self.base, TOTAL
        ):
            raise RuntimeError("Mooncake's engine cannot be made")

    def where(self) -> dict[str, Any]:
        """Say what an initiator must know."""
        return {"peer": f"127.0.0.1:{self.engine.get_rpc_port()}", "base": self.base}

    def write(self, to: dict[str, Any], size: int, chunks: int) -> None:
        """Write chunks, drawn from all there are."""
        source, sink = (random.randrange(TOTAL // size - chunks + 1) * size for _ in range(2))
        for begin in range(0, chunks, BATCH):
            places = [i * size for i in range(begin, min(begin + BATCH, chunks))]
            ours, theirs = [self.base + source + at for at in places], [to["base"] + sink + at for at in places]
            if len(places) == 1:
                failed = self.engine.transfer_sync_write(to["peer"], ours[0], theirs[0], size)
            else:
                failed = self.engine.batch_transfer_sync_write(to["peer"], ours, theirs, [size] * len(places))
            if failed:
                raise RuntimeError(f"Mooncake's write failed: {failed}")


def cpu() -> float:
    """Say what this process used so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serve(do: Callable[[dict[str, int]], list[int]]) -> None:
    """Do what each line says."""
    for line in sys.stdin:
        work = json.loads(line)
        before = cpu()
        if not work["moves"]:
            time.sleep(work["pause_us"] / 1e6)
        times = do(work)
        print(json.dumps({"ns": times, "cpu_us": round((cpu() - before) * 1e6)}), flush=True)


def main(role: str, setup: dict[str, Any], where: str = "") -> None:
    """Be a target or an initiator."""
    end = End()
    if role == "target":
        print(json.dumps(end.where()), flush=True)
        serve(lambda _: [])
        return
    to = json.loads(where)
    print("{}", flush=True)

    def moves(work: dict[str, int]) -> list[int]:
        times = []
        for _ in range(work["moves"]):
            time.sleep(work["pause_us"] / 1e6)
            begin = time.perf_counter_ns()
            end.write(to, setup["bytes"], work["chunks"])
            times.append(time.perf_counter_ns() - begin)
        return times

    serve(moves)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])
