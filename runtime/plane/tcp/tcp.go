// Package tcp is the fenced data plane between hosts.
//
// A link has a connection for requests and a few streams (further connections) for pages, which carry pages in both
// directions. Each page travels behind a header that names the transfer and the pair.
//
// In a push the initiator writes up to 512 KiB of pages with a single call, and the target reads from the socket
// straight into the granted page, in holds of at most 256 KiB. The target waits for bytes outside of every hold, so
// that a peer that stalls in the middle of a page cannot delay the revocation of that page (M3). Once the grant is
// revoked, the target reads the rest of the page and discards it.
//
// A read works in the opposite direction. The owner writes its pages from holds of at most 256 KiB and waits for
// buffer space outside of every hold, so that a reader that takes no bytes cannot delay a revocation (M3). Once the
// lease is revoked, the owner sends zeros for the rest of the page, and the done message of the read is not OK. The
// reader stores straight into its own pages.
//
// To use the plane, pass [Open] or Config.Open to runtime.WithPlane:
//
//	runtime.WithPlane(tcp.Config{Host: "10.0.0.7", Port: 7100}.Open)
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
	// maxStreams is the number of streams that a peer may open for a link.
	maxStreams = 16
	// defaultStreams is the number beyond which more streams gave no further throughput; docs/benchmarks.md has the
	// measurement.
	defaultStreams = 4
	// maxHoldBytes is the number of bytes that are read into a page, or written from a page, within a hold.
	maxHoldBytes = 256 << 10
)

// Config configures the plane. The zero value listens on the loopback interface only.
type Config struct {
	// Host is the address to listen on, which peers are told to dial; 127.0.0.1 if empty.
	Host string
	// Port is the port to listen on; if zero, the kernel chooses the port.
	Port uint16
	// Streams is the number of streams to each peer; if zero, the number of cores, but at most 4.
	Streams int
	// BufferBytes is the size of the socket buffers of a stream at each end; if zero, the kernel adapts them.
	BufferBytes int
}

// Open is a plane.Opener with the default configuration.
func Open(ctx context.Context, env plane.Env) (plane.Plane, error) { return Config{}.Open(ctx, env) }

// Open is a plane.Opener.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	return c.openWith(ctx, env, socketCalls{readv: unix.Readv, sendmsg: sendParts})
}

func (c Config) openWith(ctx context.Context, env plane.Env, by socketCalls) (plane.Plane, error) {
	env, err := env.CompleteFenced()
	if err != nil {
		return nil, err
	}
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.Streams == 0 {
		c.Streams = min(defaultStreams, runtime.NumCPU())
	}
	if c.BufferBytes < 0 {
		return nil, fmt.Errorf("%w: socket buffers of the tcp plane have %d bytes; give a positive size, or 0 for the "+
			"kernel's choice", plane.ErrInvalid, c.BufferBytes)
	}
	if c.Streams < 0 || c.Streams > maxStreams {
		return nil, fmt.Errorf("%w: tcp has %d streams; give 1 to %d", plane.ErrInvalid, c.Streams, maxStreams)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if err != nil {
		return nil, fmt.Errorf("listen for the tcp plane on %s port %d: %w", c.Host, c.Port, err)
	}
	p, err := link.Open(link.Config{
		Name: Name, Env: env, Medium: &medium{streams: c.Streams, buffer: c.BufferBytes, calls: by, guard: env.Guard}, Listener: listener,
		Address: framing.AdvertisedAddress(listener), MaxStreams: maxStreams,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return p, nil
}
