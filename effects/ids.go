package effects

import (
	"hash/crc32"
	"strconv"
	"strings"
)

// Time is an instant in nanoseconds on this node's CLOCK_BOOTTIME, the clock that also counts system suspend. Instants
// of different nodes are never compared directly.
type Time int64

// Duration is a time span in nanoseconds.
type Duration int64

// Units of Duration.
const (
	Microsecond Duration = 1000
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
)

// Add returns t+d, or the last representable instant if the sum would overflow.
func (t Time) Add(d Duration) Time {
	sum := t + Time(d)
	if d > 0 && sum < t {
		return 1<<63 - 1
	}
	return sum
}

// String returns a short and exact text: 5s, 250ms, 1.5s, 7ns.
func (d Duration) String() string {
	for _, unit := range []struct {
		d    Duration
		name string
	}{{Second, "s"}, {Millisecond, "ms"}, {Microsecond, "µs"}} {
		if d >= unit.d || d <= -unit.d {
			whole := strconv.FormatInt(int64(d/unit.d), 10)
			// The leading 1 keeps the zeros after the decimal point.
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

// Identifiers. Zero is never a valid identifier.
type (
	// Ticket names a command of the engine. The driver assigns the values and never assigns a value twice.
	Ticket uint64
	// Corr names an outstanding effect. The machine assigns the values, and no two outstanding effects have the same
	// Corr.
	Corr uint64
	// Conn is a control-plane connection. The driver assigns the values and never assigns a value twice. A server names
	// its clients by Conn as well: the value stays the same as long as the connection is provably the same client
	// connection.
	Conn uint64
	// Request is a received message that may be answered by a Reply.
	Request uint64
	// Link is an imported peer on the data plane. The driver assigns the values and never assigns a value twice.
	Link uint64
	// GrantID names a permission to write or to read pages. The machine assigns the values. No two grants in force have
	// equal low 16 bits, and among the successive ids with the same low 16 bits no two of 2^48 in a row are equal. The
	// ids have no order, and only the machine can predict the next id (M2).
	GrantID uint64
	// Landing names the end of a push at the target of the push; the machine answers it by a Confirm.
	Landing uint64
	// Generation numbers the uses of a page. A generation is never reused within a pool's memory (M2).
	Generation uint64
)

// Origin names what a connection counts against in shares and quotas: the network address from which the connection
// comes, as an IPv4 address, or as the /64 of an IPv6 address, because a host can use any number of addresses of a /64;
// or, if the client proved an identity, a hash of the identity, mostly together with that address. The driver computes
// it, and machines only compare it. An Origin is for quotas and proves nothing, because the value is the same at every
// node to which the same host connects. Zero means that the driver does not know the address.
type Origin uint64

// PoolID is the position of a pool in the machine's configuration.
type PoolID uint16

// Incarnation is the name of one run of a rank's process, as one peer knows the run. The rank derives a name for each
// peer from a secret of its own, and only that peer receives the name. The first 4 bytes are the same for all peers, so
// that people find the incarnation in logs; the other 12 bytes are a secret between the two ranks. The zero value means
// "unknown": the peer does not have our extensions.
type Incarnation [16]byte

// BufferID is the wire identity (a UUID) of a registered pool of one incarnation.
type BufferID [16]byte

// Page names a generation of a page of a local pool.
type Page struct {
	Pool       PoolID
	Index      uint32
	Length     uint32 // valid bytes from the page's start
	Sum        Sum    // checksum that the valid bytes are to have; 0: none is known
	Generation Generation
}

// Sum is a checksum of the valid bytes of a page: CRC-32C (Castagnoli), or 1 where that is 0. A Sum finds bytes that a
// plane or a memory changed by mistake, and no attacker: whoever changes the bytes on purpose can state the sum of the
// changed bytes. Zero means that nobody has stated a checksum.
type Sum uint32

// castagnoli is the polynomial for which amd64 and arm64 have instructions.
//
//kvferry:table
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SumOf returns the checksum of bytes; it is never zero.
func SumOf(b []byte) Sum { return max(1, Sum(crc32.Checksum(b, castagnoli))) }

// SumAt returns element i of a list of checksums as messages state it, or 0 if the list is empty.
func SumAt(sums []uint64, i int) Sum {
	if len(sums) == 0 {
		return 0
	}
	return Sum(sums[i])
}

// AppendSum appends the checksum of the next page to a list for a message, and keeps the list empty until a page has
// one. n is the number of pages before this page.
func AppendSum(sums []uint64, n int, s Sum) []uint64 {
	switch {
	case len(sums) > 0:
		return append(sums, uint64(s))
	case s == 0:
		return sums
	}
	for range n {
		sums = append(sums, 0)
	}
	return append(sums, uint64(s))
}

// HasSum reports whether bytes, the valid bytes of the page, have the page's checksum. A page without one has any bytes.
func (p *Page) HasSum(b []byte) bool { return p.Sum == 0 || p.Sum == SumOf(b) }

// RemotePage names a generation of a page of a peer's registered buffer.
type RemotePage struct {
	Buffer     BufferID
	Index      uint32
	Sum        Sum        // for a read: the checksum that the peer stated for the bytes; 0: none
	Generation Generation // zero where the peer did not state a generation (no extensions)
}

// Pair is a page to transfer: Local.Length bytes from Local to Remote, or from Remote to Local for a read.
type Pair struct {
	Local  Page
	Remote RemotePage
}

// CopyPair is a page to copy within a node. Both pages have the same Length, which is the number of bytes to copy.
type CopyPair struct{ From, To Page }

// Buffer describes a peer's registered pool, as an Import or a handshake reported it.
type Buffer struct {
	ID        BufferID
	Pages     uint32
	PageBytes uint64
}

// Addr is the address on which a peer listens. Host and port are compared as a pair and joined only on the wire.
type Addr struct {
	Host string
	Port uint16
}
