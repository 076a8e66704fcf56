"""Frames of the stream: a length of four bytes, little-endian, followed by that many bytes of msgpack."""

from __future__ import annotations

import struct

_LENGTH = struct.Struct("<I")

# The agent never sends a longer frame. A larger length means that the stream is corrupt.
FRAME_MAX = 64 << 20


class FrameError(ValueError):
    """The stream is not a sequence of frames."""


def encode_frame(payload: bytes) -> bytes:
    """Return a payload as a frame."""
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Splits a byte stream into frames. It buffers less than one frame plus one piece of input."""

    def __init__(self, max_bytes: int = FRAME_MAX) -> None:
        """Accept frames of at most max_bytes bytes."""
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """Return the payload of the next complete frame, or None. It raises FrameError if the length exceeds the
        limit.
        """
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._max_bytes:
            raise FrameError(f"a frame of {length} bytes, at most {self._max_bytes} are taken")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return payload


class MessageStream:
    """The bytes of the current connection. Bytes that were not sent when a connection ends are dropped."""

    def __init__(self) -> None:
        """Start without a connection."""
        self.reset()

    def reset(self) -> None:
        """Discard the state of the connection."""
        self.is_attached = False  # Whether the agent accepted the attachment, so that calls may be sent.
        self.sent_bytes = 0  # number of bytes that were sent
        self.pending = bytearray()
        self.frames = FrameReader()

    def queue_message(self, payload: bytes) -> int:
        """Queue a message, and return the offset of its first byte in the connection's outgoing bytes."""
        offset = self.sent_bytes + len(self.pending)
        self.pending += encode_frame(payload)
        return offset
