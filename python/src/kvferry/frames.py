"""Frames of the stream: four bytes of length, little-endian, and so many bytes of msgpack."""

from __future__ import annotations

import struct

_LENGTH = struct.Struct("<I")

# More than this the agent never has to say. A length beyond it is a stream that is out of step.
FRAME_MAX = 64 << 20


class FrameError(ValueError):
    """The stream is none of frames."""


def frame(payload: bytes) -> bytes:
    """Make a frame."""
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """What has come of a stream. It keeps less than one frame and one piece of input."""

    def __init__(self, most: int = FRAME_MAX) -> None:
        """Take frames of at most so many bytes."""
        self._most = most
        self._kept = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take what came."""
        self._kept += data

    def next(self) -> bytes | None:
        """Give the next whole frame's payload, or None. It raises FrameError where the length is beyond the bound."""
        if len(self._kept) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._kept)
        if length > self._most:
            raise FrameError(f"a frame of {length} bytes, at most {self._most} are taken")
        end = _LENGTH.size + length
        if len(self._kept) < end:
            return None
        payload = bytes(self._kept[_LENGTH.size : end])
        del self._kept[:end]
        return payload


class Stream:
    """What goes over a connection, and over the next one: what was not sent by the end of one never is."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self.restart()

    def restart(self) -> None:
        """Forget the connection."""
        self.joined = False  # The agent took the attachment: calls may be said.
        self.passed = 0  # bytes that were sent
        self.out = bytearray()
        self.frames = Frames()

    def say(self, payload: bytes) -> int:
        """Have a message sent; give the place of its first byte in what is sent over the connection."""
        begins = self.passed + len(self.out)
        self.out += frame(payload)
        return begins
