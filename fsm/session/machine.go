package session

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// Config is what a Machine must know. Nothing has a default.
type Config struct {
	// Told is what each engine is told when it attaches, but for its session. Its Life is the agent's, its Window how many
	// calls of one engine may be open.
	Told protocol.AttachResponse
	// SessionsMax bounds engines, ProcessMax those of one process, and HoldingsMax what one engine holds at a time.
	SessionsMax, ProcessMax, HoldingsMax int
	// CallBytesMax bounds what the calls of one engine take that are carried out, as Cost counts it. A single call is
	// carried out whatever it takes.
	CallBytesMax int
	Wire         protocol.Limits
}

// A Conn is a connection, a Process who is at its other end, by numbers of the driver's. Numbers of connections ascend
// as these are accepted, from 1, also where they attach in another order; a process's is not used again as long as it
// may run.
type (
	Conn    uint64
	Process uint64
)

// A Call names one of a session's. Numbers of sessions are never used again, nor are those of calls in one.
type Call struct{ Session, ID uint64 }

// Out is what a step wants done, in order within each list.
type Out struct {
	Sends  []Send
	Begins []Begin // calls to be carried out: one Ended answers each
	Aborts []Call  // begun calls that are to end soon, and to give back their memory
	Frees  []Free  // things to be given back: one Freed answers each
	Showns []Shown // what an engine has read, or will not
	Closes []Close
	Drops  []Drop   // calls that are forgotten
	Leaves []uint64 // sessions that are no more
}

// Reset forgets all of it, and keeps the memory.
func (o *Out) Reset() {
	*o = Out{Sends: o.Sends[:0], Begins: o.Begins[:0], Aborts: o.Aborts[:0], Frees: o.Frees[:0], Showns: o.Showns[:0],
		Closes: o.Closes[:0], Drops: o.Drops[:0], Leaves: o.Leaves[:0]}
}

// A Send is a message to an engine. Attached says that it tells of the memory: its first byte carries the file.
type Send struct {
	Conn     Conn
	Body     []byte // not to be changed, and valid for ever
	Attached bool
}

// A Begin is a call to be carried out. What it points to is valid until the machine's next step.
type Begin struct {
	Call
	Op   protocol.CallOp
	Body *protocol.EngineCall
}

// A Free is something that is given back without a call.
type Free struct {
	Session, Holding uint64
	Kind             Kind
}

// A Shown is how an engine took what was shown to it.
type Shown struct {
	Call
	Code effects.Code // OK: it has read it
}

// A Drop is a call of which nothing is kept any more. Left says that its engine is gone.
type Drop struct {
	Call
	Left bool
}

// A Close is a connection to be closed, after what was sent to it.
type Close struct {
	Conn Conn
	Why  string // for people; empty: all is well
}

// A Machine is the sessions of one agent. Its methods take what happened and append to an Out what is to be done.
type Machine struct {
	cfg      Config `snap:"share"`
	last     uint64 // session
	sessions []*session
	draining bool

	attach protocol.AttachRequest `snap:"scratch"`
	call   protocol.EngineCall    `snap:"scratch"`
	answer protocol.EngineAnswer  `snap:"scratch"`
	shown  protocol.EngineShown   `snap:"scratch"`
}

// New returns a machine without sessions.
func New(cfg Config) *Machine { return &Machine{cfg: cfg} }

// A session is one engine.
type session struct {
	id      uint64
	process Process
	name    string
	conn    Conn // 0: parted
	newest  Conn // that it ever had: what one before that says of open calls is not so any more
	leaving bool
	bye     uint64 // the call that made it leave; 0: none did
	// adopts says that the engine has the pool as its own memory, and may write any page that no call of its own has.
	// Invariant: while such a session stands, no other has a call on blocks, and no other adopts.
	adopts bool
	last   uint64 // call
	calls  []*call
	holds  []*holding
}

// Sessions is how many engines are attached, parted ones and those that leave included.
func (m *Machine) Sessions() int { return len(m.sessions) }

// Totals are the open calls and the holdings of all engines.
func (m *Machine) Totals() (calls, holdings int) {
	for _, s := range m.sessions {
		calls, holdings = calls+len(s.calls), holdings+len(s.holds)
	}
	return calls, holdings
}

func (m *Machine) session(id uint64) *session {
	for _, s := range m.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (m *Machine) of(c Conn) *session {
	for _, s := range m.sessions {
		if s.conn == c {
			return s
		}
	}
	return nil
}

// An Attached is who is at the other end of a connection; zero: nobody who is attached.
type Attached struct {
	ID   uint64 // of the session
	Name string
}

// Of returns who that is.
func (m *Machine) Of(c Conn) Attached {
	if s := m.of(c); s != nil {
		return Attached{s.id, s.name}
	}
	return Attached{}
}

// Attach takes the first message of a connection.
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

// hasBlocks says whether pages of the pool are blocks, which engines name by number.
func (m *Machine) hasBlocks() bool {
	return slices.ContainsFunc(m.cfg.Told.Sides, func(side []byte) bool { return string(side) == sideBlocks })
}

// sideBlocks is the side of a node whose pages are blocks.
const sideBlocks = "blocks"

// inUse says whether an engine that adopts the pool would have to share it: with one that has adopted it, be its
// connection cut and all quiet, because its process may be computing into any page; or with one of which a call on
// blocks is not over, because peers may still be writing there. A session that leaves has what its calls still use.
func (m *Machine) inUse() bool {
	return slices.ContainsFunc(m.sessions, func(s *session) bool {
		return s.adopts || slices.ContainsFunc(s.calls, func(c *call) bool { return onBlocks(c.op) && !c.over() })
	})
}

// adopted says whether an engine other than s has the pool as its own memory.
func (m *Machine) adopted(s *session) bool {
	return slices.ContainsFunc(m.sessions, func(x *session) bool { return x != s && x.adopts })
}

// room says whether another engine can attach. If need be one ends that is parted and has nothing: such as one whose
// engine never heard of it, and began anew.
func (m *Machine) room(out *Out) bool {
	return len(m.sessions) < m.cfg.SessionsMax || m.endParted(out, func(*session) bool { return true })
}

// roomOf says whether another engine of a process can attach: one process must not take the places of all.
func (m *Machine) roomOf(p Process, out *Out) bool {
	return m.attachedOf(p) < m.cfg.ProcessMax || m.endParted(out, func(s *session) bool { return s.process == p })
}

func (m *Machine) attachedOf(p Process) (n int) {
	for _, s := range m.sessions {
		if s.process == p {
			n++
		}
	}
	return n
}

// endParted ends a session that may be ended, is parted and has nothing, and says whether there was one.
func (m *Machine) endParted(out *Out, may func(*session) bool) bool {
	for _, s := range m.sessions {
		if s.conn == 0 && s.idle() && !s.leaving && !s.adopts && may(s) {
			m.leave(s, out)
			return true
		}
	}
	return false
}

// Refuse tells an engine that may not attach why. Its connection ends.
func (m *Machine) Refuse(c Conn, why string, out *Out) { m.turnAway(c, effects.Refused, why, out) }

// turnAway refuses a connection.
func (m *Machine) turnAway(c Conn, code effects.Code, why string, out *Out) {
	told := protocol.AttachResponse{Version: protocol.AttachVersion, Incarnation: m.cfg.Told.Incarnation, Code: uint32(code),
		Reason: []byte(why), Device: m.cfg.Told.Device, DeviceBytes: m.cfg.Told.DeviceBytes, Format: m.cfg.Told.Format,
		Shape: m.cfg.Told.Shape, Dtype: m.cfg.Told.Dtype}
	out.Sends = append(out.Sends, Send{Conn: c, Body: told.Append(nil)})
	out.Closes = append(out.Closes, Close{c, why})
}

// resume says again what may have been lost on the way, and forgets what the engine does not wait for.
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

func (m *Machine) send(s *session, body []byte, out *Out) {
	if s.conn != 0 {
		out.Sends = append(out.Sends, Send{Conn: s.conn, Body: body})
	}
}

func (m *Machine) sendReturned(s *session, c *call, out *Out) {
	m.send(s, (&protocol.EngineReturned{ID: c.id}).Append(nil), out)
}

// Cut says that a connection is no more. What its engine holds stays its own.
func (m *Machine) Cut(c Conn, _ *Out) {
	if s := m.of(c); s != nil {
		s.conn = 0
	}
}

// Exited says that a process is gone, and with it every thread that might touch a page.
func (m *Machine) Exited(p Process, out *Out) {
	for _, s := range slices.Clone(m.sessions) {
		if s.process == p {
			if s.conn != 0 { // Another may have its end.
				out.Closes = append(out.Closes, Close{Conn: s.conn})
				s.conn = 0
			}
			m.leave(s, out)
		}
	}
}

// Drain refuses engines that are not attached yet, and lets those that are go, each as soon as it has nothing open and
// holds nothing.
func (m *Machine) Drain(out *Out) {
	m.draining = true
	for _, s := range slices.Clone(m.sessions) {
		m.left(s, out)
	}
}

// hangUp closes the connection of an engine that breaks the protocol.
func (m *Machine) hangUp(s *session, why string, out *Out) {
	if s.conn != 0 {
		out.Closes = append(out.Closes, Close{s.conn, why})
		s.conn = 0
	}
}

// leave gives back what a session has, as soon as nothing uses it.
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

// left ends a session that has nothing any more.
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

// idle says that the engine has nothing here.
func (s *session) idle() bool {
	return len(s.holds) == 0 && !slices.ContainsFunc(s.calls, func(c *call) bool { return !c.over() })
}

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
