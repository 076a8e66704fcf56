package zmq

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

const (
	// kernelBytes is what the system holds of what one connection sent and nobody has read, and of what it was sent.
	kernelBytes = 256 << 10
	readBytes   = 4 << 10
)

// kind is one end of a channel in ZeroMQ's terms, and what the other end may be.
type kind struct {
	name string
	with []string
}

// By whether questions are asked on a channel: what serves it, and what calls there.
var (
	serving = map[bool]kind{
		true:  {"ROUTER", []string{"REQ", "DEALER", "ROUTER"}},
		false: {"PULL", []string{"PUSH"}},
	}
	calling = map[bool]kind{
		true:  {"DEALER", []string{"REP", "ROUTER", "DEALER"}},
		false: {"PUSH", []string{"PULL"}},
	}
)

// line is one connection that speaks ZeroMQ's protocol, in the hands of the goroutine that reads it.
type line struct {
	net.Conn
	config *Config
	in     *bufio.Reader
	out    *outbox
	pings  bool
	// until is when the handshake, or the message that is being read, must be there; zero between messages.
	until time.Time
}

func newLine(conn net.Conn, c *Config, writers *sync.WaitGroup) *line {
	if b, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		_, _ = b.SetReadBuffer(kernelBytes), b.SetWriteBuffer(kernelBytes)
	}
	l := &line{Conn: conn, config: c, out: newOutbox(conn, c.MaxMessage+outboxSpare, c.HeartbeatTimeout, writers)}
	l.in = bufio.NewReaderSize(l, readBytes)
	return l
}

// shake shakes hands.
func (l *line) shake(k kind) (err error) {
	l.pings, err = zmtp.Shake(l.in, func(wire []byte) { l.out.send(wire) }, k.name, k.with)
	l.until = time.Time{}
	return err
}

// reader reads messages within limits, and takes the room for those that are not small out of an address's purse.
func (l *line) reader(limits zmtp.Limits, purse *door.ByteBudget, who netip.Prefix) *zmtp.Reader {
	return &zmtp.Reader{
		R: l.in, Limits: limits,
		Take:  func(n int) bool { return purse.Reserve(who, n) },
		Give:  func(n int) { purse.Release(who, n) },
		Pong:  l.out.sendIfIdle,
		Began: func() { l.until = time.Now().Add(l.config.MessageTimeout) },
		Ended: func() { l.until = time.Time{} },
	}
}

// Read implements io.Reader for what the peer sends: it asks a silent peer whether it is there, and gives up one that
// does not say so, or that is too long about one message.
func (l *line) Read(b []byte) (int, error) {
	silent := time.Duration(0)
	for {
		deadline := l.until
		if deadline.IsZero() && l.pings {
			deadline = time.Now().Add(l.config.Heartbeat)
		}
		if err := l.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err := l.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !l.until.IsZero() {
			return 0, errors.New("a message, or a handshake, that took too long")
		}
		if silent += l.config.Heartbeat; silent >= l.config.HeartbeatTimeout {
			return 0, fmt.Errorf("silent for %v, pings included", silent)
		}
		l.out.send(zmtp.AppendPing(nil, 0))
	}
}

// fault is what is wrong with a message: what the reader says, else what its frames show.
func fault(m zmtp.Message, limits zmtp.Limits, otherwise error) error {
	switch m.Fault {
	case zmtp.TooLarge:
		return fmt.Errorf("a message of %d bytes, and the limit is %d: raise limits.message_bytes here, or send less at once",
			m.Size, limits.Bytes)
	case zmtp.TooManyFrames:
		return fmt.Errorf("a message of more than %d frames", limits.Frames)
	case zmtp.NoRoom:
		return fmt.Errorf("a message of %d bytes, and no room for it beside those that are under way", m.Size)
	case zmtp.Whole:
	}
	return otherwise
}

// wire appends the question or word id as it goes over the wire.
func wire(b []byte, f zeromq.Frames, id uint64, body []byte) []byte {
	if f.Matched {
		b = zmtp.AppendFrame(b, binary.BigEndian.AppendUint64(make([]byte, 0, zeromq.IDBytes), id), true)
	}
	if f.Delimited() {
		b = zmtp.AppendFrame(b, nil, true)
	}
	return appendBody(b, f.Channel, body)
}

// appendBody appends the frames of a body.
func appendBody(b []byte, ch effects.Channel, body []byte) []byte {
	zeromq.Body(ch, body, func(frame []byte, more bool) { b = zmtp.AppendFrame(b, frame, more) })
	return b
}
