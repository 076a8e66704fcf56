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

// A conn is one connection of an engine. While no message is pending, a short message is written immediately, as far
// as the kernel accepts the bytes without blocking. The connection's writer goroutine sends the remainder and all
// longer messages, so that no caller of post waits for the engine.
type conn struct {
	id    session.Conn
	conn  net.Conn
	raw   syscall.RawConn
	guest *door.Conn
	most  int // limit of pending messages; higher than the number of replies that an engine can have requested

	mu      sync.Mutex
	kept    bool // the door does not close this connection in favour of a new one
	waiting []message
	writing bool // the writer goroutine is sending a message that it has removed from waiting
	more    *sync.Cond
	why     string // why the server ends the connection, once all messages have been sent
	ending  bool
}

// A message is a frame that is pending for the writer goroutine. If attached is set, the pool's file descriptor is sent
// with the frame.
type message struct {
	frame    []byte // the whole frame, or the part that has not been sent
	attached bool
}

// nowBytes is the length in bytes of the longest message that post writes immediately. The bound is small because the
// server's mutex is held during that write.
const nowBytes = 4 << 10

// post sends a message, or queues the message for the writer goroutine. If too many messages are pending, because the
// engine does not read, the connection is closed. The session machine keeps the replies that were not delivered for
// the engine's next connection.
func (c *conn) post(body []byte, attached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return
	}
	frame := protocol.AppendFrame(make([]byte, 0, protocol.FrameBytes+len(body)), body)
	if len(body) <= nowBytes && !attached && len(c.waiting) == 0 && !c.writing {
		if frame = frame[nowait.Write(c.raw, frame):]; len(frame) == 0 {
			return
		}
	}
	if len(c.waiting) >= c.most {
		c.why, c.waiting = "the engine does not read what it is told", nil
		c.begone()
		_ = c.conn.Close()
	} else {
		c.waiting = append(c.waiting, message{frame, attached})
	}
	c.more.Signal()
}

// end closes the connection once all pending messages have been sent. The reason why is reported by serve.
func (c *conn) end(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.why = why
		c.begone()
		c.more.Signal()
	}
}

// keep prevents the door from closing the connection in favour of a new connection: an attached engine is not
// displaced by a process that wants to attach.
func (c *conn) keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.kept = true
		c.guest.AddWork(1)
	}
}

// begone stops accepting messages, and allows the door to close the connection. The caller holds the connection's
// mutex.
func (c *conn) begone() {
	c.ending = true
	if c.kept {
		c.kept = false
		c.guest.AddWork(-1)
	}
}

// next waits for a pending message and returns the message. ok is false when the connection ends and no message is
// left.
func (c *conn) next() (m message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = false
	for len(c.waiting) == 0 && !c.ending {
		c.more.Wait()
	}
	if len(c.waiting) == 0 {
		return message{}, false
	}
	m = c.waiting[0]
	c.waiting[0] = message{}
	c.waiting = c.waiting[1:]
	c.writing = true
	return m, true
}

// write sends pending messages until the connection ends. A message that takes longer than stall ends the connection.
// The descriptor of the pool's file is passed with a message that attaches; file may be nil.
func (c *conn) write(file *os.File, stall time.Duration) {
	defer func() { _ = c.conn.Close() }()
	for {
		m, ok := c.next()
		if !ok {
			return
		}
		if c.conn.SetWriteDeadline(time.Now().Add(stall)) != nil {
			return
		}
		var err error
		if m.attached && file != nil {
			err = netpoll.WriteRights(c.conn, m.frame, int(file.Fd()))
		} else {
			_, err = c.conn.Write(m.frame)
		}
		if err == nil {
			err = c.conn.SetWriteDeadline(time.Time{}) // After an expired deadline, post could not write immediately.
		}
		if err != nil {
			c.end("")
			return
		}
	}
}

// reason returns why the server ended the connection. The reason is empty if the engine ended the connection, or if
// the server ended the connection without a fault.
func (c *conn) reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// frames reads messages from a connection and passes each message to the callback. The result is nil when the callback
// returns false. The call fails when the connection ends or a message is longer than most bytes. The slice that the
// callback receives is valid only during the call.
func frames(from io.Reader, most int, take func([]byte) bool) error {
	r := bufio.NewReader(from)
	var head [protocol.FrameBytes]byte
	var body []byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if uint64(n) > uint64(most) {
			return fmt.Errorf("a message of %d bytes; at most %d are taken", n, most)
		}
		if cap(body) < int(n) {
			body = make([]byte, n)
		}
		body = body[:n]
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if !take(body) {
			return nil
		}
	}
}

// stallMax is the longest time that the server's write of one message may take while the engine is not reading.
const stallMax = 10 * time.Second

// serve handles one connection from the first message to the end, and returns why the connection ended.
func (s *Server) serve(g *door.Conn) error {
	defer g.Close()
	accepted, ok := g.Conn.(*accepted)
	if !ok {
		return fmt.Errorf("%T is no connection of this socket", g.Conn)
	}
	u := accepted.Conn
	longest := s.cfg.MessageBytes
	p, refused := admitted(u)
	if refused != nil {
		longest = strangerBytes
	}
	c := &conn{id: accepted.id, conn: u, raw: nowait.Raw(u), guest: g, most: 4*s.cfg.Window + 16}
	c.more = sync.NewCond(&c.mu)
	var writer sync.WaitGroup
	writer.Go(func() { c.write(s.mapping.File, stallMax) })
	first := true
	err := frames(g, longest, func(body []byte) bool {
		if !first {
			s.do(func(m *session.Machine, out *session.Out) { m.Heard(c.id, body, out) })
			return true
		}
		first = false
		if refused != nil {
			s.refuse(c, refused)
			return false
		}
		g.MarkKnown()
		return s.attach(c, p, body)
	})
	if first && p != nil {
		_ = p.Close()
	}
	s.do(func(m *session.Machine, out *session.Out) {
		delete(s.conns, c.id)
		m.Cut(c.id, out)
	})
	if p != nil {
		s.mu.Lock()
		s.lookAgain(p.PID)
		s.mu.Unlock()
	}
	c.end("")
	if err != nil {
		_ = u.Close() // The engine reads no more, or sends malformed messages; pending messages are dropped.
	}
	writer.Wait()
	if why := c.reason(); why != "" {
		return errors.New(why)
	}
	return err
}

// strangerBytes bounds the first message of a process that may not attach.
const strangerBytes = 4 << 10

// admitted returns the process at the engine's end of the connection. It fails if the process may not attach because
// another user runs the process, or if the process cannot be identified.
func admitted(conn net.Conn) (*peercred.Process, error) {
	if err := peercred.SameUser(conn); err != nil {
		return nil, err
	}
	return peercred.ProcessOf(conn)
}

// refuse sends the reason to a process that may not attach. Without a reply, the process would see a broken connection,
// as if the agent had ended, and would try again.
func (s *Server) refuse(c *conn, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.conns[c.id] = c
	s.step(func(m *session.Machine, out *session.Out) { m.Refuse(c.id, why.Error(), out) })
}

// admit allows the process that sent a first message to import the device memory that holds the pool, before the reply
// says how to import the memory. The result is the number of the process on the device, or 0 if no process was
// admitted: the pool is not in device memory, or the message is invalid.
func (s *Server) admit(body []byte) (int32, error) {
	if s.mapping.Export == nil {
		return 0, nil
	}
	var a protocol.AttachRequest
	if a.Decode(body, &s.wire) != nil || a.Process == 0 || a.Process > math.MaxInt32 {
		return 0, nil // The session machine reports what is wrong with the message.
	}
	return int32(a.Process), s.node.Admit(int32(a.Process))
}

// attach handles the first message of a connection, and takes over p. The result reports whether the connection goes
// on.
func (s *Server) attach(c *conn, p *peercred.Process, body []byte) bool {
	admitted, err := s.admit(body)
	if err != nil {
		_ = p.Close()
		s.refuse(c, err)
		return false
	}
	// An admission that no new session has taken over ends here: a resumed session keeps the admission that the
	// session already has, and a refused attach has none. Departing process 0 has no effect.
	defer func() { s.node.Depart(admitted) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		_ = p.Close()
		return false
	}
	s.conns[c.id] = c
	of := s.process(p)
	if of == nil {
		delete(s.conns, c.id)
		return false
	}
	s.step(func(m *session.Machine, out *session.Out) {
		m.Attach(c.id, of.id, body, out)
		x := m.Of(c.id)
		if x.ID != 0 {
			c.keep()
		}
		if x.ID != 0 && s.engines[x.ID] == nil {
			of.sessions++
			e := &engine{process: of, name: x.Name, calls: map[uint64]*work{}, holds: map[uint64]*held{},
				puts:  map[uint64]*runtime.PutResult{},
				swift: make(chan func(), s.cfg.Window), device: admitted}
			admitted = 0
			s.engines[x.ID] = e
			s.tasks.Go(func() { s.inOrder(e.swift) })
			s.log.Debug("an engine has attached", "session", x.ID, "engine", x.Name, "pid", of.pid)
		}
	})
	of.release(s)
	return true
}
