"""Plays an installed kvferry in a root of its own: services as the units start them, engines, clients, and an upgrade.

usage: play.py UPGRADE.deb VERSION      as root, in the root where the first package and the wheel are installed
       play.py --engine prefill|decode|share SOCKETS PORT

UPGRADE.deb is a package of a later build, VERSION what its command says. The engines are stand-ins: the KV of a chunk
is a function of the prompt up to its end, and the answer is a hash of the KV, so a wrong byte gives a wrong answer.
The exit code is 1 if an answer was wrong, or a request failed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import http.client
import http.server
import itertools
import json
import os
import pathlib
import pwd
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import kvferry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNITS = pathlib.Path("/usr/lib/systemd/system")
EXAMPLES = pathlib.Path("/usr/share/doc/kvferry/examples")
ETC = pathlib.Path("/etc/kvferry")
LOGS = pathlib.Path("/new/logs")
PROXY = ("127.0.0.1", 8000)
SHARERS = ("127.0.0.1", 8090)
TOKENS = 256  # of a chunk; a token is a byte of the prompt here
PATIENCE = 60.0
CLIENTS = 3
# Of load before, between and after the steps of the upgrade, in seconds.
CALM = 4.0
DYNAMIC_USER = 61184  # the first of those that systemd takes for DynamicUser


class WrongError(Exception):
    """The release is wrong."""


def must(holds: bool, what: str) -> None:
    """Raise WrongError unless a condition holds."""
    if not holds:
        raise WrongError(what)


# ---- engines ----


def chunk_name(prompt: bytes) -> str:
    """Return the name of the last chunk of a prompt of whole chunks."""
    return f"play@1@0@{int.from_bytes(hashlib.sha256(prompt).digest()[:8], 'big'):x}@bfloat16"


def chunk_bytes(prompt: bytes, size: int) -> np.ndarray[Any, Any]:
    """Compute the KV of the last chunk of a prompt of whole chunks."""
    seed = int.from_bytes(hashlib.sha256(b"kv" + prompt).digest()[:8], "big")
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def prefixes(prompt: bytes) -> list[bytes]:
    """Return the prompt up to the end of each whole chunk."""
    return [prompt[:end] for end in range(TOKENS, len(prompt) + 1, TOKENS)]


def answer_of(chunks: Iterator[Any]) -> str:
    """Generate the answer from the KV of all chunks."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()[:16]


def prefill(client: kvferry.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Compute a prompt, and put its KV to the decode engine's agent."""
    spec = body["kv_transfer_params"]["disagg_spec"]
    parts = prefixes(body["prompt"].encode())
    peer = kvferry.Peer(spec["receiver_host"], spec["receiver_init_port"][0], spec["receiver_alloc_port"][0])
    with client.reserve(len(parts), timeout=5.0) as pages:
        for page, part in zip(pages, parts, strict=True):
            filled = page.array()
            filled[:] = chunk_bytes(part, len(filled))
        client.put(
            peer=peer, request=spec["req_id"], keys=[chunk_name(part) for part in parts], pages=pages, last_batch=True,
            timeout=10.0,
        )  # fmt: skip
    return {"kv_transfer_params": {"do_remote_prefill": True, "disagg_spec": {"req_id": spec["req_id"]}}}


def decode(client: kvferry.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Answer a prompt with the KV that came, and compute the rest."""
    params = body.get("kv_transfer_params") or {}
    parts = prefixes(body["prompt"].encode())
    came: list[bytes] = []
    if params.get("do_remote_prefill"):
        names = [chunk_name(part) for part in parts]
        # A copy counts only if the pages were valid until its end.
        with (
            contextlib.suppress(kvferry.Error),
            client.get(names, request=params["disagg_spec"]["req_id"], timeout=5.0) as pages,
        ):
            copies = [page.array().tobytes() for page in pages]
            pages.check_valid("copy")
            came = copies
    rest = (chunk_bytes(part, PAGE) for part in parts[len(came) :])
    return {"text": answer_of(itertools.chain(came, rest)), "came": len(came)}


def share(here: kvferry.Client, there: kvferry.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Store chunks at one agent, read them by the other, which asks the directory, and say how many came, all right."""
    parts = prefixes(body["prompt"].encode())
    names = [chunk_name(part) for part in parts]
    with here.reserve(len(parts), timeout=2.0) as pages:
        for page, part in zip(pages, parts, strict=True):
            page.array()[:] = chunk_bytes(part, PAGE)
        here.store(names, pages)
    time.sleep(0.1)  # The directory is told meanwhile.
    with there.shared_get(names, request=body["request"], timeout=2.0) as came:
        copies = [page.array().tobytes() for page in came]
        came.check_valid("copy")
    right = all(copy == chunk_bytes(part, PAGE).tobytes() for copy, part in zip(copies, parts, strict=False))
    return {"came": len(copies), "right": right}


def serve_engine(role: str, paths: str, port: int) -> None:
    """Serve the API of an engine."""
    clients = [kvferry.connect(path, timeout=PATIENCE) for path in paths.split(",")]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if role == "prefill":
            return {"choices": [{"text": ""}], **prefill(clients[0], body)}
        if role == "share":
            return share(clients[0], clients[1], body)
        decoded = decode(clients[0], body)
        return {"choices": [{"text": decoded["text"]}], "came": decoded["came"]}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(200, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                self.reply(200, answer(body))
            except kvferry.Error as error:  # The proxy lets the decode engine compute.
                self.reply(500, {"error": {"message": str(error)}})

        def reply(self, code: int, what: dict[str, Any]) -> None:
            text = json.dumps(what).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


# The layout of the example configurations: K and V of 256 tokens, in 4 layers of 2 heads of 64 elements of 2 bytes.
PAGE = 2 * TOKENS * 4 * 2 * 64 * 2

# ---- services ----


class Service:
    """A service, started as its unit says: its command, its user and its folders."""

    def __init__(self, unit: str, instance: str = "") -> None:
        """Read the unit."""
        self.name = f"kvferry-{unit}" + (f"@{instance}" if instance else "")
        self.instance = instance
        path = UNITS / (f"kvferry-{unit}@.service" if instance else f"kvferry-{unit}.service")
        text = path.read_text(encoding="utf-8").replace("%i", instance)
        self.settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        self.process: subprocess.Popen[bytes] | None = None

    def identity(self) -> tuple[int, int]:
        """Return the user and the group of the service."""
        if "User" in self.settings:
            user = pwd.getpwnam(self.settings["User"])
            return user.pw_uid, user.pw_gid
        must(self.settings.get("DynamicUser") == "yes", f"{self.name} has no user")
        return DYNAMIC_USER, DYNAMIC_USER

    def start(self) -> None:
        """Start it, and wait until it serves."""
        uid, gid = self.identity()
        for key, parent in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")):
            if key in self.settings:
                folder = pathlib.Path(parent, self.settings[key])
                folder.mkdir(mode=0o700, exist_ok=True)
                os.chown(folder, uid, gid)
        variables = dict(os.environ)
        if "EnvironmentFile" in self.settings:
            lines = pathlib.Path(self.settings["EnvironmentFile"]).read_text(encoding="utf-8")
            variables |= dict(re.findall(r"^(\w+)=(.*)$", lines, re.MULTILINE))
        command = []
        for word in shlex.split(self.settings["ExecStart"]):
            command += variables[word[1:]].split() if word.startswith("$") else [word]
        LOGS.mkdir(exist_ok=True)
        with (LOGS / self.name).open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                user=uid,
                group=gid,
                extra_groups=[],
            )
        began = time.monotonic()
        while not self.serves():
            must(self.process.poll() is None, f"{self.name} has ended with exit code {self.process.poll()}: {command}")
            must(time.monotonic() - began < PATIENCE, f"{self.name} does not serve: {command}")
            time.sleep(0.1)

    def serves(self) -> bool:
        """Ask the service, as an operator would."""
        if self.instance:
            config = str(ETC / f"{self.instance}.yaml")
            done = subprocess.run(["kvferry", "status", "--config", config], check=False, capture_output=True)  # noqa: S603, S607
            return done.returncode == 0
        try:
            with socket.create_connection(PROXY):
                return True
        except ConnectionRefusedError:
            return False

    def version(self) -> str:
        """Return the version that the running process says it has, by its metrics."""
        address, name = PROXY, "kvferry_proxy_build_info"
        if self.instance:
            config = (ETC / f"{self.instance}.yaml").read_text(encoding="utf-8")
            port = re.search(r"operator: {port: \[(\d+)\]}", config)
            must(port is not None, f"{self.name} has no interface for operators")
            address, name = ("127.0.0.1", int(port.group(1))), "kvferry_build_info"  # type: ignore[union-attr]
        connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(rf'^{name}{{.*version="([^"]*)"}} 1$', text, re.MULTILINE)
        must(found is not None, f"{self.name} has no metric {name}")
        return found.group(1)  # type: ignore[union-attr]

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.process is not None:
            end(self.process)

    def stop(self) -> float:
        """Stop it as systemd does, and return how long that took."""
        assert self.process is not None  # noqa: S101
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(float(self.settings["TimeoutStopSec"]))
        must(code == 0, f"{self.name} ended with exit code {code}")
        return time.monotonic() - began


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it runs."""
    process.kill()
    process.wait()


def run(*command: str) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    must(done.returncode == 0, f"{shlex.join(command)}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def configure() -> None:
    """Copy the examples, as an operator would, and give a second sharer ports and a name of its own."""
    for path in EXAMPLES.iterdir():
        (ETC / path.name).write_bytes(path.read_bytes())
    text = (ETC / "share.yaml").read_text(encoding="utf-8")
    for old, new in (("731", "732"), ("host-1", "host-2"), ("9412", "9422")):
        text = text.replace(old, new)
    (ETC / "share-2.yaml").write_text(text, encoding="utf-8")
    run("kvferry", "config", "check", str(ETC / "prefill.yaml"), str(ETC / "decode.yaml"))


# ---- load ----


@dataclasses.dataclass
class Counts:
    """What clients saw."""

    answers: int = 0
    chunks: int = 0  # of all answers
    came: int = 0  # of these, not computed by the decode engine
    retried: int = 0  # requests that found no proxy, and were sent again
    shared: int = 0
    missed: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def add(self, **more: int) -> None:
        """Count."""
        with self.lock:
            for name, count in more.items():
                setattr(self, name, getattr(self, name) + count)

    def text(self) -> str:
        """Return the counts for people."""
        return ", ".join(f"{f.name} {getattr(self, f.name)}" for f in dataclasses.fields(self) if f.name != "lock")


def post(to: tuple[str, int], path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Send a request, and return the status and the answer."""
    connection = http.client.HTTPConnection(*to, timeout=PATIENCE)
    connection.connect()
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def ask(prompt: str, counts: Counts) -> dict[str, Any]:
    """Send a request to the proxy, and again if no proxy listens, until one does."""
    began = time.monotonic()
    while True:
        try:
            status, answer = post(PROXY, "/v1/completions", {"model": "play", "prompt": prompt, "max_tokens": 16})
        except ConnectionRefusedError:
            must(time.monotonic() - began < PATIENCE, "no proxy listens")
            counts.add(retried=1)
            time.sleep(0.05)
            continue
        must(status == 200, f"the proxy answered {status}: {answer}")
        return answer


def request_loop(client: int, ended: threading.Event, counts: Counts) -> None:
    """Ask one prompt after the other, and compare each answer."""
    for number in itertools.count():
        if ended.is_set():
            return
        length = TOKENS * (1 + number % 4)
        prompt = (f"{client}/{number} " * length)[:length]
        answer = ask(prompt, counts)
        want = answer_of(chunk_bytes(part, PAGE) for part in prefixes(prompt.encode()))
        got = answer["choices"][0]["text"]
        must(got == want, f"client {client}, request {number}: the answer is {got}, want {want}")
        counts.add(answers=1, chunks=length // TOKENS, came=answer["came"])


def share_loop(ended: threading.Event, counts: Counts) -> None:
    """Share one prompt after the other."""
    for number in itertools.count():
        if ended.is_set():
            return
        prompt = (f"shared {number} " * TOKENS)[: 2 * TOKENS]
        status, answer = post(SHARERS, "/share", {"prompt": prompt, "request": f"s{number}"})
        if status != 200:  # An agent or the directory is being replaced: the engine would compute.
            counts.add(missed=1)
            time.sleep(0.1)
            continue
        must(answer["right"], f"shared request {number} read other bytes")
        counts.add(shared=answer["came"], missed=int(answer["came"] < 2))


class Load:
    """Clients that ask while the block runs. A wrong answer ends the block with an error, at its end."""

    def __init__(self) -> None:
        """Begin."""
        self.counts = Counts()
        self._ended = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor()
        loops: list[Callable[[], None]] = [
            *(functools.partial(request_loop, n, self._ended, self.counts) for n in range(CLIENTS)),
            functools.partial(share_loop, self._ended, self.counts),
        ]
        self._loops = [self._pool.submit(loop) for loop in loops]

    def calm(self, what: str) -> None:
        """Let the clients ask for a while, and print what they saw since the last time."""
        time.sleep(CALM)
        for loop in self._loops:
            if loop.done():
                loop.result()
        print(f"  {what:<66} {self.counts.text()}", flush=True)

    def stop(self) -> None:
        """Tell the clients to end."""
        self._ended.set()

    def end(self) -> None:
        """End the clients, and raise what one of them raised."""
        self.stop()
        for loop in self._loops:
            loop.result(PATIENCE)
        self._pool.shutdown()


def play(upgrade: str, version: str) -> None:
    """Run the services under load, and replace each by the later build."""
    must(run("kvferry", "version").split()[1] == kvferry_version(), "the command and the wheel are of two versions")
    configure()
    directory = Service("directory", "directory")
    prefiller, decoder = Service("agent", "prefill"), Service("agent", "decode")
    sharers = [Service("agent", "share"), Service("agent", "share-2")]
    proxy = Service("proxy")
    services = [directory, decoder, *sharers, prefiller, proxy]
    user = pwd.getpwnam("kvferry")
    with contextlib.ExitStack() as stack:
        for service in services:
            stack.callback(service.kill)
        for service in services[:-1]:
            service.start()
        for role, port, agents in (
            ("prefill", 8100, [prefiller]),
            ("decode", 8200, [decoder]),
            ("share", 8090, sharers),
        ):
            paths = ",".join(f"/run/kvferry-{agent.instance}/agent.sock" for agent in agents)
            command = [sys.executable, __file__, "--engine", role, paths, str(port)]
            engine = subprocess.Popen(command, user=user.pw_uid, group=user.pw_gid, extra_groups=[])  # noqa: S603
            stack.callback(end, engine)
            wait_for_port(port)
        proxy.start()
        first = {service.version() for service in services}
        print(f"{len(services)} services and their engines run, all of {', '.join(first)}", flush=True)
        load = Load()
        stack.callback(load.stop)
        load.calm("before")
        calm = dataclasses.replace(load.counts)
        must(calm.answers > 0 and calm.came == calm.chunks, f"without a fault, KV was computed: {calm.text()}")
        must(calm.shared > 0, f"nothing was shared: {calm.text()}")
        run("dpkg", "--install", upgrade)
        must(run("kvferry", "version").split()[1] == version, "the upgrade has installed another version")
        load.calm("the package is replaced")
        for service in services:
            took = service.stop()
            service.start()
            must(service.version() == version, f"{service.name} is of {service.version()} after the upgrade")
            load.calm(f"{service.name} is replaced, drained in {took:.1f} s")
        before = dataclasses.replace(load.counts)
        load.calm("after")
        after = load.counts
        must(after.came - before.came > 0 and after.shared - before.shared > 0, "nothing is moved after the upgrade")
        load.end()
        print(f"all is of {version}: {after.text()}; no wrong answer, no failed request")
        for service in reversed(services):
            service.stop()


def kvferry_version() -> str:
    """Return the wheel's version as the command writes versions."""
    return re.sub(r"\.dev(\d+)", r"-dev.\1", kvferry.__version__)


def wait_for_port(port: int) -> None:
    """Wait until an engine listens."""
    began = time.monotonic()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            must(time.monotonic() - began < PATIENCE, f"no engine listens at port {port}")
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    if sys.argv[1] == "--engine":
        serve_engine(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        try:
            play(*sys.argv[1:])
        except WrongError as error:
            sys.exit(f"play: {error}")
