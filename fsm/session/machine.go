package session

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// Config configures a Machine. No field has a default.
type Config struct {
	// Response is the response to each engine that attaches; the machine fills in the session. Its Incarnation is the
	// agent's, and its Window is the number of calls of one engine that the machine keeps at a time: calls without an
	// answer, and calls whose answer the engine has not acknowledged.
	Response protocol.AttachResponse
	// SessionsMax bounds the sessions of all engines, ProcessMax the sessions of one process, and HoldingsMax the
	// number of holdings of one engine.
	SessionsMax, ProcessMax, HoldingsMax int
	// CallBytesMax bounds the total CallCost of the calls of one engine that are being carried out, in bytes. A single
	// call is carried out whatever it costs.
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

// A CallRef names one call of one session. Numbers of sessions are never used again, nor are numbers of calls within a
// session.
type CallRef struct{ Session, ID uint64 }

// Effects collects what the driver of a Machine must do after a step, in order within each list. They are not the
// effects of package effects, which a rank's driver carries out.
type Effects struct {
	Sends         []Send
	Begins        []Begin      // calls to carry out: completed by OnCallEnded
	Aborts        []CallRef    // begun calls that should end soon and give back their memory
	Frees         []Free       // holdings to give back: completed by OnHoldingFreed
	ShowResults   []ShowResult // results of a ShowChunks: the engine has read the chunks, or will not read them
	Closes        []Close
	Drops         []Drop   // calls with records to remove
	EndedSessions []uint64 // sessions that have ended
}

// Reset empties all lists and keeps their memory.
func (o *Effects) Reset() {
	*o = Effects{Sends: o.Sends[:0], Begins: o.Begins[:0], Aborts: o.Aborts[:0], Frees: o.Frees[:0], ShowResults: o.ShowResults[:0],
		Closes: o.Closes[:0], Drops: o.Drops[:0], EndedSessions: o.EndedSessions[:0]}
}

// A Send is a message to an engine. WithMemory marks the message that describes the memory: the file descriptor of the
// memory travels with its first byte.
type Send struct {
	Conn       Conn
	Body       []byte // must not be changed, and stays valid
	WithMemory bool
}

// A Begin is a call to carry out. The data that it points to is valid until the machine's next step.
type Begin struct {
	CallRef
	Op   protocol.CallOp
	Body *protocol.EngineCall
}

// A Free gives a holding back without a call of the engine.
type Free struct {
	Session, Holding uint64
	Kind             HoldingKind
}

// A ShowResult is the result of a ShowChunks.
type ShowResult struct {
	CallRef
	Code effects.Code // OK: the engine has read the chunks
}

// A Drop is a call of which nothing is kept any more. SessionLeaving says that the session of the call is leaving: after a
// detach, the exit of the process, during a drain, or to make room for another engine.
type Drop struct {
	CallRef
	SessionLeaving bool
}

// A Close is a connection to close after the messages that were sent to it.
type Close struct {
	Conn Conn
	Why  string // for people; empty if nothing is wrong
}

// A Machine manages the sessions of one agent. Its methods take what happened and append to an Effects what the driver
// must do.
type Machine struct {
	cfg         Config `snap:"share"`
	lastSession uint64 // the newest session's number
	sessions    []*session
	draining    bool

	attachRequest protocol.AttachRequest `snap:"scratch"`
	engineCall    protocol.EngineCall    `snap:"scratch"`
	engineAnswer  protocol.EngineAnswer  `snap:"scratch"`
	engineShown   protocol.EngineShown   `snap:"scratch"`
}

// New returns a machine without sessions.
func New(cfg Config) *Machine { return &Machine{cfg: cfg} }

// A session is the state of one attached engine.
type session struct {
	id         uint64
	process    Process
	name       string
	conn       Conn // 0: parted, without a connection
	newestConn Conn // the newest connection ever attached; the list of awaited calls on an older one is out of date
	leaving    bool
	detachCall uint64 // the detach call; 0: the engine has not detached
	// adoptsPool says that the engine uses the pool as its own memory, and may write any page that no call of its own
	// concerns.
	//
	// Invariant (M3): while such a session exists, no other session has a call on blocks, and no other session adopts
	// the pool.
	adoptsPool bool
	lastCall   uint64 // the newest call's number
	calls      []*call
	holdings   []*holding
}

// CountSessions returns the number of sessions, including those that are parted or leaving.
func (m *Machine) CountSessions() int { return len(m.sessions) }

// Totals returns the number of kept calls and of holdings of all engines.
func (m *Machine) Totals() (calls, holdings int) {
	for _, s := range m.sessions {
		calls, holdings = calls+len(s.calls), holdings+len(s.holdings)
	}
	return calls, holdings
}

// findSession returns the session with the number, or nil.
func (m *Machine) findSession(id uint64) *session {
	for _, s := range m.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// sessionByConn returns the session that is attached by the connection, or nil.
func (m *Machine) sessionByConn(c Conn) *session {
	for _, s := range m.sessions {
		if s.conn == c {
			return s
		}
	}
	return nil
}

// An AttachedEngine describes the engine at the other end of a connection. The zero value means that no engine is
// attached there.
type AttachedEngine struct {
	ID   uint64 // the session's number
	Name string
}

// EngineOf returns the engine that is attached by the connection.
func (m *Machine) EngineOf(c Conn) AttachedEngine {
	if s := m.sessionByConn(c); s != nil {
		return AttachedEngine{s.id, s.name}
	}
	return AttachedEngine{}
}

// HandleAttach handles the first message of a connection, and begins a session, or resumes the session that the message
// names if that session belongs to the same process. Otherwise the engine is refused with a reason, and the connection
// closes.
func (m *Machine) HandleAttach(c Conn, p Process, body []byte, out *Effects) {
	a := &m.attachRequest
	if err := a.Decode(body, &m.cfg.Wire); err != nil {
		m.refuseConn(c, effects.Malformed, err.Error(), out)
		return
	}
	if a.Version != protocol.AttachVersion {
		m.refuseConn(c, effects.Unsupported, "v is "+formatDecimal(uint64(a.Version))+", and this agent's is "+
			formatDecimal(protocol.AttachVersion)+"; use the package of the agent's version", out)
		return
	}
	if len(m.cfg.Response.DeviceKey) > 0 && a.Process == 0 {
		m.refuseConn(c, effects.Unsupported, "the pool is memory of NPU "+formatDecimal(uint64(m.cfg.Response.Device))+", which an "+
			"engine imports by AscendCL; attach from a program that uses this NPU, or set pd_buffer_device: cpu", out)
		return
	}
	s := m.findSession(a.Session)
	namesLiveSession := s != nil && a.Incarnation == m.cfg.Response.Incarnation
	switch {
	case !namesLiveSession && m.draining:
		m.refuseConn(c, effects.Draining, "this agent ends; attach to another", out)
		return
	case !namesLiveSession && a.Adopts && !m.hasBlocks():
		m.refuseConn(c, effects.Unsupported, "the pool has chunks of many requests, and no engine can have it as its own "+
			"memory; set register.engine_id, or let the engine copy", out)
		return
	case !namesLiveSession && a.Adopts && m.poolInUse():
		m.refuseConn(c, effects.TooMany, "another engine has this pool as its own memory, or blocks of it are still lent; "+
			"end that engine, or wait until they are back", out)
		return
	case !namesLiveSession && !m.makeRoomFor(p, out):
		m.refuseConn(c, effects.TooMany, "this process has "+formatDecimal(uint64(m.countSessionsOf(p)))+" engines attached, and one "+
			"process may have "+formatDecimal(uint64(m.cfg.ProcessMax))+" of --engines="+formatDecimal(uint64(m.cfg.SessionsMax))+
			"; close clients that it does not use, or raise --engines", out)
		return
	case !namesLiveSession && !m.makeRoom(out):
		m.refuseConn(c, effects.TooMany, formatDecimal(uint64(len(m.sessions)))+" engines are attached, of --engines="+
			formatDecimal(uint64(m.cfg.SessionsMax))+"; raise it, or end one: what a living process holds is its own", out)
		return
	case namesLiveSession && (s.process != p || s.leaving):
		m.refuseConn(c, effects.Refused, "session "+formatDecimal(a.Session)+" is another process's, or ends; begin a new one", out)
		return
	case namesLiveSession && c < s.newestConn:
		m.refuseConn(c, effects.Refused, "the engine has connected again since, and goes on there", out)
		return
	case namesLiveSession:
		if s.conn != 0 {
			out.Closes = append(out.Closes, Close{s.conn, "the engine has attached again"})
		}
	default:
		m.lastSession++
		s = &session{id: m.lastSession, process: p, adoptsPool: a.Adopts}
		m.sessions = append(m.sessions, s)
	}
	s.conn, s.newestConn, s.name = c, c, string(a.Name)
	response := m.cfg.Response
	response.Session, response.Resumed = s.id, namesLiveSession
	out.Sends = append(out.Sends, Send{Conn: c, Body: response.Append(nil), WithMemory: true})
	if namesLiveSession {
		m.resumeSession(s, a.Open, out)
	}
}

// hasBlocks reports whether pages of the pool are blocks, which engines name by number.
func (m *Machine) hasBlocks() bool {
	return slices.ContainsFunc(m.cfg.Response.Sides, func(side []byte) bool { return string(side) == sideBlocks })
}

// sideBlocks names the side of a node with blocks as pages.
const sideBlocks = "blocks"

// poolInUse reports whether an engine that adopts the pool would have to share the pool. The answer is true if another
// session has adopted the pool, even if its connection is cut and nothing is in progress, because that engine's process
// may be computing into any page. The answer is also true if a call on blocks is not over, because peers may still be
// writing there. A session that is leaving keeps the calls that still use memory, and therefore counts (M3).
func (m *Machine) poolInUse() bool {
	return slices.ContainsFunc(m.sessions, func(s *session) bool {
		return s.adoptsPool || slices.ContainsFunc(s.calls, func(c *call) bool { return touchesBlocks(c.op) && !c.isOver() })
	})
}

// adoptedElsewhere reports whether an engine other than that of s uses the pool as its own memory.
func (m *Machine) adoptedElsewhere(s *session) bool {
	return slices.ContainsFunc(m.sessions, func(x *session) bool { return x != s && x.adoptsPool })
}

// makeRoom reports whether another engine can attach. If the table is full, it ends an idle parted session, such as the
// session of an engine that never received its response and attached anew. The answers of that session are dropped.
func (m *Machine) makeRoom(out *Effects) bool {
	return len(m.sessions) < m.cfg.SessionsMax || m.endParted(out, func(*session) bool { return true })
}

// makeRoomFor does the same for the limit of sessions of one process. The limit keeps a single process from taking all
// sessions.
func (m *Machine) makeRoomFor(p Process, out *Effects) bool {
	return m.countSessionsOf(p) < m.cfg.ProcessMax || m.endParted(out, func(s *session) bool { return s.process == p })
}

// countSessionsOf returns the number of sessions of the process.
func (m *Machine) countSessionsOf(p Process) (n int) {
	for _, s := range m.sessions {
		if s.process == p {
			n++
		}
	}
	return n
}

// endParted ends one idle parted session for which eligible returns true, and reports whether there was one.
func (m *Machine) endParted(out *Effects, eligible func(*session) bool) bool {
	for _, s := range m.sessions {
		if s.conn == 0 && s.isIdle() && !s.leaving && !s.adoptsPool && eligible(s) {
			m.beginLeaving(s, out)
			return true
		}
	}
	return false
}

// RefuseAttach tells an engine why it may not attach, and closes its connection.
func (m *Machine) RefuseAttach(c Conn, why string, out *Effects) {
	m.refuseConn(c, effects.Refused, why, out)
}

// refuseConn refuses a connection.
func (m *Machine) refuseConn(c Conn, code effects.Code, why string, out *Effects) {
	response := protocol.AttachResponse{Version: protocol.AttachVersion, Incarnation: m.cfg.Response.Incarnation, Code: uint32(code),
		Reason: []byte(why), Device: m.cfg.Response.Device, DeviceBytes: m.cfg.Response.DeviceBytes, Format: m.cfg.Response.Format,
		Shape: m.cfg.Response.Shape, Dtype: m.cfg.Response.Dtype}
	out.Sends = append(out.Sends, Send{Conn: c, Body: response.Append(nil)})
	out.Closes = append(out.Closes, Close{c, why})
}

// resumeSession sends again what may have been lost with the old connection, and drops the calls that the engine no
// longer waits for. open lists the calls for which it still waits.
func (m *Machine) resumeSession(s *session, open []uint64, out *Effects) {
	for _, c := range slices.Clone(s.calls) {
		if !slices.Contains(open, c.id) {
			m.abandonCall(s, c, out)
			continue
		}
		if c.answer != nil {
			m.sendMessage(s, c.answer, out)
		}
		if c.showMessage != nil {
			m.sendMessage(s, c.showMessage, out)
		}
		if c.answeredHeld && c.memoryReturned {
			m.sendReturned(s, c, out)
		}
	}
}

// sendMessage sends a message to the session's engine, if the engine is connected.
func (m *Machine) sendMessage(s *session, body []byte, out *Effects) {
	if s.conn != 0 {
		out.Sends = append(out.Sends, Send{Conn: s.conn, Body: body})
	}
}

// sendReturned reports to the engine that the memory of a call is back.
func (m *Machine) sendReturned(s *session, c *call, out *Effects) {
	m.sendMessage(s, (&protocol.EngineReturned{ID: c.id}).Append(nil), out)
}

// OnConnLost reports that a connection is gone. The engine's holdings remain.
func (m *Machine) OnConnLost(c Conn, _ *Effects) {
	if s := m.sessionByConn(c); s != nil {
		s.conn = 0
	}
}

// OnProcessExit reports that a process is gone, and with it every thread that might touch a page. All sessions of that
// process leave.
func (m *Machine) OnProcessExit(p Process, out *Effects) {
	for _, s := range slices.Clone(m.sessions) {
		if s.process == p {
			if s.conn != 0 { // Another process may hold the other end of the connection.
				out.Closes = append(out.Closes, Close{Conn: s.conn})
				s.conn = 0
			}
			m.beginLeaving(s, out)
		}
	}
}

// Drain refuses engines that are not attached yet, and ends each session as soon as all its calls are over and it has
// no holdings.
func (m *Machine) Drain(out *Effects) {
	m.draining = true
	for _, s := range slices.Clone(m.sessions) {
		m.finishLeaving(s, out)
	}
}

// closeConn closes the connection of an engine that breaks the protocol. The session and its holdings remain.
func (m *Machine) closeConn(s *session, why string, out *Effects) {
	if s.conn != 0 {
		out.Closes = append(out.Closes, Close{s.conn, why})
		s.conn = 0
	}
}

// beginLeaving begins the end of a session: its calls are aborted, and its holdings are given back as soon as nothing
// uses them.
func (m *Machine) beginLeaving(s *session, out *Effects) {
	if s.leaving {
		m.finishLeaving(s, out)
		return
	}
	s.leaving = true
	for _, c := range slices.Clone(s.calls) {
		if c.id != s.detachCall {
			m.abandonCall(s, c, out)
		}
	}
	for _, h := range slices.Clone(s.holdings) {
		m.endIfUnused(s, h, out)
	}
	m.finishLeaving(s, out)
}

// finishLeaving ends a leaving session that has no calls and no holdings any more. While the machine drains,
// finishLeaving also makes an idle session leave.
func (m *Machine) finishLeaving(s *session, out *Effects) {
	if m.draining && !s.leaving && s.isIdle() {
		m.beginLeaving(s, out)
		return
	}
	rest := len(s.calls)
	if s.detachCall != 0 {
		rest--
	}
	if !s.leaving || rest > 0 || len(s.holdings) > 0 {
		return
	}
	if s.conn != 0 {
		if s.detachCall != 0 {
			m.sendMessage(s, (&protocol.EngineAnswer{ID: s.detachCall}).Append(nil), out)
		}
		out.Closes = append(out.Closes, Close{Conn: s.conn})
	}
	m.sessions = slices.DeleteFunc(m.sessions, func(x *session) bool { return x == s })
	out.EndedSessions = append(out.EndedSessions, s.id)
}

// isIdle reports whether the session has no holdings and all its calls are over.
func (s *session) isIdle() bool {
	return len(s.holdings) == 0 && !slices.ContainsFunc(s.calls, func(c *call) bool { return !c.isOver() })
}

// formatDecimal returns n in decimal digits.
func formatDecimal(n uint64) string {
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
