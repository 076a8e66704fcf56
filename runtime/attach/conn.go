package attach

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/netpoll"
	"github.com/kvferry/kvferry/runtime/internal/nowait"
	"github.com/kvferry/kvferry/runtime/internal/peercred"
)

// An engineConn is one connection of an engine. While no message is pending, a short message is written immediately, as
// far as the kernel accepts the bytes without blocking. The connection's writer goroutine sends the remainder and all
// longer messages, so that no caller of post waits for the engine.
type engineConn struct {
	id       session.Conn
	netConn  net.Conn
	raw      syscall.RawConn
	doorConn *door.Conn
	queueMax int // limit of pending messages; higher than the number of replies that an engine can have requested

	mu        sync.Mutex
	protected bool // the door does not close this connection in favour of a new one
	queue     []message
	writing   bool // the writer goroutine is sending a message that it has removed from waiting
	wake      *sync.Cond
	reason    string // reason the server ends the connection, once all messages have been sent
	ending    bool
}

// A message is a frame that is pending for the writer goroutine. If withFile is set, the pool's file descriptor is sent
// with the frame.
type message struct {
	frame    []byte // the whole frame, or the part that has not been sent
	withFile bool
}

// directWriteMax is the length in bytes of the longest message that post writes immediately. The bound is small because
// the server's mutex is held during that write.
const directWriteMax = 4 << 10

// sendMessage sends a message, or queues the message for the writer goroutine. If too many messages are pending,
// because the engine does not read, the connection is closed. The session machine keeps the replies that were not
// delivered for the engine's next connection.
func (c *engineConn) sendMessage(body []byte, attached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return
	}
	frame := protocol.AppendFrame(make([]byte, 0, protocol.FrameBytes+len(body)), body)
	if len(body) <= directWriteMax && !attached && len(c.queue) == 0 && !c.writing {
		if frame = frame[nowait.WriteNow(c.raw, frame):]; len(frame) == 0 {
			return
		}
	}
	if len(c.queue) >= c.queueMax {
		c.reason, c.queue = "the engine does not read the messages that the agent sends", nil
		c.startClosing()
		_ = c.netConn.Close()
	} else {
		c.queue = append(c.queue, message{frame, attached})
	}
	c.wake.Signal()
}

// closeAfterFlush closes the connection once all pending messages have been sent. The reason why is reported by serve.
func (c *engineConn) closeAfterFlush(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.reason = why
		c.startClosing()
		c.wake.Signal()
	}
}

// protect prevents the door from closing the connection in favour of a new connection: an attached engine is not
// displaced by a process that wants to attach.
func (c *engineConn) protect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.protected = true
		c.doorConn.AddWork(1)
	}
}

// startClosing stops accepting messages, and allows the door to close the connection. The caller holds the connection's
// mutex.
func (c *engineConn) startClosing() {
	c.ending = true
	if c.protected {
		c.protected = false
		c.doorConn.AddWork(-1)
	}
}

// nextMessage waits for a pending message and returns the message. ok is false when the connection ends and no message
// is left.
func (c *engineConn) nextMessage() (m message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = false
	for len(c.queue) == 0 && !c.ending {
		c.wake.Wait()
	}
	if len(c.queue) == 0 {
		return message{}, false
	}
	m = c.queue[0]
	c.queue[0] = message{}
	c.queue = c.queue[1:]
	c.writing = true
	return m, true
}

// writeMessages sends pending messages until the connection ends. A message that takes longer than stall ends the
// connection. The descriptor of the pool's file is passed with a message that attaches; file may be nil.
func (c *engineConn) writeMessages(file *os.File, stall time.Duration) {
	defer func() { _ = c.netConn.Close() }()
	for {
		m, ok := c.nextMessage()
		if !ok {
			return
		}
		if c.netConn.SetWriteDeadline(time.Now().Add(stall)) != nil {
			return
		}
		var err error
		if m.withFile && file != nil {
			err = netpoll.WriteRights(c.netConn, m.frame, int(file.Fd()))
		} else {
			_, err = c.netConn.Write(m.frame)
		}
		if err == nil {
			err = c.netConn.SetWriteDeadline(time.Time{}) // After an expired deadline, post could not write immediately.
		}
		if err != nil {
			c.closeAfterFlush("")
			return
		}
	}
}

// closeReason returns why the server ended the connection. The reason is empty if the engine ended the connection, or
// if the server ended the connection without a fault.
func (c *engineConn) closeReason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// readFrames reads messages from a connection and passes each message to handleBody. The result is nil when handleBody
// returns false. The call fails when the connection ends or a message is longer than maxBytes. The slice that
// handleBody receives is valid only during the call.
func readFrames(source io.Reader, maxBytes int, handleBody func([]byte) bool) error {
	r := bufio.NewReader(source)
	var head [protocol.FrameBytes]byte
	var body []byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if uint64(n) > uint64(maxBytes) {
			return fmt.Errorf("a message has %d bytes; the limit is %d", n, maxBytes)
		}
		if cap(body) < int(n) {
			body = make([]byte, n)
		}
		body = body[:n]
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if !handleBody(body) {
			return nil
		}
	}
}

// stallMax is the longest time that the server's write of one message may take while the engine is not reading.
const stallMax = 10 * time.Second

// serveConn handles one connection from the first message to the end, and returns why the connection ended.
func (s *Server) serveConn(g *door.Conn) error {
	defer g.Close()
	incoming, ok := g.Conn.(*acceptedConn)
	if !ok {
		return fmt.Errorf("%T is not a connection of this socket", g.Conn)
	}
	netConn := incoming.Conn
	longest := s.cfg.MessageBytes
	p, refused := authorizedProcess(netConn)
	if refused != nil {
		longest = refusedBytesMax
	}
	c := &engineConn{id: incoming.id, netConn: netConn, raw: nowait.RawConn(netConn), doorConn: g, queueMax: 4*s.cfg.Window + 16}
	c.wake = sync.NewCond(&c.mu)
	var writer sync.WaitGroup
	writer.Go(func() { c.writeMessages(s.mapping.File, stallMax) })
	first := true
	err := readFrames(g, longest, func(body []byte) bool {
		if !first {
			s.lockAndStep(func(m *session.Machine, out *session.Effects) { m.HandleMessage(c.id, body, out) })
			return true
		}
		first = false
		if refused != nil {
			s.refuseConn(c, refused)
			return false
		}
		g.MarkKnown()
		return s.attachEngine(c, p, body)
	})
	if first && p != nil {
		_ = p.Close()
	}
	s.lockAndStep(func(m *session.Machine, out *session.Effects) {
		delete(s.conns, c.id)
		m.OnConnLost(c.id, out)
	})
	if p != nil {
		s.mu.Lock()
		s.checkProgram(p.PID)
		s.mu.Unlock()
	}
	c.closeAfterFlush("")
	if err != nil {
		_ = netConn.Close() // The engine reads no more, or sends malformed messages; pending messages are dropped.
	}
	writer.Wait()
	if why := c.closeReason(); why != "" {
		return errors.New(why)
	}
	return err
}

// refusedBytesMax bounds the first message of a process that may not attach.
const refusedBytesMax = 4 << 10

// authorizedProcess returns the process at the engine's end of the connection. It fails if the process may not attach
// because another user runs the process, or if the process cannot be identified.
func authorizedProcess(conn net.Conn) (*peercred.Process, error) {
	if err := peercred.SameUser(conn); err != nil {
		return nil, err
	}
	return peercred.ProcessOf(conn)
}

// refuseConn sends the reason to a process that may not attach. Without a reply, the process would see a broken
// connection, as if the agent had ended, and would try again.
func (s *Server) refuseConn(c *engineConn, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.conns[c.id] = c
	s.stepMachine(func(m *session.Machine, out *session.Effects) { m.RefuseAttach(c.id, why.Error(), out) })
}

// admitDevice allows the process that sent a first message to import the device memory that holds the pool, before the
// reply says how to import the memory. The result is the number of the process on the device, or 0 if no process was
// admitted: the pool is not in device memory, or the message is invalid.
func (s *Server) admitDevice(body []byte) (int32, error) {
	if s.mapping.Export == nil {
		return 0, nil
	}
	var a protocol.AttachRequest
	if a.Decode(body, &s.wire) != nil || a.Process == 0 || a.Process > math.MaxInt32 {
		return 0, nil // The session machine reports what is wrong with the message.
	}
	return int32(a.Process), s.node.AdmitProcess(int32(a.Process))
}

// attachEngine handles the first message of a connection, and takes over p. The result reports whether the connection
// goes on.
func (s *Server) attachEngine(c *engineConn, p *peercred.Process, body []byte) bool {
	admitted, err := s.admitDevice(body)
	if err != nil {
		_ = p.Close()
		s.refuseConn(c, err)
		return false
	}
	// An admission that no new session has taken over ends here: a resumed session keeps the admission that the
	// session already has, and a refused attach has none. Departing process 0 has no effect.
	defer func() { s.node.RemoveProcess(admitted) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		_ = p.Close()
		return false
	}
	s.conns[c.id] = c
	record := s.trackProcess(p)
	if record == nil {
		delete(s.conns, c.id)
		return false
	}
	s.stepMachine(func(m *session.Machine, out *session.Effects) {
		m.HandleAttach(c.id, record.id, body, out)
		x := m.EngineOf(c.id)
		if x.ID != 0 {
			c.protect()
		}
		if x.ID != 0 && s.engines[x.ID] == nil {
			record.sessions++
			e := &engine{process: record, name: x.Name, calls: map[uint64]*call{}, handles: map[uint64]*handle{},
				puts:       map[uint64]*runtime.PutResult{},
				quickCalls: make(chan func(), s.cfg.Window), device: admitted}
			admitted = 0
			s.engines[x.ID] = e
			s.tasks.Go(func() { s.runQuickCalls(e.quickCalls) })
			s.log.Debug("an engine has attached", "session", x.ID, "engine", x.Name, "pid", record.pid)
		}
	})
	record.removeSession(s)
	return true
}
