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

// A conn is a connection of an engine's. A short message that finds nothing waiting is written at once, as far as the
// system takes it; its writer takes the rest and all others, and nobody waits for it.
type conn struct {
	id    session.Conn
	conn  net.Conn
	raw   syscall.RawConn
	guest *door.Conn
	most  int // messages that may wait: more than an engine can have asked for

	mu      sync.Mutex
	kept    bool // the door closes it for nobody
	waiting []message
	writing bool // the writer has a message that it has taken out
	more    *sync.Cond
	why     string // it ends when all has been sent
	ending  bool
}

type message struct {
	frame    []byte // or what is left of it
	attached bool
}

// nowBytes is the longest message that is written at once: the server's mutex is held meanwhile.
const nowBytes = 4 << 10

// post has a message sent. An engine that does not read is cut off: what it was not told is kept for it.
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

// end closes the connection when all has been sent.
func (c *conn) end(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.why = why
		c.begone()
		c.more.Signal()
	}
}

// keep has the door close it for no other: an engine that is attached does not give way to those that want to be.
func (c *conn) keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.kept = true
		c.guest.AddWork(1)
	}
}

// begone takes nothing more to be sent, and lets the door close it. With the mutex held.
func (c *conn) begone() {
	c.ending = true
	if c.kept {
		c.kept = false
		c.guest.AddWork(-1)
	}
}

// next returns what is to be sent next; false: nothing is any more.
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

// write sends messages until the connection ends.
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
			err = c.conn.SetWriteDeadline(time.Time{}) // With one that is over, nothing more would leave at once.
		}
		if err != nil {
			c.end("")
			return
		}
	}
}

// reason is why the server ended it; empty: it did not, or all is well.
func (c *conn) reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// frames gives every message to take, until the connection ends or take says so.
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

// stallMax is how long an engine may leave a message half read.
const stallMax = 10 * time.Second

// serve is one connection.
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
		_ = u.Close() // It takes nothing more, or sends what makes no sense.
	}
	writer.Wait()
	if why := c.reason(); why != "" {
		return errors.New(why)
	}
	return err
}

// strangerBytes bounds what is read of a process that may not attach.
const strangerBytes = 4 << 10

// admitted is the process that connected, or why it may not attach.
func admitted(conn net.Conn) (*peercred.Process, error) {
	if err := peercred.SameUser(conn); err != nil {
		return nil, err
	}
	return peercred.ProcessOf(conn)
}

// refuse tells a process that may not attach why: else it would see a connection that broke, as of an agent that is
// gone, and try again.
func (s *Server) refuse(c *conn, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.conns[c.id] = c
	s.step(func(m *session.Machine, out *session.Out) { m.Refuse(c.id, why.Error(), out) })
}

// admit lets the process that sent a first message import the memory of a device, if that is what pages are in, before it
// is told how. It says what number that process has there; 0: none was admitted.
func (s *Server) admit(body []byte) (int32, error) {
	if s.mapping.Export == nil {
		return 0, nil
	}
	var a protocol.AttachRequest
	if a.Decode(body, &s.wire) != nil || a.Process == 0 || a.Process > math.MaxInt32 {
		return 0, nil // The machine says what is wrong with it.
	}
	return int32(a.Process), s.node.Admit(int32(a.Process))
}

// attach begins with the first message of a connection.
func (s *Server) attach(c *conn, p *peercred.Process, body []byte) bool {
	admitted, err := s.admit(body)
	if err != nil {
		_ = p.Close()
		s.refuse(c, err)
		return false
	}
	// What is left of the admission when this ends is nobody's: the session had its own, or there is none.
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
