package zmq

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/secure"
)

// Config holds the bounds and times of a transport. Zero fields mean their defaults.
type Config struct {
	// MaxConns is the largest number of outbound Conns at a time, including Conns that are still being opened. Default
	// 4096. Each costs a file.
	MaxConns int
	// MaxRequests is the largest number of unanswered requests at a time; beyond that number the oldest is dropped.
	// Default 65536.
	MaxRequests int
	// MaxInbound is the largest number of inbound connections at a time, InboundPerAddress limits the connections from
	// a single address, and HandshakingPerAddress the connections from an address that have not completed the
	// handshake. Defaults: 8192, but at most half of the files that the process may open; seven eighths of that; and
	// 256. A connection beyond these takes the place of a silent or idle connection.
	MaxInbound            int
	InboundPerAddress     int
	HandshakingPerAddress int
	// Handshake bounds the time of a handshake, MessageTimeout the time from the first to the last byte of a message.
	// Defaults 10s and 30s.
	Handshake      time.Duration
	MessageTimeout time.Duration
	// IncomingBytes bounds the memory of messages longer than 16 KiB during the arrival: the messages of all inbound
	// connections together, and separately the replies of all outbound connections. A single address may use half of
	// the memory. Default: four messages, at least 64 MiB.
	IncomingBytes int
	// MaxMessage is the largest message in bytes, in either direction. A peer that sends a larger message is
	// disconnected. Default 64 MiB, at least 4096.
	MaxMessage int
	// QueueCommands and QueueBytes bound the messages of all Conns that wait for a connection. Defaults 65536 and 256
	// MiB.
	QueueCommands int
	QueueBytes    int
	// HighWater is the largest number of messages of a Conn that wait for a connection. Default 1000.
	HighWater int
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
	// Guard authenticates the peers of all connections. Default: that of control.Env if a node opens the transport;
	// otherwise connections are plain, and every process is believed. The transport does not close the guard.
	Guard *secure.Guard
	// Poll limits the time for which the transport polls for the next message after a message has left, before
	// sleeping (package netpoll). Default: that of control.Env if a node opens the transport; otherwise no polling.
	Poll time.Duration
	// NameTimeout bounds a lookup of a name. NameTTL limits the time for which a result is kept, NameNegativeTTL the
	// time for which the result that there is no address is kept. Defaults 3s, 30s, 1s.
	NameTimeout     time.Duration
	NameTTL         time.Duration
	NameNegativeTTL time.Duration
	// Lookup finds the addresses of a name; default net.DefaultResolver.LookupNetIP. At most 16 lookups run at a time.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// Log receives what peers do wrong, and the limits of this process that are too small. Default: the logger of the
	// node if a node opens the transport, otherwise slog.Default.
	Log *slog.Logger
	// IPv6 resolves names to IPv6, and makes an empty host mean the interfaces of both families. Default false, as in
	// LMCache: if set, names that have addresses of both families reach IPv6 servers only.
	IPv6 bool
}

// Opener returns the function by which package runtime makes a transport with this configuration.
func (c Config) Opener() control.Opener {
	return func(env control.Env) (control.Transport, error) {
		if c.Log == nil {
			c.Log = env.Log
		}
		if c.Poll == 0 {
			c.Poll = env.Poll
		}
		if c.Guard == nil {
			c.Guard = env.Guard
		}
		if env.MaxInbound > 0 && (c.MaxInbound == 0 || c.MaxInbound > env.MaxInbound) {
			c.MaxInbound = env.MaxInbound
		}
		return Listen(c, env.Servers, env.Sink)
	}
}

// withDefaults returns c with the defaults filled in, or an error for the first field that is out of bounds.
func (c Config) withDefaults() (Config, error) {
	zeromq.OrDefault(&c.MaxConns, 4096)
	zeromq.OrDefault(&c.MaxRequests, 65536)
	zeromq.OrDefault(&c.MaxMessage, 64<<20)
	zeromq.OrDefault(&c.QueueCommands, 65536)
	zeromq.OrDefault(&c.QueueBytes, 256<<20)
	zeromq.OrDefault(&c.HighWater, 1000)
	zeromq.OrDefault(&c.IncomingBytes, max(4*c.MaxMessage, 64<<20))
	zeromq.OrDefault(&c.HandshakingPerAddress, 256)
	zeromq.OrDefault(&c.Handshake, 10*time.Second)
	zeromq.OrDefault(&c.MessageTimeout, 30*time.Second)
	zeromq.OrDefault(&c.NameTimeout, 3*time.Second)
	zeromq.OrDefault(&c.NameTTL, 30*time.Second)
	zeromq.OrDefault(&c.NameNegativeTTL, time.Second)
	zeromq.OrDefault(&c.Linger, time.Second)
	zeromq.OrDefault(&c.Reconnect, 100*time.Millisecond)
	zeromq.OrDefault(&c.ReconnectMax, 2*time.Second)
	zeromq.OrDefault(&c.ConnectTimeout, 5*time.Second)
	zeromq.OrDefault(&c.Heartbeat, 2*time.Second)
	zeromq.OrDefault(&c.HeartbeatTimeout, 10*time.Second)

	if err := zeromq.CheckSettings([]zeromq.Number{
		{Name: "MaxConns", Value: c.MaxConns, Min: 1, Max: 1 << 20},
		{Name: "MaxRequests", Value: c.MaxRequests, Min: 1, Max: 1 << 24},
		{Name: "StrangersPerAddress", Value: c.HandshakingPerAddress, Min: 1, Max: 1 << 24},
		{Name: "IncomingBytes", Value: c.IncomingBytes, Min: 1, Max: 1 << 34},
		// A machine's handshake must fit.
		{Name: "MaxMessage", Value: c.MaxMessage, Min: 4096, Max: 1 << 30},
		{Name: "QueueCommands", Value: c.QueueCommands, Min: 1, Max: 1 << 24},
		{Name: "QueueBytes", Value: c.QueueBytes, Min: 1, Max: 1 << 34},
		{Name: "HighWater", Value: c.HighWater, Min: 1, Max: 1 << 24},
	}, []zeromq.Duration{
		{Name: "Handshake", Value: c.Handshake},
		{Name: "MessageTimeout", Value: c.MessageTimeout},
		{Name: "NameTimeout", Value: c.NameTimeout},
		{Name: "NameTTL", Value: c.NameTTL},
		{Name: "NameNegativeTTL", Value: c.NameNegativeTTL},
		{Name: "Linger", Value: c.Linger},
		{Name: "Reconnect", Value: c.Reconnect},
		{Name: "ReconnectMax", Value: c.ReconnectMax},
		{Name: "ConnectTimeout", Value: c.ConnectTimeout},
		{Name: "Heartbeat", Value: c.Heartbeat},
		{Name: "HeartbeatTimeout", Value: c.HeartbeatTimeout},
	}); err != nil {
		return c, err
	}
	if err := zeromq.CheckAtLeast("QueueBytes", c.QueueBytes, c.MaxMessage, "MaxMessage"); err != nil {
		return c, err
	}
	if err := zeromq.CheckAtLeast("IncomingBytes", c.IncomingBytes, 2*c.MaxMessage, "twice MaxMessage"); err != nil {
		return c, err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}
