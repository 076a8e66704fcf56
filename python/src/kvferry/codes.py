"""How things end: the numbers are those of the wire, and never change (docs/errors.md)."""

# Written by python/tools/codes.py from effects/code.go and effects/why.go.

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """How a call ended. The name in lower case is the one of logs, JSON and metrics."""

    # The operation ended as wanted.
    OK = 0
    # The operation's deadline passed first. Retry, or raise the timeout if peers are healthy.
    EXPIRED = 1
    # The owner of the operation took it back. Nothing to do.
    CANCELLED = 2
    # The peer or transport would not accept it. Look at the peer's log.
    REFUSED = 3
    # The peer died or its connection broke. Retry: a restarted peer is found again.
    PEER_LOST = 4
    # No connection or no common data plane. Check host, ports and planes of both ends.
    UNREACHABLE = 5
    # No pages became free within the allowed wait. Retry later, or enlarge the pool by the key that is named.
    NO_MEMORY = 6
    # The request can never fit the pool, the share or a message. Send smaller batches or enlarge the bound that is
    # named.
    TOO_LARGE = 7
    # A bounded table is full. Retry later, or raise the bound.
    TOO_MANY = 8
    # The bytes are not a valid message. Look for a version or configuration mismatch.
    MALFORMED = 9
    # The message names an incarnation or generation that has ended. Handshake again.
    STALE = 10
    # Page size, layout or dtype of both ends differ. Make the configurations agree.
    MISMATCH = 11
    # The data plane reported an error. Retry; see the driver's log for the device's own words.
    FAULTED = 12
    # No such key, ticket or handle. For keys: recompute.
    NOT_FOUND = 13
    # The command itself is wrong. Fix the caller.
    INVALID = 14
    # The rank is shutting down and takes no new work. Use another node.
    DRAINING = 15
    # The connection or driver was closed on this side.
    CLOSED = 16
    # The request already had its last batch. Use a new request id.
    ENDED = 17
    # The grant was taken back before the access ended. Retry.
    WITHDRAWN = 18
    # The peer does not speak what the operation needs. Upgrade the peer or change the mode.
    UNSUPPORTED = 19
    # The peer had no memory a moment ago, or left a request unanswered, so the circuit breaker of its address is open
    # for now. Use another peer, or retry later.
    BACKED_OFF = 20
    # The chunk was stored here for as long as was promised, no request fetched it, and it is gone. Recompute, or raise
    # retention.
    LAPSED = 21
    # An assertion failed in this rank, and the rank does nothing any more. Use another rank; the node's report says
    # more.
    FAILED = 22
    # The sender of the request reported that no more of the request will arrive. Recompute: the sender's reason is
    # beside the code.
    SENDER_FAILED = 23
    # The sender reported that all of the request was sent, and this chunk is not among the chunks that arrived.
    # Recompute, and compare how both engines name chunks.
    NOT_SENT = 24
    # The identity that this end proved has no role that permits the message, or another identity proved that it is the
    # peer in whose name the message came. Give the identity its role in the policy of the end that refused, or restart
    # the process whose identity has changed.
    FORBIDDEN = 25
    # Bytes do not have the checksum that their source stated, so the chunk is not used. Recompute; if it happens again,
    # examine the memory and the network of both ends.
    CORRUPT = 26

    @classmethod
    def of(cls, number: int) -> Code:
        """Return the code of a number of the wire; what is not known here is REFUSED."""
        try:
            return cls(number)
        except ValueError:
            return cls.REFUSED

    @property
    def word(self) -> str:
        """Its name in logs, JSON and metrics."""
        return self.name.lower()


# What helps where nothing more is known than the code.
REMEDIES = {
    Code.EXPIRED: "retry, or raise the timeout if the peer is well",
    Code.REFUSED: "see the log of the peer, which says by which rule",
    Code.PEER_LOST: "retry: a peer that comes back is found again",
    Code.UNREACHABLE: "check that it runs, and host, ports and transfer_channel of both ends",
    Code.NO_MEMORY: "retry later, or enlarge the pool of the end that says so",
    Code.TOO_LARGE: "send smaller batches, or raise the bound named",
    Code.TOO_MANY: "retry later, or raise the bound",
    Code.MALFORMED: "look for another version, or another kind of program, at that address",
    Code.STALE: "retry: the next attempt shakes hands anew",
    Code.MISMATCH: "make the configurations of both ends agree",
    Code.FAULTED: "retry; the log has the device's own words",
    Code.NOT_FOUND: "compute it",
    Code.INVALID: "mend the caller",
    Code.DRAINING: "use another node: that one is shutting down",
    Code.ENDED: "use a new request id",
    Code.WITHDRAWN: "retry",
    Code.UNSUPPORTED: "run kvferry at both ends, of one version",
    Code.BACKED_OFF: "use another receiver, or retry later",
    Code.LAPSED: "compute it; raise retention above the longest wait in the engine's queue",
    Code.FAILED: (
        "an assertion failed in this rank, which does nothing any more: use another node, and look at its report"
    ),
    Code.SENDER_FAILED: "compute it; the sender's log says more",
    Code.NOT_SENT: (
        "compute it; make both engines name chunks alike: the model, its revision, dtype, chunk size and hash"
    ),
    Code.FORBIDDEN: (
        "give the identity its role in the policy of the end that refuses, or restart a process whose identity changed"
    ),
    Code.CORRUPT: "compute it; if it happens again, test the memory and the network of both ends",
}
