package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A seek is a Bring or Locate without a named peer. Directories are asked which peers have the chunks. The named
// peers are then asked in turn: each by a get of its own, if the peer is said to have a longer prefix than is present
// here by then.
type seek struct {
	ticket   effects.Ticket
	how      Bring // the command without its request and keys
	locates  bool  // it is a Locate: peers are not asked
	lookup   []byte
	keys     []byte
	ends     []uint32 // ends[i] is the end of key i in keys
	deadline effects.Time
	// timer fires at deadline. It is stopped while a get is in progress, which has the same deadline.
	timer kernel.TimerID `snap:"set"`
	// from is the number of first chunks that were present when directories were asked.
	from     uint32
	question table.Handle // the lookup at directories
	holders  []holder     // the peers that the directories named
	tried    uint32       // how many of these were tried
	// promised is the length of the prefix that the latest of these is said to have.
	promised uint32
	// cut says that this peer has more chunks but lends no more at a time.
	cut  bool
	get  table.Handle // the get in progress; zero: none
	code effects.Code // the outcome of the previous get
	why  effects.Why
}

// Locate asks directories how many of these chunks, from the first on, a single other node is said to have: Hits of
// the outcome. If no directory can be asked, the outcome is NotFound. Locate transfers nothing and promises nothing.
type Locate struct {
	Keys     [][]byte
	Patience effects.Duration // 0: the configured default of a Bring
}

// IsCommand marks a command body.
func (*Locate) IsCommand() {}

// Seeks are the Brings and Locates of a Requester without a named peer.
type Seeks struct {
	rows    table.Slab[seek]
	ready   table.List // seeks with a new result
	lookups registrar.Lookups
	keys    [][]byte `snap:"scratch"`
}

func (l *Seeks) emptied(c registrar.Config, most uint32) Seeks {
	if len(c.Directories) == 0 {
		most = 0
	}
	return Seeks{rows: l.rows.Emptied(int(most)), lookups: l.lookups.Emptied(c), keys: l.keys}
}

// Len returns the number of seeks.
func (l *Seeks) Len() int { return l.rows.Len() }

// Lookups returns the lookups at directories.
func (l *Seeks) Lookups() *registrar.Lookups { return &l.lookups }

// takes reports whether a Bring is a seek: it names no peer, and directories are configured.
func (l *Seeks) takes(c *Bring) bool { return c.From == (Peer{}) && l.lookups.Any() }

// A holder is a peer that may have the first chunks of a lookup.
type holder struct {
	peer   Peer
	chunks uint32
}

func (s *seek) size() int { return len(s.ends) }

func (s *seek) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = s.ends[i-1]
	}
	return s.keys[from:s.ends[i]]
}

func seekRef(h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2PRequester, Kind: kindSeek, Subject: h}
}

// begin starts a seek: it asks directories for the chunks that are missing here.
func (l *Seeks) begin(e *flow.Env, t effects.Ticket, c *Bring, here uint32, patience effects.Duration, locates bool) (
	effects.Code, *effects.Why) {
	if l.rows.Full() {
		e.Out.Mark(Marks.BringsFull)
		return tooMany(l.rows.Max())
	}
	h, s := l.rows.Add()
	*s = seek{
		ticket: t, how: *c, locates: locates, lookup: append(s.lookup[:0], c.Request...), keys: s.keys[:0], ends: s.ends[:0],
		holders:  s.holders[:0],
		deadline: e.Now.Add(patience), from: here,
	}
	s.how.Request, s.how.Keys = nil, nil
	for _, key := range c.Keys {
		s.keys = append(s.keys, key...)
		s.ends = append(s.ends, uint32(len(s.keys)))
	}
	e.Tickets.Add(t, seekRef(h))
	e.Timers.Set(&s.timer, s.deadline, seekRef(h))
	s.question = l.lookups.Ask(&e.Env, seekRef(h), c.Keys[here:])
	return effects.OK, nil
}

// GoOn handles the answers of directories and the outcomes of gets, and starts the next gets of f. It reports whether
// work is left for the next step.
func (l *Seeks) GoOn(e *flow.Env, f *Requester) (left bool) {
	for _, a := range l.lookups.Answers() {
		l.named(e, &a)
	}
	l.lookups.HeardAnswers()
	for h := l.ready.Front(); h != 0; h = l.ready.Front() {
		if !e.Work.Left() {
			return true
		}
		e.Work.Spend(1)
		l.rows.Unlink(&l.ready, h)
		l.next(e, f, h)
	}
	return false
}

// named handles an answer of directories. An answer for an ended seek is ignored.
func (l *Seeks) named(e *flow.Env, a *registrar.Answer) {
	s := l.rows.Get(a.Who.Subject)
	if s == nil {
		e.Out.Mark(Marks.NamedLate)
		return
	}
	e.Timers.Stop(&s.timer)
	s.question = 0
	for i := range a.Holders {
		x := &a.Holders[i]
		s.holders = append(s.holders, holder{Peer{Host: x.At.Host, InitPort: x.At.Port}, s.from + uint32(x.Chunks)})
	}
	if a.Code != effects.OK {
		e.Out.Mark(Marks.NobodyAnswers)
		s.code, s.why = effects.NotFound, effects.Why{
			Stage: effects.StageAsk, Field: "controller_reply_url", Theirs: a.Code.String(), Ours: "an answer of a directory",
			Remedy: "see that one runs there; LMCache's own controller answers with share.vanilla_controller: true only",
		}
	}
	if !s.locates {
		l.rows.PushBack(&l.ready, a.Who.Subject)
		return
	}
	most := uint32(0)
	for i := range s.holders {
		most = max(most, s.holders[i].chunks)
	}
	l.finish(e, a.Who.Subject, most)
}

// locate handles a Locate.
func (l *Seeks) locate(e *flow.Env, t effects.Ticket, c *Locate, patience effects.Duration) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.Waitable("Patience", c.Patience)
	}
	switch {
	case code != effects.OK:
	case !l.lookups.Any():
		code, why = effects.Unsupported, &effects.Why{Field: "controller_reply_url", Theirs: "none",
			Ours: "a directory to ask"}
	default:
		code, why = l.begin(e, t, &Bring{Keys: c.Keys}, 0, patience, true)
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
	}
}

// ended handles the outcome of a get that a seek began.
func (l *Seeks) ended(h table.Handle, out *effects.Deliver, cut bool) {
	s := l.rows.Get(h)
	s.get, s.code, s.cut = 0, out.Code, cut
	if out.Why != nil {
		s.why = *out.Why
	}
	l.rows.PushBack(&l.ready, h)
}

// next starts a get from the next holder that may have more than is present here, or delivers the outcome of the
// seek.
func (l *Seeks) next(e *flow.Env, f *Requester, h table.Handle) {
	s := l.rows.Get(h)
	keys := l.wanted(s)
	here := prefix(e, s.how.Mode, e.Store.RequestHash(s.lookup), keys)
	if s.tried > 0 && here < s.promised && !s.cut {
		e.Out.Mark(Marks.NamedStale)
		l.lookups.Forget(keys[s.from:])
	}
	switch {
	case int(here) == len(keys):
		s.code = effects.OK
	case e.Draining:
		s.code = effects.Draining
	case s.code == effects.Cancelled || e.Abandons.Has(e.Now, e.Store.RequestHash(s.lookup)):
		s.code = effects.Cancelled
	case s.code == effects.NoMemory:
	case e.Now >= s.deadline:
		s.code = effects.Expired
	default:
		crowded := s.code == effects.TooMany
		// A holder that could not be asked, or had less than was said, costs a miss only.
		s.code = effects.NotFound
		if l.asks(e, f, h, here) {
			return
		}
		if crowded && s.code == effects.NotFound {
			s.code = effects.TooMany // A holder has the chunks and may lend them later.
		}
	}
	l.finish(e, h, here)
}

// asks starts a get from the next holder, and reports whether it did.
func (l *Seeks) asks(e *flow.Env, f *Requester, h table.Handle, here uint32) bool {
	s := l.rows.Get(h)
	for int(s.tried) < len(s.holders) {
		x := &s.holders[s.tried]
		if s.tried++; x.chunks <= here {
			continue
		}
		if f.frozen.LeftAlone(e.Now, whereOf(x.peer), 0) {
			e.Out.Mark(Marks.FrozenPassed)
			s.why = *f.whyFrozen()
			s.why.Addr = effects.Addr{Host: x.peer.Host, Port: x.peer.InitPort}
			continue
		}
		s.promised, s.cut = x.chunks, false
		c := s.how
		c.From, c.Request, c.Keys, c.Patience = x.peer, s.lookup, l.wanted(s), s.deadline.Sub(e.Now)
		code, why := f.begin(e, s.ticket, h, &c, here)
		if code == effects.OK {
			return true
		}
		s.code, s.why = code, *why
		return false
	}
	return false
}

// wanted returns the keys of a seek. The result is valid until the next call.
func (l *Seeks) wanted(s *seek) [][]byte {
	l.keys = l.keys[:0]
	for i := range s.size() {
		l.keys = append(l.keys, s.key(i))
	}
	return l.keys
}

// finish delivers the outcome of a seek and removes it.
func (l *Seeks) finish(e *flow.Env, h table.Handle, here uint32) {
	s := l.rows.Get(h)
	l.lookups.Cancel(&e.Env, s.question)
	e.Timers.Stop(&s.timer)
	if !s.locates {
		keep(e, l.wanted(s)[:here], e.Store.RequestHash(s.lookup))
	}
	out := effects.Deliver{Ticket: s.ticket, Code: s.code, Hits: here}
	if s.code != effects.OK {
		why := s.why
		if why.Stage == effects.StageNone {
			why.Stage = effects.StageAsk
		}
		if s.code == effects.NotFound && why.Field == "" && why.Said == "" {
			why.Field, why.Theirs = flow.At("Keys", int(here)), "missing"
		}
		out.Why = &why
	}
	e.Out.Deliver(out)
	e.Tickets.Remove(s.ticket)
	s.lookup, s.keys = table.ShedBytes(s.lookup), table.ShedBytes(s.keys)
	s.ends, s.holders = table.Shed(s.ends), table.Shed(s.holders)
	l.rows.Remove(h)
}

// stop delivers the outcome of a seek for a reason of this node. If a get is in progress, the get is stopped, and its
// outcome ends the seek.
func (l *Seeks) stop(e *flow.Env, f *Requester, h table.Handle, code effects.Code) {
	s := l.rows.Get(h)
	if r := f.gets.Get(s.get); r != nil {
		f.stop(e, s.get, r, code)
		return
	}
	if l.rows.Listed(h) {
		l.rows.Unlink(&l.ready, h)
	}
	here := uint32(0)
	if s.code, s.why = code, (effects.Why{}); !s.locates {
		here = prefix(e, s.how.Mode, e.Store.RequestHash(s.lookup), l.wanted(s))
	}
	l.finish(e, h, here)
}
