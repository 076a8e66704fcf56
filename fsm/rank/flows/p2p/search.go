package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A searchRow is a Bring or Locate without a named peer. Directories are asked which peers have the chunks. The named
// peers are then asked in turn: each by a get of its own, if the peer is said to have a longer prefix than is present
// here by then.
type searchRow struct {
	ticket   effects.Ticket
	command  Bring // the command without its request and keys
	isLocate bool  // it is a Locate: peers are not asked
	lookupID []byte
	keys     []byte
	keyEnds  []uint32 // keyEnds[i] is the end of key i in keys
	deadline effects.Time
	// timer fires at deadline. It is stopped while a get is in progress, which has the same deadline.
	timer kernel.TimerID `snap:"set"`
	since effects.Time   `snap:"skip"` // when the search began; for operators
	// presentCount is the number of first chunks that were present when directories were asked.
	presentCount    uint32
	directoryLookup table.Handle // the lookup at directories
	candidates      []candidate  // the peers that the directories named
	triedCount      uint32       // how many of these were tried
	// promisedChunks is the length of the prefix that the latest of these is said to have.
	promisedChunks uint32
	// shareUsedUp says that this peer has more chunks but lends no more at a time.
	shareUsedUp bool
	activeGet   table.Handle // the get in progress; zero: none
	code        effects.Code // the outcome of the previous get
	why         effects.Why
}

// Locate asks directories how many of these chunks, from the first on, a single other node is said to have: Hits of
// the outcome. If no directory can be asked, the outcome is NotFound. Locate transfers nothing and promises nothing.
type Locate struct {
	Keys    [][]byte
	Timeout effects.Duration // 0: the configured default of a Bring
}

// IsCommand marks a command body.
func (*Locate) IsCommand() {}

// Searches are the Brings and Locates of a Requester without a named peer.
type Searches struct {
	rows    table.Slab[searchRow]
	ready   table.List // seeks with a new result
	lookups registrar.Lookups
	keys    [][]byte `snap:"scratch"`
}

func (l *Searches) recycle(c registrar.Config, limit uint32) Searches {
	if len(c.Directories) == 0 {
		limit = 0
	}
	return Searches{rows: l.rows.Recycle(int(limit)), lookups: l.lookups.Recycle(c), keys: l.keys}
}

// Len returns the number of seeks.
func (l *Searches) Len() int { return l.rows.Len() }

// Lookups returns the lookups at directories.
func (l *Searches) Lookups() *registrar.Lookups { return &l.lookups }

// isSearch reports whether a Bring is a search: it names no peer, and directories are configured.
func (l *Searches) isSearch(c *Bring) bool { return c.From == (Peer{}) && l.lookups.HasDirectories() }

// A candidate is a peer that may have the first chunks of a lookup.
type candidate struct {
	peer   Peer
	chunks uint32
}

func (s *searchRow) keyCount() int { return len(s.keyEnds) }

func (s *searchRow) keyAt(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = s.keyEnds[i-1]
	}
	return s.keys[from:s.keyEnds[i]]
}

func searchRef(h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2PRequester, Kind: kindSearch, Subject: h}
}

// startSearch starts a search: it asks directories for the chunks that are missing here.
func (l *Searches) startSearch(e *flow.Env, t effects.Ticket, c *Bring, present uint32, timeout effects.Duration, isLocate bool) (
	effects.Code, *effects.Why) {
	if l.rows.Full() {
		e.Out.Mark(Marks.BringsFull)
		return bringsFullReason(l.rows.Max())
	}
	h, s := l.rows.Add()
	*s = searchRow{
		ticket: t, command: *c, isLocate: isLocate, lookupID: append(s.lookupID[:0], c.Request...), keys: s.keys[:0], keyEnds: s.keyEnds[:0],
		candidates: s.candidates[:0],
		deadline:   e.Now.Add(timeout), since: e.Now, presentCount: present,
	}
	s.command.Request, s.command.Keys = nil, nil
	for _, key := range c.Keys {
		s.keys = append(s.keys, key...)
		s.keyEnds = append(s.keyEnds, uint32(len(s.keys)))
	}
	e.Tickets.Add(t, searchRef(h))
	e.Timers.Set(&s.timer, s.deadline, searchRef(h))
	s.directoryLookup = l.lookups.StartLookup(&e.Env, searchRef(h), c.Keys[present:])
	return effects.OK, nil
}

// ContinueWork handles the answers of directories and the outcomes of gets, and starts the next gets of f. It reports
// whether work is left for the next step.
func (l *Searches) ContinueWork(e *flow.Env, f *Requester) (left bool) {
	for _, a := range l.lookups.Results() {
		l.handleDirectoryReply(e, &a)
	}
	l.lookups.ClearResults()
	for h := l.ready.Front(); h != 0; h = l.ready.Front() {
		if !e.Work.HasBudget() {
			return true
		}
		e.Work.SpendRows(1)
		l.rows.Unlink(&l.ready, h)
		l.continueSearch(e, f, h)
	}
	return false
}

// handleDirectoryReply handles an answer of directories. An answer for an ended search is ignored.
func (l *Searches) handleDirectoryReply(e *flow.Env, a *registrar.LookupResult) {
	s := l.rows.Get(a.Ref.Subject)
	if s == nil {
		e.Out.Mark(Marks.NamedLate)
		return
	}
	e.Timers.Stop(&s.timer)
	s.directoryLookup = 0
	for i := range a.Holders {
		x := &a.Holders[i]
		s.candidates = append(s.candidates, candidate{Peer{Host: x.At.Host, InitPort: x.At.Port}, s.presentCount + uint32(x.Chunks)})
	}
	if a.Code != effects.OK {
		e.Out.Mark(Marks.NobodyAnswers)
		s.code, s.why = effects.NotFound, effects.Why{
			Stage: effects.StageAsk, Field: "controller_reply_url", Theirs: a.Code.String(), Ours: "an answer of a directory",
			Remedy: "see that one runs there; LMCache's own controller answers with share.vanilla_controller: true only",
		}
	}
	if !s.isLocate {
		l.rows.PushBack(&l.ready, a.Ref.Subject)
		return
	}
	longest := uint32(0)
	for i := range s.candidates {
		longest = max(longest, s.candidates[i].chunks)
	}
	l.finishSearch(e, a.Ref.Subject, longest)
}

// startLocate handles a Locate.
func (l *Searches) startLocate(e *flow.Env, t effects.Ticket, c *Locate, timeout effects.Duration) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.CheckDuration("Timeout", c.Timeout)
	}
	switch {
	case code != effects.OK:
	case !l.lookups.HasDirectories():
		code, why = effects.Unsupported, &effects.Why{Field: "controller_reply_url", Theirs: "none",
			Ours: "a directory to ask"}
	default:
		code, why = l.startSearch(e, t, &Bring{Keys: c.Keys}, 0, timeout, true)
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
	}
}

// recordGetOutcome handles the outcome of a get that a search began.
func (l *Searches) recordGetOutcome(h table.Handle, out *effects.Deliver, shareUsedUp bool) {
	s := l.rows.Get(h)
	s.activeGet, s.code, s.shareUsedUp = 0, out.Code, shareUsedUp
	if out.Why != nil {
		s.why = *out.Why
	}
	l.rows.PushBack(&l.ready, h)
}

// continueSearch starts a get from the next holder that may have more than is present here, or delivers the outcome of
// the search.
func (l *Searches) continueSearch(e *flow.Env, f *Requester, h table.Handle) {
	s := l.rows.Get(h)
	keys := l.listKeys(s)
	present := countPrefix(e, s.command.Mode, e.Store.HashRequest(s.lookupID), keys)
	if s.triedCount > 0 && present < s.promisedChunks && !s.shareUsedUp {
		e.Out.Mark(Marks.NamedStale)
		l.lookups.ForgetReply(keys[s.presentCount:])
	}
	switch {
	case int(present) == len(keys):
		s.code = effects.OK
	case e.Draining:
		s.code = effects.Draining
	case s.code == effects.Cancelled || e.Abandons.IsAbandoned(e.Now, e.Store.HashRequest(s.lookupID)):
		s.code = effects.Cancelled
	case s.code == effects.NoMemory:
	case e.Now >= s.deadline:
		s.code = effects.Expired
	default:
		shareWasUsedUp := s.code == effects.TooMany
		// A holder that could not be asked, or had less than was said, costs a miss only.
		s.code = effects.NotFound
		if l.startNextGet(e, f, h, present) {
			return
		}
		if shareWasUsedUp && s.code == effects.NotFound {
			s.code = effects.TooMany // A holder has the chunks and may lend them later.
		}
	}
	l.finishSearch(e, h, present)
}

// startNextGet starts a get from the next holder, and reports whether it did.
func (l *Searches) startNextGet(e *flow.Env, f *Requester, h table.Handle, present uint32) bool {
	s := l.rows.Get(h)
	for int(s.triedCount) < len(s.candidates) {
		x := &s.candidates[s.triedCount]
		if s.triedCount++; x.chunks <= present {
			continue
		}
		if f.breakers.IsOpen(e.Now, addrOf(x.peer), 0) {
			e.Out.Mark(Marks.FrozenPassed)
			s.why = *f.breakerOpenReason()
			s.why.Addr = effects.Addr{Host: x.peer.Host, Port: x.peer.InitPort}
			continue
		}
		s.promisedChunks, s.shareUsedUp = x.chunks, false
		c := s.command
		c.From, c.Request, c.Keys, c.Timeout = x.peer, s.lookupID, l.listKeys(s), s.deadline.Sub(e.Now)
		code, why := f.startGet(e, s.ticket, h, &c, present)
		if code == effects.OK {
			return true
		}
		s.code, s.why = code, *why
		return false
	}
	return false
}

// listKeys returns the keys of a search. The result is valid until the next call.
func (l *Searches) listKeys(s *searchRow) [][]byte {
	l.keys = l.keys[:0]
	for i := range s.keyCount() {
		l.keys = append(l.keys, s.keyAt(i))
	}
	return l.keys
}

// finishSearch delivers the outcome of a search and removes it.
func (l *Searches) finishSearch(e *flow.Env, h table.Handle, present uint32) {
	s := l.rows.Get(h)
	l.lookups.CancelLookup(&e.Env, s.directoryLookup)
	e.Timers.Stop(&s.timer)
	if !s.isLocate {
		claimPresent(e, l.listKeys(s)[:present], e.Store.HashRequest(s.lookupID))
	}
	out := effects.Deliver{Ticket: s.ticket, Code: s.code, Hits: present}
	if s.code != effects.OK {
		why := s.why
		if why.Stage == effects.StageNone {
			why.Stage = effects.StageAsk
		}
		if s.code == effects.NotFound && why.Field == "" && why.Said == "" {
			why.Field, why.Theirs = flow.EntryName("Keys", int(present)), "missing"
		}
		out.Why = &why
	}
	e.Out.Deliver(out)
	e.Tickets.Remove(s.ticket)
	s.lookupID, s.keys = table.TrimBytes(s.lookupID), table.TrimBytes(s.keys)
	s.keyEnds, s.candidates = table.TrimSlice(s.keyEnds), table.TrimSlice(s.candidates)
	l.rows.Remove(h)
}

// failSearch delivers the outcome of a search for a reason of this node. If a get is in progress, the get is stopped, and
// its outcome ends the search.
func (l *Searches) failSearch(e *flow.Env, f *Requester, h table.Handle, code effects.Code) {
	s := l.rows.Get(h)
	if r := f.gets.Get(s.activeGet); r != nil {
		f.failGet(e, s.activeGet, r, code)
		return
	}
	if l.rows.InList(h) {
		l.rows.Unlink(&l.ready, h)
	}
	present := uint32(0)
	if s.code, s.why = code, (effects.Why{}); !s.isLocate {
		present = countPrefix(e, s.command.Mode, e.Store.HashRequest(s.lookupID), l.listKeys(s))
	}
	l.finishSearch(e, h, present)
}
