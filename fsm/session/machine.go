package session

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// Config configures a Machine. No field has a default.
type Config struct {
	// Told is the response to each engine that attaches; the machine fills in the session. Its Incarnation is the
	// agent's, and its Window is the number of calls that one engine may have open.
	Told protocol.AttachResponse
	// SessionsMax bounds the sessions of all engines, ProcessMax the sessions of one process, and HoldingsMax the
	// number of holdings of one engine.
	SessionsMax, ProcessMax, HoldingsMax int
	// CallBytesMax bounds the total Cost of the calls of one engine that are being carried out, in bytes. A single call
	// is carried out whatever it costs.
	CallBytesMax int
	Wire         protocol.Limits
}

// A Conn is a connection, and a Process is the process at its other end. The driver numbers both. Conns ascend from 1
// in the order in which connections are accepted, even if they attach in another order. The number of a Process is not
// used again as long as that process may run.
type (
	Conn    uint64
	Process uint64
)

// A Call names one call of one session. Numbers of sessions are never used again, nor are numbers of calls within a
// session.
type Call struct{ Session, ID uint64 }

// Out collects what the driver must do after a step, in order within each list.
type Out struct {
	Sends  []Send
	Begins []Begin // calls to carry out: completed by Ended
	Aborts []Call  // begun calls that should end soon and give back their memory
	Frees  []Free  // holdings to give back: completed by Freed
	Showns []Shown // results of a Show: the engine has read the chunks, or will not read them
	Closes []Close
	Drops  []Drop   // calls with records to remove
	Leaves []uint64 // sessions that have ended
}

// Reset empties all lists and keeps their memory.
func (o *Out) Reset() {
	*o = Out{Sends: o.Sends[:0], Begins: o.Begins[:0], Aborts: o.Aborts[:0], Frees: o.Frees[:0], Showns: o.Showns[:0],
		Closes: o.Closes[:0], Drops: o.Drops[:0], Leaves: o.Leaves[:0]}
}

// A Send is a message to an engine. Attached marks the message that describes the memory: the file descriptor of the
// memory travels with its first byte.
type Send struct {
	Conn     Conn
	Body     []byte // must not be changed, and stays valid
	Attached bool
}

// A Begin is a call to carry out. The data that it points to is valid until the machine's next step.
type Begin struct {
	Call
	Op   protocol.CallOp
	Body *protocol.EngineCall
}

// A Free gives a holding back without a call of the engine.
type Free struct {
	Session, Holding uint64
	Kind             Kind
}

// A Shown is the result of a Show.
type Shown struct {
	Call
	Code effects.Code // OK: the engine has read the chunks
}

// A Drop is a call of which nothing is kept any more. Left says that the engine of the call is gone.
type Drop struct {
	Call
	Left bool
}

// A Close is a connection to close after the messages that were sent to it.
type Close struct {
	Conn Conn
	Why  string // for people; empty if nothing is wrong
}

// A Machine manages the sessions of one agent. Its methods take what happened and append to an Out what the driver must
// do.
type Machine struct {
	cfg      Config `snap:"share"`
	last     uint64 // the newest session's number
	sessions []*session
	draining bool

	attach protocol.AttachRequest `snap:"scratch"`
	call   protocol.EngineCall    `snap:"scratch"`
	answer protocol.EngineAnswer  `snap:"scratch"`
	shown  protocol.EngineShown   `snap:"scratch"`
}

// New returns a machine without sessions.
func New(cfg Config) *Machine { return &Machine{cfg: cfg} }

// A session is the state of one attached engine.
type session struct {
	id      uint64
	process Process
	name    string
	conn    Conn // 0: parted, without a connection
	newest  Conn // the newest connection ever attached; the list of open calls on an older one is out of date
	leaving bool
	bye     uint64 // the detach call; 0: the engine has not detached
	// adopts says that the engine uses the pool as its own memory, and may write any page that no call of its own
	// concerns.
	//
	// Invariant (M3): while such a session exists, no other session has a call on blocks, and no other session adopts
	// the pool.
	adopts bool
	last   uint64 // the newest call's number
	calls  []*call
	holds  []*holding
}

// Sessions returns the number of sessions, including those that are parted or leaving.
func (m *Machine) Sessions() int { return len(m.sessions) }

// Totals returns the number of open calls and of holdings of all engines.
func (m *Machine) Totals() (calls, holdings int) {
	for _, s := range m.sessions {
		calls, holdings = calls+len(s.calls), holdings+len(s.holds)
	}
	return calls, holdings
}

// session returns the session with the number, or nil.
func (m *Machine) session(id uint64) *session {
	for _, s := range m.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// of returns the session that is attached by the connection, or nil.
func (m *Machine) of(c Conn) *session {
	for _, s := range m.sessions {
		if s.conn == c {
			return s
		}
	}
	return nil
}

// An Attached describes the engine at the other end of a connection. The zero value means that no engine is attached
// there.
type Attached struct {
	ID   uint64 // the session's number
	Name string
}

// Of returns the engine that is attached by the connection.
func (m *Machine) Of(c Conn) Attached {
	if s := m.of(c); s != nil {
		return Attached{s.id, s.name}
	}
	return Attached{}
}

// Attach handles the first message of a connection, and begins a session, or resumes the session that the message names
// if that session belongs to the same process. Otherwise the engine is refused with a reason, and the connection
// closes.
func (m *Machine) Attach(c Conn, p Process, body []byte, out *Out) {
	a := &m.attach
	if err := a.Decode(body, &m.cfg.Wire); err != nil {
		m.turnAway(c, effects.Malformed, err.Error(), out)
		return
	}
	if a.Version != protocol.AttachVersion {
		m.turnAway(c, effects.Unsupported, "v is "+decimal(uint64(a.Version))+", and this agent's is "+
			decimal(protocol.AttachVersion)+"; use the package of the agent's version", out)
		return
	}
	if len(m.cfg.Told.DeviceKey) > 0 && a.Process == 0 {
		m.turnAway(c, effects.Unsupported, "the pool is memory of NPU "+decimal(uint64(m.cfg.Told.Device))+", which an "+
			"engine imports by AscendCL; attach from a program that uses this NPU, or set pd_buffer_device: cpu", out)
		return
	}
	s := m.session(a.Session)
	resumed := s != nil && a.Incarnation == m.cfg.Told.Incarnation
	switch {
	case !resumed && m.draining:
		m.turnAway(c, effects.Draining, "this agent ends; attach to another", out)
		return
	case !resumed && a.Adopts && !m.hasBlocks():
		m.turnAway(c, effects.Unsupported, "the pool has chunks of many requests, and no engine can have it as its own "+
			"memory; set register.engine_id, or let the engine copy", out)
		return
	case !resumed && a.Adopts && m.inUse():
		m.turnAway(c, effects.TooMany, "another engine has this pool as its own memory, or blocks of it are still lent; "+
			"end that engine, or wait until they are back", out)
		return
	case !resumed && !m.roomOf(p, out):
		m.turnAway(c, effects.TooMany, "this process has "+decimal(uint64(m.attachedOf(p)))+" engines attached, and one "+
			"process may have "+decimal(uint64(m.cfg.ProcessMax))+" of --engines="+decimal(uint64(m.cfg.SessionsMax))+
			"; close clients that it does not use, or raise --engines", out)
		return
	case !resumed && !m.room(out):
		m.turnAway(c, effects.TooMany, decimal(uint64(len(m.sessions)))+" engines are attached, of --engines="+
			decimal(uint64(m.cfg.SessionsMax))+"; raise it, or end one: what a living process holds is its own", out)
		return
	case resumed && (s.process != p || s.leaving):
		m.turnAway(c, effects.Refused, "session "+decimal(a.Session)+" is another process's, or ends; begin a new one", out)
		return
	case resumed && c < s.newest:
		m.turnAway(c, effects.Refused, "the engine has connected again since, and goes on there", out)
		return
	case resumed:
		if s.conn != 0 {
			out.Closes = append(out.Closes, Close{s.conn, "the engine has attached again"})
		}
	default:
		m.last++
		s = &session{id: m.last, process: p, adopts: a.Adopts}
		m.sessions = append(m.sessions, s)
	}
	s.conn, s.newest, s.name = c, c, string(a.Name)
	told := m.cfg.Told
	told.Session, told.Resumed = s.id, resumed
	out.Sends = append(out.Sends, Send{Conn: c, Body: told.Append(nil), Attached: true})
	if resumed {
		m.resume(s, a.Open, out)
	}
}

// hasBlocks reports whether pages of the pool are blocks, which engines name by number.
func (m *Machine) hasBlocks() bool {
	return slices.ContainsFunc(m.cfg.Told.Sides, func(side []byte) bool { return string(side) == sideBlocks })
}

// sideBlocks names the side of a node with blocks as pages.
const sideBlocks = "blocks"

// inUse reports whether an engine that adopts the pool would have to share the pool. The answer is true if another
// session has adopted the pool, even if its connection is cut and nothing is in progress, because that engine's process
// may be computing into any page. The answer is also true if a call on blocks is not over, because peers may still be
// writing there. A session that is leaving keeps the calls that still use memory, and therefore counts (M3).
func (m *Machine) inUse() bool {
	return slices.ContainsFunc(m.sessions, func(s *session) bool {
		return s.adopts || slices.ContainsFunc(s.calls, func(c *call) bool { return onBlocks(c.op) && !c.over() })
	})
}

// adopted reports whether an engine other than that of s uses the pool as its own memory.
func (m *Machine) adopted(s *session) bool {
	return slices.ContainsFunc(m.sessions, func(x *session) bool { return x != s && x.adopts })
}

// room reports whether another engine can attach. If the table is full, room ends a session that is parted and has
// nothing, such as the session of an engine that never received its response and attached anew.
func (m *Machine) room(out *Out) bool {
	return len(m.sessions) < m.cfg.SessionsMax || m.endParted(out, func(*session) bool { return true })
}

// roomOf reports whether another engine of the process can attach. The limit keeps a single process from taking all
// sessions.
func (m *Machine) roomOf(p Process, out *Out) bool {
	return m.attachedOf(p) < m.cfg.ProcessMax || m.endParted(out, func(s *session) bool { return s.process == p })
}

// attachedOf returns the number of sessions of the process.
func (m *Machine) attachedOf(p Process) (n int) {
	for _, s := range m.sessions {
		if s.process == p {
			n++
		}
	}
	return n
}

// endParted ends one session that is parted and has nothing and for which may returns true, and reports whether there
// was one.
func (m *Machine) endParted(out *Out, may func(*session) bool) bool {
	for _, s := range m.sessions {
		if s.conn == 0 && s.idle() && !s.leaving && !s.adopts && may(s) {
			m.leave(s, out)
			return true
		}
	}
	return false
}

// Refuse tells an engine why it may not attach, and closes its connection.
func (m *Machine) Refuse(c Conn, why string, out *Out) { m.turnAway(c, effects.Refused, why, out) }

// turnAway refuses a connection.
func (m *Machine) turnAway(c Conn, code effects.Code, why string, out *Out) {
	told := protocol.AttachResponse{Version: protocol.AttachVersion, Incarnation: m.cfg.Told.Incarnation, Code: uint32(code),
		Reason: []byte(why), Device: m.cfg.Told.Device, DeviceBytes: m.cfg.Told.DeviceBytes, Format: m.cfg.Told.Format,
		Shape: m.cfg.Told.Shape, Dtype: m.cfg.Told.Dtype}
	out.Sends = append(out.Sends, Send{Conn: c, Body: told.Append(nil)})
	out.Closes = append(out.Closes, Close{c, why})
}

// resume sends again what may have been lost with the old connection, and drops the calls that the engine no longer
// waits for. open lists the calls for which it still waits.
func (m *Machine) resume(s *session, open []uint64, out *Out) {
	for _, c := range slices.Clone(s.calls) {
		if !slices.Contains(open, c.id) {
			m.forget(s, c, out)
			continue
		}
		if c.answer != nil {
			m.send(s, c.answer, out)
		}
		if c.show != nil {
			m.send(s, c.show, out)
		}
		if c.held && c.returned {
			m.sendReturned(s, c, out)
		}
	}
}

// send sends a message to the session's engine, if the engine is connected.
func (m *Machine) send(s *session, body []byte, out *Out) {
	if s.conn != 0 {
		out.Sends = append(out.Sends, Send{Conn: s.conn, Body: body})
	}
}

// sendReturned reports to the engine that the memory of a call is back.
func (m *Machine) sendReturned(s *session, c *call, out *Out) {
	m.send(s, (&protocol.EngineReturned{ID: c.id}).Append(nil), out)
}

// Cut reports that a connection is gone. The engine's holdings remain.
func (m *Machine) Cut(c Conn, _ *Out) {
	if s := m.of(c); s != nil {
		s.conn = 0
	}
}

// Exited reports that a process is gone, and with it every thread that might touch a page. All sessions of that process
// leave.
func (m *Machine) Exited(p Process, out *Out) {
	for _, s := range slices.Clone(m.sessions) {
		if s.process == p {
			if s.conn != 0 { // Another process may hold the other end of the connection.
				out.Closes = append(out.Closes, Close{Conn: s.conn})
				s.conn = 0
			}
			m.leave(s, out)
		}
	}
}

// Drain refuses engines that are not attached yet, and ends each session as soon as it has no open calls and no
// holdings.
func (m *Machine) Drain(out *Out) {
	m.draining = true
	for _, s := range slices.Clone(m.sessions) {
		m.left(s, out)
	}
}

// hangUp closes the connection of an engine that breaks the protocol. The session and its holdings remain.
func (m *Machine) hangUp(s *session, why string, out *Out) {
	if s.conn != 0 {
		out.Closes = append(out.Closes, Close{s.conn, why})
		s.conn = 0
	}
}

// leave begins the end of a session: its calls are aborted, and its holdings are given back as soon as nothing uses
// them.
func (m *Machine) leave(s *session, out *Out) {
	if s.leaving {
		m.left(s, out)
		return
	}
	s.leaving = true
	for _, c := range slices.Clone(s.calls) {
		if c.id != s.bye {
			m.forget(s, c, out)
		}
	}
	for _, h := range slices.Clone(s.holds) {
		m.settle(s, h, out)
	}
	m.left(s, out)
}

// left ends a leaving session that has no calls and no holdings any more. While the machine drains, left also makes an
// idle session leave.
func (m *Machine) left(s *session, out *Out) {
	if m.draining && !s.leaving && s.idle() {
		m.leave(s, out)
		return
	}
	rest := len(s.calls)
	if s.bye != 0 {
		rest--
	}
	if !s.leaving || rest > 0 || len(s.holds) > 0 {
		return
	}
	if s.conn != 0 {
		if s.bye != 0 {
			m.send(s, (&protocol.EngineAnswer{ID: s.bye}).Append(nil), out)
		}
		out.Closes = append(out.Closes, Close{Conn: s.conn})
	}
	m.sessions = slices.DeleteFunc(m.sessions, func(x *session) bool { return x == s })
	out.Leaves = append(out.Leaves, s.id)
}

// idle reports whether the session has no holdings and all its calls are over.
func (s *session) idle() bool {
	return len(s.holds) == 0 && !slices.ContainsFunc(s.calls, func(c *call) bool { return !c.over() })
}

// decimal returns n in decimal digits.
func decimal(n uint64) string {
	var b [20]byte
	at := len(b)
	for {
		at--
		b[at] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[at:])
		}
	}
}
