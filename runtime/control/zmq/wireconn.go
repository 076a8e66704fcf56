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
	// kernelBytes is the size of the socket buffers: the bytes that the system holds for a connection, sent but not
	// read yet, in each direction.
	kernelBytes = 256 << 10
	readBytes   = 4 << 10
)

// socketKind is the socket type of an end of a channel in ZeroMQ's terms, and the types that the opposite end may
// have.
type socketKind struct {
	name      string
	peerTypes []string
}

// The socket types of servers and clients, by whether the channel has requests.
var (
	serverKinds = map[bool]socketKind{
		true:  {"ROUTER", []string{"REQ", "DEALER", "ROUTER"}},
		false: {"PULL", []string{"PUSH"}},
	}
	clientKinds = map[bool]socketKind{
		true:  {"DEALER", []string{"REP", "ROUTER", "DEALER"}},
		false: {"PUSH", []string{"PULL"}},
	}
)

// wireConn represents a connection that speaks ZeroMQ's protocol. A wireConn belongs to the goroutine that reads the
// connection; only the outbox may be used concurrently.
type wireConn struct {
	net.Conn
	config  *Config
	in      *bufio.Reader
	out     *outbox
	canPing bool
	// deadline is the time by which the handshake, or the message that is being read, must be complete; zero between
	// messages.
	deadline time.Time
}

func newWireConn(conn net.Conn, c *Config, writers *sync.WaitGroup) *wireConn {
	if b, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		_, _ = b.SetReadBuffer(kernelBytes), b.SetWriteBuffer(kernelBytes)
	}
	l := &wireConn{Conn: conn, config: c, out: newOutbox(conn, c.MaxMessage+outboxSpare, c.HeartbeatTimeout, writers)}
	l.in = bufio.NewReaderSize(l, readBytes)
	return l
}

// handshake exchanges greetings and socket types with the peer.
func (l *wireConn) handshake(k socketKind) (err error) {
	l.canPing, err = zmtp.Handshake(l.in, func(appendRequest []byte) { l.out.sendBytes(appendRequest) }, k.name, k.peerTypes)
	l.deadline = time.Time{}
	return err
}

// newReader returns a reader of messages within limits. Memory for messages that are not small is taken out of
// budget, from the share of the peer's address.
func (l *wireConn) newReader(limits zmtp.Limits, budget *door.ByteBudget, address netip.Prefix) *zmtp.Reader {
	return &zmtp.Reader{
		R: l.in, Limits: limits,
		ReserveBytes: func(n int) bool { return budget.Reserve(address, n) },
		ReleaseBytes: func(n int) { budget.Release(address, n) },
		SendPong:     l.out.sendIfIdle,
		OnStart:      func() { l.deadline = time.Now().Add(l.config.MessageTimeout) },
		OnEnd:        func() { l.deadline = time.Time{} },
	}
}

// Read implements io.Reader for the bytes that the peer sends. Read pings a peer that is silent, and fails if the peer
// does not answer within HeartbeatTimeout or takes too long to send a message.
func (l *wireConn) Read(b []byte) (int, error) {
	silent := time.Duration(0)
	for {
		deadline := l.deadline
		if deadline.IsZero() && l.canPing {
			deadline = time.Now().Add(l.config.Heartbeat)
		}
		if err := l.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err := l.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !l.deadline.IsZero() {
			return 0, errors.New("the peer took too long to complete a message or its handshake")
		}
		if silent += l.config.Heartbeat; silent >= l.config.HeartbeatTimeout {
			return 0, fmt.Errorf("the peer was silent for %v and answered no ping", silent)
		}
		l.out.sendBytes(zmtp.AppendPing(nil, 0))
	}
}

// faultError returns what is wrong with a message: the fault that the reader found, otherwise the given error.
func faultError(m zmtp.Message, limits zmtp.Limits, otherwise error) error {
	switch m.Fault {
	case zmtp.TooLarge:
		return fmt.Errorf("a message of %d bytes exceeds the limit of %d: raise limits.message_bytes here, or send less",
			m.Size, limits.Bytes)
	case zmtp.TooManyFrames:
		return fmt.Errorf("a message of more than %d frames", limits.Frames)
	case zmtp.NoRoom:
		return fmt.Errorf("no memory for a message of %d bytes beside the messages that are arriving", m.Size)
	case zmtp.Whole:
	}
	return otherwise
}

// appendRequest appends the frames of a request with this id, or of a one-way message.
func appendRequest(b []byte, f zeromq.Frames, id uint64, body []byte) []byte {
	if f.HasIDs {
		b = zmtp.AppendFrame(b, binary.BigEndian.AppendUint64(make([]byte, 0, zeromq.IDBytes), id), true)
	}
	if f.HasDelimiter() {
		b = zmtp.AppendFrame(b, nil, true)
	}
	return appendBody(b, f.Channel, body)
}

// appendBody appends the frames of a body.
func appendBody(b []byte, ch effects.Channel, body []byte) []byte {
	zeromq.ForEachFrame(ch, body, func(frame []byte, more bool) { b = zmtp.AppendFrame(b, frame, more) })
	return b
}
