"""What calls of the Python client take, with an agent at each end."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import tempfile
import time

import kvferry

TURNS = 400

COMMON = """enable_pd: true
transfer_channel: shm
pd_buffer_size: 16MiB
pd_buffer_device: cpu
chunk_size: 64
extra_config:
  kvferry:
    layout: {{num_layers: 1, num_kv_heads: 1, head_size: 16, dtype: bfloat16}}
    poll.us: {poll}
    log.level: error
"""
SENDER = "pd_role: sender\npd_skip_proxy_notification: true\n"
RECEIVER = "pd_role: receiver\npd_peer_host: 127.0.0.1\npd_peer_init_port: [{}]\npd_peer_alloc_port: [{}]\n"


def _free() -> list[int]:
    """Find two ports that nobody has now."""
    with socket.socket() as one, socket.socket() as other:
        for made in (one, other):
            made.bind(("127.0.0.1", 0))
        return [made.getsockname()[1] for made in (one, other)]


def python_calls(command: str, poll: int) -> dict[str, float]:
    """Reserve a page of 4 KiB, put it and get it, as one process that is both engines; give medians in µs."""
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        folder.chmod(0o700)
        agents, ports = [], _free()
        for name, role in (("prefill", SENDER), ("decode", RECEIVER.format(*ports))):
            file = folder / f"{name}.yaml"
            file.write_text(role + COMMON.format(poll=poll))
            agents.append(
                subprocess.Popen(  # noqa: S603
                    [command, "agent", "--config", str(file), "--socket", str(folder / f"{name}.sock")],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            if agents[-1].stdout is not None:
                agents[-1].stdout.readline()  # It serves.
        try:
            return _measured(folder, kvferry.Peer("127.0.0.1", *ports))
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait(10)


def _measured(folder: pathlib.Path, peer: kvferry.Peer) -> dict[str, float]:
    times: list[float] = []
    with (
        kvferry.connect(str(folder / "prefill.sock")) as sender,
        kvferry.connect(str(folder / "decode.sock")) as receiver,
    ):
        used = time.process_time()
        for turn in range(TURNS + 50):
            key = f"compare@1@0@{turn + 1:x}@bfloat16"
            begin = time.perf_counter()
            pages = sender.reserve(1, timeout=1.0)
            sender.put(peer=peer, request=f"r{turn}", keys=[key], pages=pages, last_batch=True)
            got = receiver.get([key], request=f"r{turn}", timeout=5.0)
            times.append((time.perf_counter() - begin) * 1e6)
            got.release()
            pages.release()
        used = time.process_time() - used
    times = sorted(times[50:])
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "cpu_us": used * 1e6 / (TURNS + 50)}
