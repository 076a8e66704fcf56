package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

// A Role is the side of a push that a node plays.
type Role uint8

// The roles.
const (
	_        Role = iota
	Sender        // the prefiller: puts chunks into receivers
	Receiver      // the decoder: grants pages and serves what landed in them
)

// String returns the role as pd_role has it.
func (r Role) String() string {
	switch r {
	case Sender:
		return "sender"
	case Receiver:
		return "receiver"
	default:
		return fmt.Sprintf("role(%d)", uint8(r))
	}
}

// A Channel says by which data planes bytes may move.
type Channel uint8

// The channels.
const (
	ChannelAuto Channel = iota // shared memory where both nodes are on one host, else TCP
	ChannelSHM                 // shared memory only
	ChannelTCP                 // TCP only
)

// String returns the channel as transfer_channel has it.
func (c Channel) String() string {
	switch c {
	case ChannelAuto:
		return "auto"
	case ChannelSHM:
		return "shm"
	case ChannelTCP:
		return "tcp"
	default:
		return fmt.Sprintf("channel(%d)", uint8(c))
	}
}

// A Config is the validated configuration of one node. It holds one process for each tensor-parallel
// rank in mind: lists are indexed by rank. Every duration is positive, or zero where the key's
// documentation gives zero a meaning.
type Config struct {
	Name string // of the file, for messages

	Role    Role
	Channel Channel

	// PeerHost is the host that a receiver binds and advertises; a sender uses it to name itself
	// and may leave it empty. Without brackets when it is an IPv6 address.
	PeerHost string
	// InitPorts and AllocPorts are a receiver's handshake and allocation ports, by rank; of equal length.
	InitPorts, AllocPorts []uint16
	// Proxy is told by a sender when a request's last batch has ended; zero when the notification is skipped.
	Proxy protocol.Endpoint

	ChunkTokens uint32 // tokens of a full chunk
	// Layout is zero where the file leaves it to the engine; see SetLayout.
	Layout protocol.Layout
	// BufferBytes is the size of the page pool: pd_buffer_size, rounded up to whole pages once
	// Layout is known. Pages and PageBytes are zero before.
	BufferBytes, PageBytes uint64
	Pages                  uint32
	maxPrefillTokens       uint32

	Push   Push
	Link   Link
	Bounds Bounds
	Limits protocol.Limits
	Data   Data
	Log    Log
}

// Push is how a push runs.
type Push struct {
	// ReplyForm is how a receiver answers an AllocRequest.
	ReplyForm protocol.ReplyForm
	// TrustUncommitted makes chunks readable that a sender without the commit extension announced
	// over a plane nobody watches. Their content is then that sender's word (property S1 exempts it).
	TrustUncommitted bool
	// PutTimeout, GetTimeout and AllocTimeout bound a sender's Put, a receiver's Get and the time
	// an allocation may wait for pages.
	PutTimeout, GetTimeout, AllocTimeout time.Duration
	// AllocFailBackoff is how long a sender leaves a receiver alone that could not allocate.
	AllocFailBackoff time.Duration
	// ClaimTTL is how long "already sent" holds an entry for a request that does not fetch it.
	ClaimTTL time.Duration
	// Lease is how long a write grant stands; on leased planes what follows it is quarantine.
	Lease time.Duration
	// DrainTimeout bounds a graceful close.
	DrainTimeout time.Duration
	// PeerShareBP is the part of the pool, in basis points, that one peer may have granted to it or in
	// quarantine because of it. All peers without our extensions together count as one.
	PeerShareBP uint32
}

// Link is how connections come to be.
type Link struct {
	// RequestTimeout bounds one request and its reply, those of a handshake included.
	RequestTimeout time.Duration
	// BackoffMin and BackoffMax bound the growing pause between attempts to connect.
	BackoffMin, BackoffMax time.Duration
}

// Bounds are the sizes of tables. At each bound something newer is refused, or waits.
type Bounds struct {
	Peers    uint32 // peers with a handshake
	Conns    uint32 // connections, those without a handshake included
	Commands uint32 // engine commands in progress
	Waiters  uint32 // allocations that wait for pages, over all peers
	Mailbox  uint32 // inbound messages not yet stepped
}

// Data is how the data planes run.
type Data struct {
	// CopyThreads is how many threads store into the pool; 0 lets the driver choose by the cores.
	CopyThreads uint32
	// NonTemporalBytes is the size of a push from which on stores bypass the caches; 0 lets the driver choose.
	NonTemporalBytes uint64
	// TCPStreams is how many streams carry one peer's transfers; 0 lets the driver choose.
	TCPStreams uint32
	// TCPHost is where the TCP plane listens and what it advertises; PeerHost if the file has none.
	TCPHost string
	// TCPPorts are its ports by rank; empty lets the system choose.
	TCPPorts []uint16
	// SHMDir is where the sockets lie over which shared-memory segments are passed; empty is the
	// driver's choice below the system's run or temporary folder.
	SHMDir string
}

// Log is what is logged, and how.
type Log struct {
	Level slog.Level
	JSON  bool
}

// Ranks is how many ranks the port lists serve; 0 for a sender without ports, which serves any.
func (c *Config) Ranks() int { return len(c.InitPorts) }

// InitEndpoint returns where rank's handshakes are served, or false if the lists do not reach it.
func (c *Config) InitEndpoint(rank int) (protocol.Endpoint, bool) {
	return c.endpoint(c.PeerHost, c.InitPorts, rank)
}

// AllocEndpoint returns where rank's allocations are served, or false if the lists do not reach it.
func (c *Config) AllocEndpoint(rank int) (protocol.Endpoint, bool) {
	return c.endpoint(c.PeerHost, c.AllocPorts, rank)
}

// TCPEndpoint returns where rank's TCP plane listens. Port 0 lets the system choose; false means
// that there is a list of ports and that it does not reach rank.
func (c *Config) TCPEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.Data.TCPPorts) == 0 {
		return protocol.Endpoint{Host: c.Data.TCPHost}, rank >= 0
	}
	return c.endpoint(c.Data.TCPHost, c.Data.TCPPorts, rank)
}

func (c *Config) endpoint(host string, ports []uint16, rank int) (protocol.Endpoint, bool) {
	if rank < 0 || rank >= len(ports) {
		return protocol.Endpoint{}, false
	}
	return protocol.Endpoint{Host: host, Port: ports[rank]}, true
}

// pagesMax keeps page indexes within 32 bits on every peer, signed ones included.
const pagesMax = 1<<31 - 1

// SetLayout supplies what a full chunk looks like where the file left it to the engine, and lays
// out the pool: BufferBytes is rounded up to whole pages, as LMCache-Ascend does. The error is an
// *Error with one problem.
func (c *Config) SetLayout(l protocol.Layout) error {
	if p, ok := c.layOut(l); !ok {
		p.File = c.Name
		return &Error{Problems: []Problem{p}}
	}
	return nil
}

func (c *Config) layOut(l protocol.Layout) (Problem, bool) {
	if err := l.Validate(); err != nil {
		return Problem{Code: Range, Field: ownPath("layout"), Remedy: err.Error()}, false
	}
	if got := l.Tokens(); got != c.ChunkTokens {
		return Problem{Code: Conflict, Field: "chunk_size", Value: fmt.Sprint(c.ChunkTokens),
			Remedy: fmt.Sprintf("the engine's layout has chunks of %d tokens; set chunk_size: %d", got, got)}, false
	}
	pageBytes, err := l.PageBytes()
	if err != nil {
		return Problem{Code: Range, Field: ownPath("layout"), Remedy: err.Error()}, false
	}
	pages := (c.BufferBytes + pageBytes - 1) / pageBytes // Both below 2^63.
	if pages > pagesMax {
		return Problem{Code: Range, Field: "pd_buffer_size", Value: fmt.Sprint(c.BufferBytes),
			Remedy: fmt.Sprintf("that is %d pages of %d bytes; make it at most %d pages", pages, pageBytes, uint64(pagesMax))}, false
	}
	if capacity := pages * uint64(c.ChunkTokens); capacity < uint64(c.maxPrefillTokens) {
		return Problem{Code: Conflict, Field: "pd_max_prefill_len", Value: fmt.Sprint(c.maxPrefillTokens),
			Remedy: fmt.Sprintf("pd_buffer_size holds %d tokens (%d pages of %d); raise it, or lower pd_max_prefill_len",
				capacity, pages, c.ChunkTokens)}, false
	}
	c.Layout, c.PageBytes, c.Pages, c.BufferBytes = l, pageBytes, uint32(pages), pages*pageBytes
	return Problem{}, true
}
