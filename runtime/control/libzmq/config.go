package libzmq

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
)

// Config holds the bounds and times of a transport, as far as libzmq can enforce them. Zero fields mean their
// defaults.
type Config struct {
	// MaxConns is the largest number of Conns that are open, and the largest number that are being opened. Default
	// 4096. Each costs a socket and two files; the number is reduced if the process may open fewer.
	MaxConns int
	// MaxRequests is the largest number of unanswered requests at a time; beyond that number the oldest is dropped.
	// Default 65536.
	MaxRequests int
	// MaxClients is the number of most recent clients that certainly keep the same Conn. Default 65536.
	MaxClients int
	// MaxMessage is the largest message in bytes, in either direction. A peer that sends a larger frame is
	// disconnected; a message of several frames that are larger together is refused after the arrival. Default 64 MiB,
	// at least 4096.
	MaxMessage int
	// QueueCommands and QueueBytes bound the calls that are not yet carried out. Defaults 65536 and 256 MiB.
	QueueCommands int
	QueueBytes    int
	// HighWater is the largest number of messages that libzmq holds for a peer in each direction, and of waiting
	// posted messages of a Conn. Default 1000.
	HighWater int
	// Backlog is the largest number of connections that the system holds until acceptance. Default 4096; the system
	// may have a lower limit (net.core.somaxconn).
	Backlog int
	// Handshake bounds the time of a handshake. Default 10s.
	Handshake time.Duration
	// Linger limits the time that posted messages and replies may take to leave after Close or Shutdown. Default 1s.
	Linger time.Duration
	// Reconnect and ReconnectMax are the first and the longest pause between attempts to connect. Defaults 100ms and
	// 2s.
	Reconnect    time.Duration
	ReconnectMax time.Duration
	// ConnectTimeout bounds an attempt to connect, and the time that a posted message waits for a connection. Default
	// 5s.
	ConnectTimeout time.Duration
	// Heartbeat is the pause between pings, HeartbeatTimeout the silence after which a connection is given up. Defaults
	// 2s and 10s.
	Heartbeat        time.Duration
	HeartbeatTimeout time.Duration
	// NameTimeout bounds a lookup of a name. NameTTL limits the time for which a result is kept, NameNegativeTTL the
	// time for which the result that there is no address is kept. Defaults 3s, 30s, 1s. libzmq itself resolves no
	// names.
	NameTimeout     time.Duration
	NameTTL         time.Duration
	NameNegativeTTL time.Duration
	// Lookup finds the addresses of a name; default net.DefaultResolver.LookupNetIP. At most 16 lookups run at a time.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// Log receives what peers do wrong, and which bounds are missing. Default: the logger of the node if a node opens
	// the transport, otherwise slog.Default.
	Log *slog.Logger
	// IPv6 resolves names to IPv6, and makes an empty host mean the interfaces of both families. Default false, as in
	// LMCache: if set, names that have addresses of both families reach IPv6 servers only.
	IPv6 bool
	// IOThreads is the number of libzmq's own threads. Default 1.
	IOThreads int
}

// Opener returns the function by which package runtime makes a transport with this configuration.
func (c Config) Opener() control.Opener {
	return func(env control.Env) (control.Transport, error) {
		if env.MaxInbound > 0 {
			return nil, unboundedError(fmt.Sprintf("MaxInbound %d", env.MaxInbound), "libzmq bounds no connections")
		}
		if env.Guard != nil {
			return nil, &control.Error{Code: effects.Unsupported, What: "authenticate peers by TLS",
				Remedy: "libzmq has no TLS; use control.transport: zmq"}
		}
		if c.Log == nil {
			c.Log = env.Log
		}
		return Listen(c, env.Servers, env.Sink)
	}
}

// unboundedError returns the error for a setting that libzmq offers no way to keep.
func unboundedError(what, why string) error {
	return &control.Error{Code: effects.Unsupported, What: what,
		Remedy: why + "; use package zmq (control.transport: zmq) instead"}
}

// withDefaults returns c with the defaults filled in, or an error for the first field that is out of bounds.
func (c Config) withDefaults() (Config, error) {
	zeromq.OrDefault(&c.MaxConns, 4096)
	zeromq.OrDefault(&c.MaxRequests, 65536)
	zeromq.OrDefault(&c.MaxClients, 65536)
	zeromq.OrDefault(&c.MaxMessage, 64<<20)
	zeromq.OrDefault(&c.QueueCommands, 65536)
	zeromq.OrDefault(&c.QueueBytes, 256<<20)
	zeromq.OrDefault(&c.HighWater, 1000)
	zeromq.OrDefault(&c.Backlog, 4096)
	zeromq.OrDefault(&c.Handshake, 10*time.Second)
	zeromq.OrDefault(&c.Linger, time.Second)
	zeromq.OrDefault(&c.Reconnect, 100*time.Millisecond)
	zeromq.OrDefault(&c.ReconnectMax, 2*time.Second)
	zeromq.OrDefault(&c.ConnectTimeout, 5*time.Second)
	zeromq.OrDefault(&c.Heartbeat, 2*time.Second)
	zeromq.OrDefault(&c.HeartbeatTimeout, 10*time.Second)
	zeromq.OrDefault(&c.NameTimeout, 3*time.Second)
	zeromq.OrDefault(&c.NameTTL, 30*time.Second)
	zeromq.OrDefault(&c.NameNegativeTTL, time.Second)
	zeromq.OrDefault(&c.IOThreads, 1)

	if err := zeromq.CheckSettings([]zeromq.Number{
		// libzmq has at most 65535 sockets in a context; some are servers, or closed and still lingering.
		{Name: "MaxConns", Value: c.MaxConns, Min: 1, Max: 32768},
		{Name: "MaxRequests", Value: c.MaxRequests, Min: 1, Max: 1 << 24},
		{Name: "MaxClients", Value: c.MaxClients, Min: 1, Max: 1 << 24},
		// The limit also applies to libzmq's own handshake: below some hundred bytes nothing connects.
		{Name: "MaxMessage", Value: c.MaxMessage, Min: 4096, Max: 1 << 30},
		{Name: "QueueCommands", Value: c.QueueCommands, Min: 1, Max: 1 << 24},
		{Name: "QueueBytes", Value: c.QueueBytes, Min: 1, Max: 1 << 34},
		{Name: "HighWater", Value: c.HighWater, Min: 1, Max: 1 << 24},
		{Name: "Backlog", Value: c.Backlog, Min: 1, Max: 65535},
		{Name: "IOThreads", Value: c.IOThreads, Min: 1, Max: 64},
	}, []zeromq.Duration{ // libzmq counts milliseconds in 32 bits.
		{Name: "Handshake", Value: c.Handshake},
		{Name: "Linger", Value: c.Linger},
		{Name: "Reconnect", Value: c.Reconnect},
		{Name: "ReconnectMax", Value: c.ReconnectMax},
		{Name: "ConnectTimeout", Value: c.ConnectTimeout},
		{Name: "Heartbeat", Value: c.Heartbeat},
		{Name: "HeartbeatTimeout", Value: c.HeartbeatTimeout},
		{Name: "NameTimeout", Value: c.NameTimeout},
		{Name: "NameTTL", Value: c.NameTTL},
		{Name: "NameNegativeTTL", Value: c.NameNegativeTTL},
	}); err != nil {
		return c, err
	}
	if err := zeromq.CheckAtLeast("QueueBytes", c.QueueBytes, c.MaxMessage, "MaxMessage"); err != nil {
		return c, err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}
