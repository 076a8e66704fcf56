package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
)

// A Role is the set of sides of a transfer that a node plays.
type Role uint8

// The sides, and both at once.
const (
	Sender   Role = 1 << iota // the prefiller: puts chunks into receivers, or offers them for reading
	Receiver                  // the decoder: serves what landed in its pages, or reads what it was offered
	Both     = Sender | Receiver
)

// Sends says whether a node is a prefiller.
func (r Role) Sends() bool { return r&Sender != 0 }

// Receives says whether a node is a decoder.
func (r Role) Receives() bool { return r&Receiver != 0 }

// String returns the role as pd_role has it.
func (r Role) String() string {
	switch r {
	case Sender:
		return "sender"
	case Receiver:
		return "receiver"
	case Both:
		return "both"
	default:
		return fmt.Sprintf("role(%d)", uint8(r))
	}
}

// A Channel says by which data planes bytes may move.
type Channel uint8

// The channels.
const (
	ChannelAuto Channel = iota // shared memory where both nodes are on one host, else TCP; not with a pool on an NPU
	ChannelSHM                 // shared memory only
	ChannelTCP                 // TCP only
	ChannelHCCL                // the NPUs' own links only
	ChannelNIXL                // libnixl only
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
	case ChannelHCCL:
		return "hccl"
	case ChannelNIXL:
		return "nixl"
	default:
		return fmt.Sprintf("channel(%d)", uint8(c))
	}
}

// A Control says which transport carries control messages.
type Control uint8

// The control transports. Peers cannot tell them apart.
const (
	ControlZMQ    Control = iota // kvferry's own implementation of ZeroMQ's wire protocol
	ControlLibZMQ                // libzmq, which bounds less of what an unknown connection takes
)

// A Config is the validated configuration of one node. It holds one process for each tensor-parallel
// rank in mind: lists are indexed by rank. Every duration is positive, or zero where the key's
// documentation gives zero a meaning.
type Config struct {
	Name string // of the file, for messages

	Role Role
	// Channel is ChannelHCCL where the file has auto and Device is an NPU.
	Channel Channel

	// PeerHost is the host that whoever receives, and a sender of pull mode, binds and advertises; another sender
	// uses it to name itself and may leave it empty. Without brackets when it is an IPv6 address.
	PeerHost string
	// InitPorts and AllocPorts are a receiver's handshake and allocation ports, by rank; of equal length.
	// A sender of pull mode may have InitPorts, where it takes renewals, and never binds AllocPorts.
	InitPorts, AllocPorts []uint16
	// Proxy is told by a sender when a request's last batch has ended; zero when the notification is skipped.
	Proxy protocol.Endpoint

	ChunkTokens uint32 // tokens of a full chunk
	// Layout is what a page holds: a full chunk, or with Layerwise one layer of it, or with Register a cell. It is zero
	// where the file leaves it to the engine; see SetLayout.
	Layout protocol.Layout
	// BufferBytes is the size of the page pool: pd_buffer_size, rounded up to whole pages once
	// Layout is known. Pages and PageBytes are zero before. Where the pool is host memory,
	// pd_cpu_buffer_size goes before pd_buffer_size.
	BufferBytes, PageBytes uint64
	Pages                  uint32
	// StagingPages of them are what the fetches of a receiver of delayed pull read into: the whole pages of
	// Pull.StagingBytes or Share.StagingBytes, or else an eighth of the pool, at least two. A batch of a fetch has up to
	// half of them. With Share.NPU they are all NPUPages instead. Zero at every other node, and before Layout is known.
	StagingPages uint32
	// ArenaPages lie behind them, with Share.Arena: the whole pages of Share.ArenaBytes. What peers read is copied there.
	ArenaPages uint32
	// NPUPages are those of the second pool of Share.NPU, in the NPU's memory: Share.NPUBytes, rounded up to whole pages.
	NPUPages uint32
	// Device is where the pool lies, unless Offload says otherwise (PoolDevice), and the NPU that serves it.
	Device Device
	// Offload puts the pool of a sender of pull mode into the host's memory although Device is an NPU: its engine copies
	// what it has computed from the NPU into pages of the host, and peers read it there.
	Offload          bool
	maxPrefillTokens uint32
	poolKey          string // that says the pool's size
	allocTimeoutKey  string // that says Machine.AllocTimeout

	// Machine is the part of the configuration of the node's machine that the file's keys set, field by field. The rest
	// of it follows when the node opens: see package runtime.
	Machine rank.Config
	// QueryPorts are where a receiver is asked what may be read back from it (Machine.Recalls), by rank; empty at a sender.
	QueryPorts []uint16
	// DrainTimeout bounds a graceful close.
	DrainTimeout time.Duration

	Pull      Pull
	Layerwise Layerwise
	Register  Register
	Share     Share
	Link      Link
	Bounds    Bounds
	Limits    protocol.Limits
	Control   Control
	// Poll is for how long the node polls for what comes next after a message has left, before it sleeps; 0: it sleeps at
	// once.
	Poll    time.Duration
	Pool    Pool
	Data    Data
	NPU     NPU
	HCCL    HCCL
	NIXL    NIXL
	Gateway Gateway
	Log     Log

	// Notes are settings that were accepted and do not do what they say here, in the order of the file: all of
	// Code Note.
	Notes []Problem
}

// Link is how connections come to be.
type Link struct {
	// HandshakeTimeout is how long a connection of a peer may take to shake hands, MessageTimeout how long one of its
	// messages may take to arrive.
	HandshakeTimeout, MessageTimeout time.Duration
	// NameTimeout bounds one lookup of a name. NameTTL is how long what it found is believed, NameNegativeTTL that it
	// found nothing.
	NameTimeout, NameTTL, NameNegativeTTL time.Duration
	// PeerNames lets peers say by name where they take words; otherwise they must give an address.
	PeerNames bool
}

// Bounds are the sizes of tables of the driver, and those that bound more than one table of its machine. At each bound
// something newer is refused, or waits.
type Bounds struct {
	Conns uint32 // connections, those without a handshake included
	// Guests are connections of peers to this node, GuestsPerAddress those of one address, 0 chooses by the limit of open
	// files. Strangers are those of one address that have not shaken hands.
	Guests, InboundPerAddress, Strangers uint32

	Commands uint32 // engine commands in progress
	Mailbox  uint32 // inbound messages not yet stepped
}

// Pool is of what kind the memory of the pool is, where that is host memory.
type Pool struct {
	// Lock keeps the pages from being swapped out.
	Lock bool
	// HugePages has the pages lie in huge pages of the host.
	HugePages bool
}

// Data is how the data planes run.
type Data struct {
	// CopyThreads is how many threads store into the pool; 0 lets the driver choose by the cores.
	CopyThreads uint32
	// NonTemporalBytes is the size of a push from which on stores bypass the caches; 0 lets the driver choose.
	NonTemporalBytes uint64
	// TCPStreams is how many streams carry one peer's transfers; 0 lets the driver choose.
	TCPStreams uint32
	// Overcommit takes the pools' memory when a page is first touched, and not when the node opens.
	Overcommit bool
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
