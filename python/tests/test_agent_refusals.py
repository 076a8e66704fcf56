"""Calls beyond a limit, or malformed, at real agents: they are refused, and other engines are not affected."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Any

import pytest

import kvferry
from kvferry.frames import FRAME_MAX
from nodes import TIMEOUT, Node, attach_client, needs_binary

pytestmark = needs_binary


@pytest.mark.filterwarnings("ignore:pages were dropped:ResourceWarning")
def test_the_agent_takes_as_much_as_is_checked_here(receiver: Node) -> None:
    with attach_client(receiver) as client:
        text, host = "r" * 1024, "h" * 1016
        most = max(client.info.keys, client.info.window)
        producers = [kvferry.ProducerPeer(host, 1000, 10), *([kvferry.ProducerPeer("h", 1, 2)] * (most - 1))]
        lists = [kvferry.Blocks([7] * (65_536 - most + 1)), *([kvferry.Blocks([1])] * (most - 1))]
        few: dict[str, Any] = {"request": text, "transfer": text, "engine": text}
        for producing, blocks in ((producers[:1], lists), (producers, lists[1:])):
            pending = client.register_blocks(producers=producing, blocks=blocks, timeout=1.0, **few)
            with pytest.raises(kvferry.Error) as failed:  # It refuses the call and does not hang up.
                pending.result(TIMEOUT)
            assert not isinstance(failed.value, kvferry.LostError)
        with contextlib.suppress(kvferry.InvalidError):  # The key may have another format.
            client.contains(["k" * 512])
        assert client.epoch == 1
        client.stats()


def test_a_call_that_the_agent_cannot_read_holds_nobody_up(receiver: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with attach_client(receiver) as client:
        for keys, request in ((["k"], "r" * 1025), (["k" * 513], "r")):
            with pytest.raises(kvferry.InvalidError):
                client.get(keys, request=request)
        with monkeypatch.context() as patched:
            # As if the client did not know a limit.
            patched.setattr("kvferry.call_table.check_call_size", lambda *_: None)
            with pytest.raises(kvferry.Error, match="request is 1025 bytes") as refused:
                client.get(["k"], request="r" * 1025, timeout=TIMEOUT)
            assert refused.value.code == kvferry.Code.MALFORMED
        client.stats()
        assert client.epoch == 1


def test_garbage_harms_nobody(sender: Node) -> None:
    drawn = random.Random(6)
    with attach_client(sender) as client, client.reserve(1, timeout=TIMEOUT) as pages:
        pages[0].array()[:] = 9
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"",
            b"\xff" * 4,
            (FRAME_MAX + 1).to_bytes(4, "little"),
            b"\1\0\0\0\xc1",
            b"\0\0\0\0",
            *(drawn.randbytes(drawn.randint(1, 400)) for _ in range(50)),
            *(n.to_bytes(4, "little") + drawn.randbytes(n) for n in range(1, 50)),
        ):
            with socket.socket(socket.AF_UNIX) as other:
                other.settimeout(TIMEOUT)
                other.connect(sender.socket)
                try:
                    other.sendall(garbage)
                    other.shutdown(socket.SHUT_WR)
                    while other.recv(4096):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
        client.stats()
        assert pages[0].array()[0] == 9
        assert client.epoch == 1
