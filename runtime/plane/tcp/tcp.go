// Package tcp is the data plane between hosts.
//
// A link has one connection for requests and a few streams for pages, which go both ways on them. The initiator writes
// pages that it pushes with one call for up to 512 KiB of them; the target reads straight into the granted page, in holds
// of at most 256 KiB.
// It waits for bytes outside of every hold, so a peer that stalls in the middle of a page keeps nobody from revoking
// it: the rest of that page is then read and discarded.
//
// A read is the mirror of that. The owner of the pages writes them from holds of at most 256 KiB and waits for room
// outside of every hold, so a reader that takes nothing keeps nobody from revoking: what is left of the page is then
// made up with zeros, and the owner's last word on the read is not OK. The reader stores straight into its pages.
package tcp

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// Name is the plane's name in handshakes.
const Name = "tcp"

const (
	// streamsMax is the most streams that an incoming link may open.
	streamsMax = 16
	// streamsDefault is where more streams stopped to help; the measure is in the project's book.
	streamsDefault = 4
	// holdBytes is the most that is read into a page, or written from it, within one hold.
	holdBytes = 256 << 10
)

// Config configures the plane. The zero value listens on the loopback interface only.
type Config struct {
	// Host is where to listen, and its address what peers are told to dial; 127.0.0.1 if empty.
	Host string
	// Port is where to listen; the system chooses if zero.
	Port uint16
	// Streams is the number of streams to each peer; the number of cores, at most 4, if zero.
	Streams int
	// BufferBytes is how much the system holds of one stream at each end; if zero it finds out itself how much the
	// stream needs.
	BufferBytes int
}

// Open is a plane.Opener with the default configuration.
func Open(ctx context.Context, env plane.Env) (plane.Plane, error) { return Config{}.Open(ctx, env) }

// Open is a plane.Opener.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	return c.open(ctx, env, calls{read: unix.Readv, send: sendParts})
}

func (c Config) open(ctx context.Context, env plane.Env, by calls) (plane.Plane, error) {
	env, err := env.Complete()
	if err != nil {
		return nil, err
	}
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.Streams == 0 {
		c.Streams = min(streamsDefault, runtime.NumCPU())
	}
	if c.BufferBytes < 0 {
		return nil, fmt.Errorf("%w: tcp has buffers of %d bytes; give some, or 0", plane.ErrInvalid, c.BufferBytes)
	}
	if c.Streams < 0 || c.Streams > streamsMax {
		return nil, fmt.Errorf("%w: tcp has %d streams; give 1 to %d", plane.ErrInvalid, c.Streams, streamsMax)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if err != nil {
		return nil, fmt.Errorf("listen for the tcp plane on %s port %d: %w", c.Host, c.Port, err)
	}
	p, err := link.Open(link.Config{
		Name: Name, Env: env, Medium: &medium{streams: c.Streams, buffer: c.BufferBytes, calls: by}, Listener: listener,
		Address: framing.Advertised(listener), StreamsMax: streamsMax,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return p, nil
}
