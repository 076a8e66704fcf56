package session

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A world has an agent whose calls take any time and end anyhow, and engines in processes of their own: some do as
// docs/protocol-agent.md says, some say anything. Connections are cut at any byte, processes die and freeze, the agent
// begins anew or drains. Whose each page is, and what reads it, the world keeps for itself.
type world struct {
	t   *testing.T
	rnd *rand.Rand
	lim protocol.Limits
	m   *Machine
	out Effects
	cfg Config

	life     int
	draining bool
	pages    [pagesOfAll]page
	engines  []*engine
	streams  []*stream
	conns    Conn
	process  Process

	// The driver's, of this life.
	works    map[handle]*work
	holds    map[handle]*held
	frees    []Free
	begun    map[handle]bool
	owners   map[uint64]*engine // of sessions, as they were told
	exited   map[Process]bool
	whose    map[uint64]Process // of sessions, as they began
	left     map[uint64]bool    // sessions whose engine has detached
	unwanted map[handle]bool    // calls that their engines have ended early
	back     map[handle]bool    // calls whose memory is back

	missed int

	// blocks says that pages are blocks, and that engines have the pool as their own memory: adopts has the sessions of
	// those that do.
	blocks bool
	adopts map[uint64]bool
}

const (
	pagesOfAll  = 6
	sessionsMax = 3
	processMax  = 2
	windowMax   = 4
	holdingsMax = 3
)

// A handle is a call, or what it brought, in one life of the agent.
type handle struct {
	life int
	CallRef
}

type page struct {
	owner handle // zero: it is free
	lent  handle // the fetch that shows it
}

// A work is a call that is carried out, or whose memory is not back.
type work struct {
	op      protocol.CallOp
	uses    []handle
	ends    handle
	ended   bool // its answer is out, and said held
	aborted bool
	shows   *int // page that is shown, and not read
	first   int
}

// A held is what is held.
type held struct {
	kind  HoldingKind
	pages []uint64
	of    handle // of what is shared: its pages
}

func lifeOf(n int) protocol.UUID                { return protocol.UUID{1, byte(n)} }
func (w *world) lifeOf(id protocol.UUID) int    { return int(id[1]) }
func (w *world) call(session, id uint64) handle { return handle{w.life, CallRef{session, id}} }
func (w *world) of(c CallRef) handle            { return handle{w.life, c} }
func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), lim: protocol.DefaultLimits(), blocks: seed%3 == 0}
	w.start()
	for range 3 {
		w.engines = append(w.engines, w.newEngine(false))
	}
	w.engines[2].lies = w.some(3) == 0
	return w
}

func (w *world) newEngine(lies bool) *engine {
	w.process++
	return &engine{w: w, process: w.process, lies: lies, calls: map[uint64]*asked{}, had: map[uint64]*had{},
		adopts: w.blocks && !lies && w.some(3) > 0}
}

// start begins the agent's next life: its memory is another one, and its sessions are none.
func (w *world) start() {
	for _, s := range w.streams {
		s.shutAgent, s.shutEngine, s.over, s.up = true, true, true, nil
	}
	w.life++
	w.streams, w.draining, w.frees, w.pages = nil, false, nil, [pagesOfAll]page{}
	w.works, w.holds, w.begun = map[handle]*work{}, map[handle]*held{}, map[handle]bool{}
	w.adopts = map[uint64]bool{}
	w.owners, w.left, w.whose = map[uint64]*engine{}, map[uint64]bool{}, map[uint64]Process{}
	if w.exited = map[Process]bool{}; w.back == nil {
		w.unwanted, w.back = map[handle]bool{}, map[handle]bool{}
	}
	w.cfg = Config{
		Response: protocol.AttachResponse{
			Version: protocol.AttachVersion, Incarnation: lifeOf(w.life), Window: windowMax, Format: protocol.FormatKV2LTD,
			Dtype: protocol.DtypeBFloat16, Shape: protocol.Shape{Dims: [protocol.ShapeRank]uint32{2, 1, 16, 2}, N: 4},
		},
		SessionsMax: sessionsMax, ProcessMax: processMax, HoldingsMax: holdingsMax, CallBytesMax: 1 << 20, Wire: w.lim,
	}
	if w.blocks {
		w.cfg.Response.Sides = [][]byte{[]byte("blocks")}
	}
	w.m = New(w.cfg)
}

// computes says whether an engine other than that of a session may be computing into any page.
func (w *world) computes(session uint64) bool {
	for other := range w.adopts {
		if other != session && !w.gone(other) {
			return true
		}
	}
	return false
}

// adopted checks that whoever has the pool as its own memory from now on is alone there.
func (w *world) adopted(session uint64) {
	if w.computes(session) {
		w.t.Fatalf("session %d has the pool as its own memory while another engine computes there", session)
	}
	for h, k := range w.works {
		if touchesBlocks(k.op) {
			w.t.Fatalf("session %d has the pool as its own memory while peers touch blocks of call %v", session, h.CallRef)
		}
	}
	w.adopts[session] = true
}

func (w *world) connect(p Process) *stream {
	w.conns++
	s := &stream{id: w.conns, process: p, life: w.life}
	w.streams = append(w.streams, s)
	return s
}

// step has the machine do something, and carries out what it wants as runtime/attach does.
func (w *world) step(f func(out *Effects)) {
	w.out.Reset()
	f(&w.out)
	for _, x := range w.out.Sends {
		if s := w.stream(x.Conn); s != nil && !s.shutAgent {
			s.down = protocol.AppendFrame(s.down, x.Body)
		}
	}
	for _, x := range w.out.Begins {
		w.note("  begin %v %v of %d, %d", x.CallRef, x.Op, x.Body.Target, x.Body.Prefill)
		w.begin(x)
	}
	for _, x := range w.out.Aborts {
		w.note("  abort %v", x)
		w.abort(x)
	}
	for _, x := range w.out.ShowResults {
		k := w.works[w.of(x.CallRef)]
		if k == nil || k.shows == nil {
			w.t.Fatalf("call %v has been shown something, as is said, and nobody showed it", x.CallRef)
		}
		w.pages[*k.shows].lent = handle{}
		k.shows = nil
	}
	for _, x := range w.out.Frees {
		w.note("  free %v", x)
		w.free(x)
	}
	for _, x := range w.out.Closes {
		w.note("  close %d: %s", x.Conn, x.Why)
		if s := w.stream(x.Conn); s != nil {
			if w.honest(s) && s.attached && x.Why != "" && !s.shutEngine {
				w.t.Fatalf("engine %d, which does nothing wrong, is cut off: %s", s.process, x.Why)
			}
			s.shutAgent = true
		}
	}
	for _, id := range w.out.EndedSessions {
		w.note("  session %d is no more", id)
		w.leaves(id)
	}
	w.bounds()
}

func (w *world) stream(c Conn) *stream {
	if i := slices.IndexFunc(w.streams, func(s *stream) bool { return s.id == c }); i >= 0 {
		return w.streams[i]
	}
	return nil
}

// honest says whether whoever is at the other end of a stream does as he is told.
func (w *world) honest(s *stream) bool {
	return slices.ContainsFunc(w.engines, func(e *engine) bool { return e.process == s.process && !e.lies })
}

// gone says that a session's engine has nothing there any more, as it said itself or as its process did.
func (w *world) gone(session uint64) bool { return w.left[session] || w.exited[w.whose[session]] }

// lies says whether the engine of a session says anything.
func (w *world) lies(session uint64) bool {
	for _, e := range w.engines {
		if e.process == w.whose[session] {
			return e.lies
		}
	}
	return false
}

func (w *world) begin(b Begin) {
	h := w.of(b.CallRef)
	if w.begun[h] {
		w.t.Fatalf("call %v is begun twice", b.CallRef)
	}
	if b.Body.ID != b.ID {
		w.t.Fatalf("call %v is begun by the words of call %d", b.CallRef, b.Body.ID)
	}
	w.begun[h] = true
	if touchesBlocks(b.Op) && w.computes(b.Session) {
		w.t.Fatalf("call %v (%v) is begun on blocks in which another engine computes", b.CallRef, b.Op)
	}
	k := &work{op: b.Op}
	p := holdingRules[b.Op]
	for _, u := range []struct {
		id   uint64
		kind HoldingKind
	}{{b.Body.Target, p.target}, {b.Body.Prefill, Prefill}} {
		if u.id == 0 || u.kind == NoHolding {
			continue
		}
		x := w.call(b.Session, u.id)
		if held := w.holds[x]; held == nil || held.kind != u.kind {
			w.t.Fatalf("call %v (%v) is begun about %d, which its engine does not hold", b.CallRef, b.Op, u.id)
		}
		for other, o := range w.works {
			if o.ends == x {
				w.t.Fatalf("call %v (%v) is begun about %d, which call %v ends", b.CallRef, b.Op, u.id, other)
			}
		}
		k.uses = append(k.uses, x)
	}
	if p.endsHolding {
		if len(k.uses) != 1 {
			w.t.Fatalf("call %v (%v) ends nothing", b.CallRef, b.Op)
		}
		k.ends, k.uses = k.uses[0], nil
		w.unused(k.ends, "call", b.CallRef)
	}
	w.works[h] = k
}

// unused checks that nothing uses what is given back.
func (w *world) unused(h handle, what string, by any) {
	for other, o := range w.works {
		if slices.Contains(o.uses, h) || o.ends == h {
			w.t.Fatalf("%s %v ends what call %v brought while call %v uses it", what, by, h.CallRef, other.CallRef)
		}
	}
	for other, o := range w.holds {
		if o.of == h {
			w.t.Fatalf("%s %v ends what call %v brought while %v of it is shared", what, by, h.CallRef, other.CallRef)
		}
	}
}

func (w *world) abort(c CallRef) {
	h := w.of(c)
	k := w.works[h]
	if k == nil {
		w.t.Fatalf("call %v is to be aborted, and is not under way", c)
	}
	if !w.unwanted[h] && !w.gone(c.Session) && !w.lies(c.Session) {
		w.t.Fatalf("call %v (%v) is aborted although its engine waits for it", c, k.op)
	}
	k.aborted = true
}

func (w *world) free(x Free) {
	h := w.call(x.Session, x.Holding)
	held := w.holds[h]
	switch {
	case held == nil || held.kind != x.Kind:
		w.t.Fatalf("%v of call %v is to be given back, and is not held", x.Kind, h.CallRef)
	case slices.Contains(w.frees, x):
		w.t.Fatalf("%v of call %v is given back twice", x.Kind, h.CallRef)
	case !w.gone(x.Session) && !w.lies(x.Session):
		w.t.Fatalf("%v of call %v is given back although its engine has it", x.Kind, h.CallRef)
	}
	w.unused(h, "giving back", x)
	w.frees = append(w.frees, x)
}

func (w *world) leaves(id uint64) {
	if e := w.owners[id]; !w.gone(id) && !w.draining && e != nil && e.attached && e.session == id && !e.s.shutAgent {
		w.t.Fatalf("session %d is no more, and its engine is there", id)
	}
	if w.adopts[id] && !w.gone(id) && !w.draining {
		w.t.Fatalf("session %d is no more, and its engine may be computing in the pool", id)
	}
	for h := range w.works {
		if h.Session == id {
			w.t.Fatalf("session %d is no more while call %v goes on", id, h.CallRef)
		}
	}
	for h := range w.holds {
		if h.Session == id {
			w.t.Fatalf("session %d is no more while %v is held", id, h.CallRef)
		}
	}
	w.left[id] = true
}

// bounds hold whatever engines say.
func (w *world) bounds() {
	if n := w.m.CountSessions(); n > sessionsMax {
		w.t.Fatalf("%d engines are attached", n)
	}
	of := map[Process]int{}
	for _, s := range w.m.sessions {
		if of[s.process]++; of[s.process] > processMax {
			w.t.Fatalf("process %d has %d of %d places", s.process, of[s.process], sessionsMax)
		}
		calls := len(s.calls)
		if calls > windowMax || s.countHoldings() > holdingsMax {
			w.t.Fatalf("session %d has %d calls, and holds or may hold %d", s.id, calls, s.countHoldings())
		}
	}
}

// end ends what a call has to do, well or not.
func (w *world) end(h handle, well bool) {
	k := w.works[h]
	if k.ended {
		w.back[h] = true
		w.touches(h, k)
		delete(w.works, h)
		w.note("returned %v", h.CallRef)
		w.step(func(out *Effects) { w.m.OnMemoryReturned(h.CallRef, out) })
		return
	}
	if k.shows != nil {
		if !k.aborted {
			return // It waits for its engine.
		}
		w.pages[*k.shows].lent = handle{}
	}
	w.touches(h, k)
	a := protocol.EngineAnswer{ID: h.ID}
	if k.aborted {
		well = well && w.some(2) == 0 // It had ended as it was aborted.
	}
	if !well {
		a.Code = uint32(effects.Failed)
	}
	var x *held
	if kind := holdingRules[k.op].creates; kind != NoHolding && well {
		x = &held{kind: kind}
		switch kind {
		case Pages:
			if i := slices.IndexFunc(w.pages[:], func(p page) bool { return p.owner == handle{} }); i >= 0 {
				w.pages[i].owner, x.pages = h, []uint64{uint64(i)}
			} else {
				a.Code, x = uint32(effects.TooMany), nil
			}
		case Share:
			x.of = k.uses[0]
		}
	}
	if x != nil {
		w.holds[h] = x
		a.Hits, a.Pages, a.Lengths = 1, x.pages, make([]uint64, len(x.pages))
	}
	if k.op == protocol.CallPut || k.op == protocol.CallFinishPrefill || touchesBlocks(k.op) {
		a.Held = w.some(2) == 0
	}
	stands := false
	if k.ends != (handle{}) {
		if stands = !well; !stands {
			w.dropped(k.ends)
			k.ends = handle{}
		}
	}
	if k.ended = a.Held; !k.ended {
		w.back[h] = true
		delete(w.works, h)
	}
	k.ends = handle{}
	w.note("ended %v %v: code %d, brought %v, stands %v, held %v", h.CallRef, k.op, a.Code, x != nil, stands, a.Held)
	w.step(func(out *Effects) { w.m.OnCallEnded(h.CallRef, &a, x != nil, stands, out) })
}

// touches checks that what a call uses was its engine's until now.
func (w *world) touches(h handle, k *work) {
	for _, u := range k.uses {
		x := w.holds[u]
		if x == nil {
			w.t.Fatalf("call %v (%v) uses what call %v brought, which is not held any more", h.CallRef, k.op, u.CallRef)
		}
		for _, p := range x.pages {
			if w.pages[p].owner != u {
				w.t.Fatalf("call %v (%v) uses page %d, which is given to %v by now", h.CallRef, k.op, p, w.pages[p].owner)
			}
		}
	}
}

// dropped has a driver give back what is held.
func (w *world) dropped(h handle) {
	w.unused2(h)
	for _, p := range w.holds[h].pages {
		w.pages[p].owner = handle{}
	}
	delete(w.holds, h)
}

func (w *world) unused2(h handle) {
	for other, o := range w.works {
		if slices.Contains(o.uses, h) {
			w.t.Fatalf("what call %v brought is given back while call %v uses it", h.CallRef, other.CallRef)
		}
	}
}

func (w *world) freed(i int) {
	x := w.frees[i]
	w.frees = slices.Delete(w.frees, i, i+1)
	w.dropped(w.call(x.Session, x.Holding))
	w.step(func(out *Effects) { w.m.OnHoldingFreed(x.Session, x.Holding, out) })
}

// arrive lets the agent read from a stream: so many bytes that a frame may be half there.
func (w *world) arrive(s *stream, most int) {
	part := s.up[:min(most, len(s.up))]
	rest := s.up[len(part):]
	for {
		body, after, ok := protocol.CutFrame(part)
		if !ok {
			break
		}
		part = after
		w.heard(s, body)
	}
	s.up = append(slices.Clone(part), rest...)
	if !s.over && s.shutEngine && len(rest) == 0 { // What is left is half a frame.
		s.over, s.shutAgent = true, true
		w.step(func(out *Effects) { w.m.OnConnLost(s.id, out) })
	}
}

func (w *world) heard(s *stream, body []byte) {
	if s.shutAgent {
		return // The server does not read on.
	}
	if s.first {
		w.step(func(out *Effects) { w.m.HandleMessage(s.id, body, out) })
		return
	}
	s.first = true
	w.note("attach on %d", s.id)
	if w.exited[s.process] {
		s.shutAgent = true // The kernel knows that it is gone.
		return
	}
	w.step(func(out *Effects) {
		w.m.HandleAttach(s.id, s.process, body, out)
		if x := w.m.EngineOf(s.id); x.ID != 0 {
			if p, known := w.whose[x.ID]; known && p != s.process {
				w.t.Fatalf("process %d takes over session %d of process %d", s.process, x.ID, p)
			}
			var m protocol.AttachRequest
			w.must(m.Decode(body, &w.lim))
			if _, known := w.whose[x.ID]; m.Adopts && !known {
				w.adopted(x.ID)
			}
			w.whose[x.ID], s.attached = s.process, true
		}
	})
}

func (w *world) cut(s *stream) {
	s.up = s.up[:w.some(len(s.up)+1)]
	s.down = s.down[:w.some(len(s.down)+1)]
	s.shutAgent, s.shutEngine = true, true
}

// die ends a process. The agent hears of it later, and so it may of its connection.
func (w *world) die(e *engine) {
	e.gone = true
	if e.s != nil {
		e.s.shutEngine = true
	}
}

func (w *world) told(e *engine) {
	w.note("process %d is gone", e.process)
	w.exited[e.process] = true
	w.step(func(out *Effects) { w.m.OnProcessExit(e.process, out) })
}

func sortedWorks(w *world) []handle {
	return slices.SortedFunc(maps.Keys(w.works), func(a, b handle) int {
		if c := compareIDs(a.Session, b.Session); c != 0 {
			return c
		}
		return compareIDs(a.ID, b.ID)
	})
}

// show shows a page to a fetch. It is some page of the cache's: no engine holds it.
func (w *world) show(h handle) {
	k := w.works[h]
	i := slices.IndexFunc(w.pages[:], func(p page) bool { return p == page{} })
	if k.op != protocol.CallFetch || k.shows != nil || i < 0 {
		return
	}
	w.pages[i].lent, k.shows = h, &i
	k.first++
	w.step(func(out *Effects) { w.m.ShowChunks(h.CallRef, k.first, []uint64{uint64(i)}, []uint64{1}, out) })
}
