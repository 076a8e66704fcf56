package effects

import (
	"strconv"
	"strings"
)

// Time is an instant in nanoseconds on this node's CLOCK_BOOTTIME, the clock that
// also counts system suspend. Instants of different nodes are never compared.
type Time int64

// Duration is a span in nanoseconds.
type Duration int64

// Units of Duration.
const (
	Microsecond Duration = 1000
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
)

// Add returns t+d, staying at the last representable instant instead of wrapping.
func (t Time) Add(d Duration) Time {
	sum := t + Time(d)
	if d > 0 && sum < t {
		return 1<<63 - 1
	}
	return sum
}

// String is short and exact: 5s, 250ms, 1.5s, 7ns.
func (d Duration) String() string {
	for _, unit := range []struct {
		d    Duration
		name string
	}{{Second, "s"}, {Millisecond, "ms"}, {Microsecond, "µs"}} {
		if d >= unit.d || d <= -unit.d {
			whole := strconv.FormatInt(int64(d/unit.d), 10)
			// The 1 in front keeps the zeros behind the point.
			rest := strconv.FormatInt(int64(unit.d+max(d%unit.d, -(d%unit.d))), 10)[1:]
			if rest = strings.TrimRight(rest, "0"); rest != "" {
				whole += "." + rest
			}
			return whole + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// Sub returns t-u.
func (t Time) Sub(u Time) Duration { return Duration(t - u) }

// Identifiers. Zero is never a valid value of any of them.
type (
	// Ticket names one command of the engine; the driver gives it, never twice.
	Ticket uint64
	// Corr names one outstanding effect; the machine gives it, never to two that are outstanding.
	Corr uint64
	// Conn is a control-plane connection; the driver gives it, never twice. A
	// server names its clients by Conn as well: the same value as long as it is
	// provably the same client connection.
	Conn uint64
	// Request is one received message that may be answered by one Reply.
	Request uint64
	// Link is an imported peer on the data plane; the driver gives it, never twice.
	Link uint64
	// GrantID names one permission to write or to read pages; the machine gives it. The low
	// 16 bits of no two that are in force are equal; of those that had the same, no two of 2^48
	// in a row are. Ids have no order, and nobody but the machine can tell the next one.
	GrantID uint64
	// Landing names one end of a push at its target, to be answered by Confirm.
	Landing uint64
	// Generation numbers the lives of a page; never reused within a pool's memory.
	Generation uint64
)

// Origin names the network address that a connection comes from: an IPv4 address, or the /64 of an IPv6 address,
// because one host has as many addresses of that as it likes. It is for quotas and proves nothing: it is the same at
// every node that hears the same host. Zero: the driver does not know it.
type Origin uint64

// PoolID is the position of a pool in the machine's configuration.
type PoolID uint16

// Incarnation is a name of one life of one rank, as one peer knows it. The life draws one for each peer, out of a
// secret of its own, and only that peer is told: 4 bytes are the same for all, so that people find the life in
// logs, and 12 are the secret of the two. The zero value means "unknown" (a peer without our extensions).
type Incarnation [16]byte

// BufferID is the wire identity (a UUID) of one registered pool of one incarnation.
type BufferID [16]byte

// Page names one life of one page of a local pool.
type Page struct {
	Pool       PoolID
	Index      uint32
	Length     uint32 // valid bytes from the page's start
	Generation Generation
}

// RemotePage names one life of one page of a peer's registered buffer.
type RemotePage struct {
	Buffer     BufferID
	Index      uint32
	Generation Generation // zero where the peer told none (no extensions)
}

// Pair is one page to move: Local.Length bytes from Local to Remote, or the other way in a read.
type Pair struct {
	Local  Page
	Remote RemotePage
}

// CopyPair is one page to copy within a node: Length bytes, the same of both.
type CopyPair struct{ From, To Page }

// Buffer describes a peer's registered pool as learned by an Import or a handshake.
type Buffer struct {
	ID        BufferID
	Pages     uint32
	PageBytes uint64
}

// Addr is where a peer listens. Host and port are compared as a pair; they are
// joined only on the wire.
type Addr struct {
	Host string
	Port uint16
}
