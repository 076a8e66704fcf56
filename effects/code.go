package effects

// Code says how something ended. It is a value a program can switch on; the
// same codes are used for completions, for outcomes of commands and, by number,
// in the kvf_code field of our wire extension: numbers are never reused.
type Code uint8

// Codes. Each comment says what the one who reads it should do.
const (
	// OK: it ended as wanted.
	OK Code = 0
	// Expired: its deadline passed first. Retry, or raise the timeout if peers are healthy.
	Expired Code = 1
	// Cancelled: its owner took it back. Nothing to do.
	Cancelled Code = 2
	// Refused: the peer or transport would not take it. Look at the peer's log.
	Refused Code = 3
	// PeerLost: the peer died or its connection broke. Retry: a restarted peer is found again.
	PeerLost Code = 4
	// Unreachable: no connection or no common data plane. Check host, ports and planes of both ends.
	Unreachable Code = 5
	// NoMemory: no pages within the wait allowed. Retry later, or enlarge the pool by the key that is named.
	NoMemory Code = 6
	// TooLarge: it can never fit the pool, the share or a message. Send smaller batches or enlarge the bound named.
	TooLarge Code = 7
	// TooMany: a bounded table is full. Retry later, or raise the bound.
	TooMany Code = 8
	// Malformed: the bytes are not a valid message. Look for a version or configuration mismatch.
	Malformed Code = 9
	// Stale: it speaks of an incarnation or generation that is over. Handshake again.
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
	// Unsupported: the peer does not speak what this needs. Upgrade it or change the mode.
	Unsupported Code = 19
	// BackedOff: the peer had no memory a moment ago, or left a question unanswered, and is left alone for now. Use
	// another one, or retry later.
	BackedOff Code = 20
	// Lapsed: the chunk was here and kept for as long as was promised, nobody came for it, and it is gone. Recompute, or
	// raise retention.
	Lapsed Code = 21
	// Failed: an assertion failed in this rank, which does nothing any more. Use another one; the node's report says more.
	Failed Code = 22
	// SenderFailed: the sender of the request said that no more of it comes. Recompute: its reason is beside the code.
	SenderFailed Code = 23
	// NotSent: the sender said that all of the request was sent, and this chunk is not among what came. Recompute, and
	// compare how both engines name chunks.
	NotSent Code = 24

	// CodeCount is the number of codes.
	CodeCount = 25
)

// codeNames are stable: they stand in logs, JSON and metrics.
//
//kvferry:table
var codeNames = [CodeCount]string{
	"ok", "expired", "cancelled", "refused", "peer_lost", "unreachable", "no_memory", "too_large",
	"too_many", "malformed", "stale", "mismatch", "faulted", "not_found", "invalid", "draining",
	"closed", "ended", "withdrawn", "unsupported", "backed_off", "lapsed", "failed",
	"sender_failed", "not_sent",
}

// String returns the stable name of the code, as in logs, JSON and metrics.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "unknown"
}

// CodeFromWire converts a peer's number. What we do not know becomes Refused, and so does Failed: it speaks of this
// rank, and a rank that has failed says nothing.
func CodeFromWire(n uint32) Code {
	if n < CodeCount && Code(n) != Failed {
		return Code(n)
	}
	return Refused
}
