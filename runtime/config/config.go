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

// The roles: each side, and both sides at once.
const (
	Sender   Role = 1 << iota // the prefill node: puts chunks into receivers, or offers them for reading
	Receiver                  // the decode node: serves chunks that landed in its pages, or reads offered chunks
	Both     = Sender | Receiver
)

// Sends reports whether the node is a prefill node.
func (r Role) Sends() bool { return r&Sender != 0 }

// Receives reports whether the node is a decode node.
func (r Role) Receives() bool { return r&Receiver != 0 }

// String returns the role in the form of the key pd_role.
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

// A Channel selects the data planes that may move the bytes of chunks.
type Channel uint8

// The channels.
const (
	ChannelAuto Channel = iota // shared memory if both nodes are on one host, else TCP; not for a pool on an NPU
	ChannelSHM                 // shared memory only
	ChannelTCP                 // TCP only
	ChannelHCCL                // the links between NPUs only
	ChannelNIXL                // libnixl only
)

// String returns the channel in the form of the key transfer_channel.
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

// A Control selects the transport of control messages.
type Control uint8

// The control transports. A peer cannot tell which transport a node uses.
const (
	ControlZMQ    Control = iota // kvferry's own implementation of the ZeroMQ wire protocol
	ControlLibZMQ                // libzmq, which has fewer limits on what an unknown connection may use
)

// A Config is the validated configuration of a node. The Config covers all tensor-parallel ranks of the node, with one
// process for each rank: lists are indexed by rank. Every duration is positive, or zero where the key's documentation
// gives zero a meaning.
type Config struct {
	Name string // the name of the file, for messages

	settings map[string]setting

	Role Role
	// Channel is ChannelHCCL if the file has auto and Device is an NPU.
	Channel Channel

	// PeerHost is the host that a receiver, or a sender in pull mode, binds and advertises. A sender in push mode uses
	// PeerHost only to identify itself, and may leave PeerHost empty. An IPv6 address has no brackets.
	PeerHost string
	// InitPorts and AllocPorts are the handshake and allocation ports of a receiver, by rank. Both lists have equal
	// length. A sender in pull mode may have InitPorts, for lease renewals, and never binds AllocPorts.
	InitPorts, AllocPorts []uint16
	// Proxy is the address that a sender notifies when the last batch of a request has ended; zero if the notification
	// is skipped.
	Proxy protocol.Endpoint

	ChunkTokens uint32 // number of tokens in a full chunk
	// Layout describes the contents of a page: a full chunk, one layer of a chunk with Layerwise, or a cell with
	// Register. Layout is zero if the file leaves the layout to the engine; see SetLayout.
	Layout protocol.Layout
	// BufferBytes is the size of the page pool: pd_buffer_size, rounded up to whole pages once Layout is known. If the
	// pool is in host memory, pd_cpu_buffer_size overrides pd_buffer_size. Pages (a count) and PageBytes are zero
	// before Layout is known.
	BufferBytes, PageBytes uint64
	Pages                  uint32
	// StagingPages is the number of pool pages into which fetches read at a receiver with delayed pull: the whole
	// pages of Pull.StagingBytes or Share.StagingBytes, or else an eighth of the pool, but at least two. A batch of a
	// fetch uses at most half of the staging pages. With Share.NPU, the staging pages are all of NPUPages instead.
	// StagingPages is zero at all nodes without delayed pull, and before Layout is known.
	StagingPages uint32
	// ArenaPages is the number of pages behind the pool into which chunks are copied before peers read the chunks,
	// with Share.Arena: the whole pages of Share.ArenaBytes.
	ArenaPages uint32
	// NPUPages is the number of pages of the second pool of Share.NPU, in the memory of the NPU: Share.NPUBytes,
	// rounded up to whole pages.
	NPUPages uint32
	// Device is the memory that holds the pool, unless Offload applies (see PoolDevice), and the NPU that serves the
	// pool.
	Device Device
	// Offload places the pool of a sender in pull mode in host memory although Device is an NPU. The engine copies the
	// computed chunks from the NPU into host pages, and peers read the chunks from there.
	Offload          bool
	maxPrefillTokens uint32
	poolKey          string // the key that sets the size of the pool
	allocTimeoutKey  string // the key that sets Machine.AllocTimeout

	// Machine holds the fields of the state machine's configuration that keys of the file set. Package runtime sets
	// the remaining fields when the node is opened.
	Machine rank.Config
	// QueryPorts are the ports where a receiver accepts queries about chunks that may be recalled (Machine.Recalls),
	// by rank; empty at a sender.
	QueryPorts []uint16
	// DrainTimeout bounds the duration of a graceful close.
	DrainTimeout time.Duration

	Pull      Pull
	Layerwise Layerwise
	Register  Register
	Share     Share
	Link      Link
	Bounds    Bounds
	Limits    protocol.Limits
	Control   Control
	Security  Security
	Operator  Operator
	// Poll limits the time for which the node polls for the next event after sending a message, before the node
	// sleeps. 0: no polling.
	Poll    time.Duration
	Pool    Pool
	Data    Data
	NPU     NPU
	HCCL    HCCL
	NIXL    NIXL
	Gateway Gateway
	Log     Log
	// Recorder records the node's state machine for replays.
	Recorder Recorder
	Trace    Trace

	// Notes are the settings that were accepted although this version treats the settings differently than LMCache, in
	// the order of the file. All have Code Note.
	Notes []Problem
}

// Link has the parameters of connections and of name lookups.
type Link struct {
	// HandshakeTimeout is the time within which a connection of a peer must complete the handshake. MessageTimeout is
	// the time within which a message of the connection must arrive.
	HandshakeTimeout, MessageTimeout time.Duration
	// NameTimeout bounds a lookup of a host name. NameTTL limits the time for which a result is cached, and
	// NameNegativeTTL the time for which a failed lookup is cached.
	NameTimeout, NameTTL, NameNegativeTTL time.Duration
	// PeerNames allows peers to give a host name as the address where messages are accepted. Otherwise, peers must
	// give a numeric address.
	PeerNames bool
}

// Bounds has the sizes of the driver's tables, and the bounds that apply to more than one table of the state machine.
// When a table is full, the newer entry is refused or waits.
type Bounds struct {
	Conns uint32 // connections, including connections without a completed handshake
	// Inbound is the maximum number of inbound connections to this node, and InboundPerAddress the maximum from a
	// single address; 0 derives the number from the limit of open files. PendingHandshakes is the maximum
	// from a single address without a completed handshake.
	Inbound, InboundPerAddress, PendingHandshakes uint32

	Commands uint32 // engine commands in progress
	Mailbox  uint32 // inbound messages that the state machine has not processed yet
}

// Pool has the properties of the pool's memory, if the pool is in host memory.
type Pool struct {
	// Lock prevents the operating system from swapping the pages out.
	Lock bool
	// HugePages allocates the pool in huge pages of the host.
	HugePages bool
}

// Recorder has the parameters of the flight recorder.
type Recorder struct {
	// Dir is the folder of the recordings; empty: nothing is recorded.
	Dir string
	// Bytes is the size of a recording, beyond which its oldest part is removed.
	Bytes uint64
	// Saved is the number of recordings that were saved by a trigger and are kept.
	Saved uint32
	// StuckAfter is the age at which an operation saves the recording; 0: no operation does.
	StuckAfter time.Duration
}

// Trace says where spans of traced requests go.
type Trace struct {
	Endpoint string  // the URL of an OpenTelemetry collector; empty: the environment says it
	Ratio    float64 // the share of calls without a parent that begin a trace
}

// Data has the parameters of the data planes.
type Data struct {
	// CopyThreads is the number of threads that copy into the pool; 0 lets the driver choose by the number of cores.
	CopyThreads uint32
	// NonTemporalBytes is the size in bytes from which the copies of a push bypass the CPU caches; 0 lets the driver
	// choose.
	NonTemporalBytes uint64
	// TCPStreams is the number of TCP streams that carry the transfers of one peer; 0 lets the driver choose.
	TCPStreams uint32
	// Checksums makes the node state the checksums of its engine's chunks, and compare what arrives.
	Checksums bool
	// KeepCorrupt is the folder to which pages without the stated checksum are written; empty: nowhere.
	KeepCorrupt string
	// Overcommit allocates the memory of the pools when a page is first touched, instead of when the node opens.
	Overcommit bool
	// TCPHost is the host where the TCP plane listens, and the host that is advertised; PeerHost if the file has none.
	TCPHost string
	// TCPPorts are the ports of the TCP plane, by rank; empty lets the system choose.
	TCPPorts []uint16
	// SHMDir is the directory of the sockets over which shared-memory segments are passed. If empty, the driver
	// chooses a directory below the system's run or temporary directory.
	SHMDir string
}

// Log has the level and the format of log output.
type Log struct {
	Level slog.Level
	JSON  bool
}
