"""Tests an installed wheel: runs two agents with its command, and moves pages between them.

usage: try_wheel.py      with the Python that has the wheel, and nothing of this repository on its path

Exit code: 0 if all checks pass.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import socket
import subprocess
import sys
import tempfile
from typing import Any

import kvferry
from kvferry import agent

# Keys and values of 32 tokens, in 4 layers of 2 heads of 64 elements of 2 bytes.
CHUNK = 2 * 32 * 4 * 2 * 64 * 2
CHUNKS = 8

FILE = """
enable_pd: true
pd_role: {role}
transfer_channel: {plane}
pd_buffer_size: 4MiB
pd_buffer_device: cpu
chunk_size: 32
{more}
extra_config:
  kvferry:
    layout: {{num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: bfloat16}}
"""
SENDER = "pd_skip_proxy_notification: true"
RECEIVER = "pd_peer_host: 127.0.0.1\npd_peer_init_port: {}\npd_peer_alloc_port: {}"

# How long any step may take, in seconds; long enough for slow machines.
PATIENCE = 120.0


class WrongError(Exception):
    """The wheel is wrong."""


def must(holds: bool, what: str) -> None:
    """Raise WrongError unless a condition holds."""
    if not holds:
        raise WrongError(what)


def installed() -> pathlib.Path:
    """Check that the package is installed, and return the path of its command."""
    package = pathlib.Path(kvferry.__file__).resolve().parent
    must(package.is_relative_to(pathlib.Path(sys.prefix).resolve()), f"kvferry is of {package}, not of {sys.prefix}")
    found = agent.find_binary()
    must(found == str(package / "bin" / "kvferry"), f"find gives {found}")
    return pathlib.Path(found)


def commands(binary: pathlib.Path) -> None:
    """Run the command in each way, and check that arguments and exit codes are passed on."""
    script = pathlib.Path(sys.executable).parent / "kvferry"
    for way in ([str(binary)], [str(script)], [sys.executable, "-I", "-m", "kvferry"]):
        for arguments, code in ((["version"], 0), (["version", "now"], 2), (["decode", "81a0"], 1)):
            done = subprocess.run([*way, *arguments], check=False, capture_output=True, text=True)  # noqa: S603
            must(done.returncode == code, f"{way} {arguments}: exit code {done.returncode}, {done.stderr}")
        said = subprocess.run([*way, "version"], check=True, capture_output=True, text=True).stdout  # noqa: S603
        must(said.startswith("kvferry "), f"{way}: {said}")


def plugin() -> None:
    """Check that vLLM would find the connector's entry point, and that it works without vLLM."""
    (entry,) = (e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "kvferry")
    entry.load()()


def licences(binary: pathlib.Path) -> int:
    """Check that each module of the command has its licence beside the metadata; return the number of modules."""
    kept = {str(path) for path in importlib.metadata.files("kvferry") or ()}
    folder = next(path.rsplit("/licenses/", 1)[0] for path in kept if path.endswith("/licenses/LICENSE"))
    modules = {
        line.split(b"\t")[1].decode().replace("/", "_")
        for line in binary.read_bytes().split(b"\n")
        if line.startswith(b"dep\t") and len(line) < 300
    }
    must(bool(modules), "the command does not say what it was made of")
    for module in ("go", *modules):
        there = [path for path in kept if path.startswith(f"{folder}/licenses/licenses/{module}/")]
        must(bool(there), f"no licence of {module}")
    return len(modules)


def libraries(process: subprocess.Popen[bytes], binary: pathlib.Path) -> list[str]:
    """Return the files of code in a process's memory: the command, and the C library."""
    maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
    files = {line.split()[5] for line in maps.splitlines() if len(line.split()) >= 6 and line.split()[5][0] == "/"}
    must(str(binary) in files, f"process {process.pid} runs another file than {binary}")
    others = sorted(f for f in files if f != str(binary) and not f.startswith(("/memfd:", "/dev/shm/")))  # noqa: S108
    unknown = [f for f in others if not f.rsplit("/", 1)[1].startswith(("libc.so", "libc-", "ld-"))]
    must(not unknown, f"the command loads {unknown}")
    return others


def pages(sender: agent.Agent, receiver: agent.Agent) -> None:
    """Move pages from one agent to the other, and compare all bytes."""
    keys = [f"model@1@0@{number:x}@bfloat16" for number in range(1, CHUNKS + 1)]
    texts = [bytes((number * 37 + i * i) % 251 for i in range(CHUNK)) for number in range(CHUNKS)]
    with kvferry.connect(sender.socket) as here, kvferry.connect(receiver.socket) as there:
        with here.reserve(CHUNKS, timeout=PATIENCE) as filled:
            for page, text in zip(filled, texts, strict=True):
                page.array()[:] = memoryview(text)
            peer = kvferry.Peer("127.0.0.1", receiver.init_port, receiver.alloc_port)
            here.put(peer=peer, request="r", keys=keys, pages=filled, last_batch=True, timeout=PATIENCE)
        with there.get(keys, request="r", timeout=PATIENCE) as came:
            must(len(came) == CHUNKS, f"{len(came)} of {CHUNKS} pages came: {came.shortfall}")
            for number, page in enumerate(came):
                must(page.array().tobytes() == texts[number], f"page {number} has other bytes")


def free_ports() -> list[int]:
    """Return two unused ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def tried() -> dict[str, Any]:
    """Run all checks."""
    binary = installed()
    commands(binary)
    plugin()
    loaded: list[str] = []
    for plane in ("auto", "tcp"):
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder, agents = pathlib.Path(name), []
            for role, more in (("sender", SENDER), ("receiver", RECEIVER.format(*free_ports()))):
                path = folder / f"{role}.yaml"
                path.write_text(FILE.format(role=role, plane=plane, more=more), encoding="utf-8")
                begun = agent.start(path, folder / f"{role}.sock", timeout=PATIENCE)
                agents.append(stack.enter_context(begun))
            loaded = libraries(agents[0].process, binary)
            pages(*agents)
            must([each.stop(PATIENCE) for each in agents] == [0, 0], "an agent did not end well")
    wheel = importlib.metadata.distribution("kvferry").read_text("WHEEL") or ""
    tag = next(line.split()[1] for line in wheel.splitlines() if line.startswith("Tag:"))
    must("manylinux" in tag or "musllinux" in tag, f"the wheel is of {tag}: auditwheel has not seen it")
    return {
        "wheel": tag,
        "python": platform.python_version(),
        "binary": str(binary.relative_to(sys.prefix)),
        "bytes": binary.stat().st_size,
        "loads": loaded,
        "licences": licences(binary),
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH"),
    }


if __name__ == "__main__":
    for what, value in tried().items():
        print(f"{what}: {value}")
