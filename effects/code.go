package effects

// Code says how an operation ended. A program can switch on the value. The same codes are used for completions, for
// outcomes of commands and, by number, in the kvf_code field of our wire extension; therefore numbers are never reused.
type Code uint8

// The codes. Each comment says what the reader of the code should do.
const (
	// OK: the operation ended as wanted.
	OK Code = 0
	// Expired: the operation's deadline passed first. Retry, or raise the timeout if peers are healthy.
	Expired Code = 1
	// Cancelled: the owner of the operation took it back. Nothing to do.
	Cancelled Code = 2
	// Refused: the peer or transport would not accept it. Look at the peer's log.
	Refused Code = 3
	// PeerLost: the peer died or its connection broke. Retry: a restarted peer is found again.
	PeerLost Code = 4
	// Unreachable: no connection or no common data plane. Check host, ports and planes of both ends.
	Unreachable Code = 5
	// NoMemory: no pages became free within the allowed wait. Retry later, or enlarge the pool by the key that is
	// named.
	NoMemory Code = 6
	// TooLarge: the request can never fit the pool, the share or a message. Send smaller batches or enlarge the bound
	// that is named.
	TooLarge Code = 7
	// TooMany: a bounded table is full. Retry later, or raise the bound.
	TooMany Code = 8
	// Malformed: the bytes are not a valid message. Look for a version or configuration mismatch.
	Malformed Code = 9
	// Stale: the message names an incarnation or generation that has ended. Handshake again.
	Stale Code = 10
	// Mismatch: page size, layout or dtype of both ends differ. Make the configurations agree.
	Mismatch Code = 11
	// Faulted: the data plane reported an error. Retry; see the driver's log for the device's own words.
	Faulted Code = 12
	// NotFound: no such key, ticket or handle. For keys: recompute.
	NotFound Code = 13
	// Invalid: the command itself is wrong. Fix the caller.
	Invalid Code = 14
	// Draining: the rank is shutting down and takes no new work. Use another node.
	Draining Code = 15
	// Closed: the connection or driver was closed on this side.
	Closed Code = 16
	// Ended: the request already had its last batch. Use a new request id.
	Ended Code = 17
	// Withdrawn: the grant was taken back before the access ended. Retry.
	Withdrawn Code = 18
	// Unsupported: the peer does not speak what the operation needs. Upgrade the peer or change the mode.
	Unsupported Code = 19
	// BackedOff: the peer had no memory a moment ago, or left a request unanswered, so the circuit breaker of its
	// address is open for now. Use another peer, or retry later.
	BackedOff Code = 20
	// Lapsed: the chunk was stored here for as long as was promised, no request fetched it, and it is gone. Recompute,
	// or raise retention.
	Lapsed Code = 21
	// Failed: an assertion failed in this rank, and the rank does nothing any more. Use another rank; the node's report
	// says more.
	Failed Code = 22
	// SenderFailed: the sender of the request reported that no more of the request will arrive. Recompute: the sender's
	// reason is beside the code.
	SenderFailed Code = 23
	// NotSent: the sender reported that all of the request was sent, and this chunk is not among the chunks that
	// arrived. Recompute, and compare how both engines name chunks.
	NotSent Code = 24
	// Forbidden: the identity that this end proved has no role that permits the message, or another identity proved that
	// it is the peer in whose name the message came. Give the identity its role in the policy of the end that refused, or
	// restart the process whose identity has changed.
	Forbidden Code = 25
	// Corrupt: bytes do not have the checksum that their source stated, so the chunk is not used. Recompute; if it
	// happens again, examine the memory and the network of both ends.
	Corrupt Code = 26

	// CodeCount is the number of codes.
	CodeCount = 27
)

// codeNames are stable: they appear in logs, JSON and metrics.
//
//kvferry:table
var codeNames = [CodeCount]string{
	"ok", "expired", "cancelled", "refused", "peer_lost", "unreachable", "no_memory", "too_large",
	"too_many", "malformed", "stale", "mismatch", "faulted", "not_found", "invalid", "draining",
	"closed", "ended", "withdrawn", "unsupported", "backed_off", "lapsed", "failed",
	"sender_failed", "not_sent", "forbidden", "corrupt",
}

// String returns the stable name of the code, as in logs, JSON and metrics.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "unknown"
}

// CodeFromWire converts the number of a code in a peer's message. An unknown number becomes Refused, and so does
// Failed: Failed describes the local rank, and a rank that has failed sends nothing.
func CodeFromWire(n uint32) Code {
	if n < CodeCount && Code(n) != Failed {
		return Code(n)
	}
	return Refused
}
