package session

import (
	"flag"
	"maps"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

func (w *world) some(n int) int { return w.rnd.IntN(n) }

// asks has an engine call for something that it may.
func (e *engine) asks() {
	w := e.w
	ids := map[HoldingKind][]uint64{}
	any := slices.Sorted(maps.Keys(e.had))
	for _, id := range any {
		if h := e.had[id]; !h.giving {
			ids[h.kind] = append(ids[h.kind], id)
		}
	}
	if len(any) > 0 && w.some(12) == 0 { // Of another kind, or what it gives back: it is to be told so.
		e.ask([]protocol.CallOp{protocol.CallPut, protocol.CallAwaitReturn}[w.some(2)], any[w.some(len(any))], 0)
		return
	}
	if w.blocks && w.some(3) == 0 {
		e.ask([]protocol.CallOp{protocol.CallRegister, protocol.CallFinished}[w.some(2)], 0, 0)
		return
	}
	one := func(k HoldingKind) uint64 {
		if len(ids[k]) == 0 {
			return 0
		}
		return ids[k][w.some(len(ids[k]))]
	}
	ops := []protocol.CallOp{
		protocol.CallReserve, protocol.CallGet, protocol.CallContains, protocol.CallPut, protocol.CallRelease,
		protocol.CallAwaitReturn, protocol.CallShare, protocol.CallWithdraw, protocol.CallBeginPrefill,
		protocol.CallSaveLayer, protocol.CallFinishPrefill, protocol.CallDropPrefill, protocol.CallFetch, protocol.CallAbort,
		protocol.CallDetach,
	}
	if len(any) > 0 && w.some(2) == 0 {
		ops = ops[3:12] // About what it has.
	}
	switch op := ops[w.some(len(ops))]; op {
	case protocol.CallReserve, protocol.CallGet, protocol.CallContains, protocol.CallBeginPrefill, protocol.CallFetch:
		e.ask(op, 0, 0)
	case protocol.CallPut, protocol.CallRelease, protocol.CallAwaitReturn, protocol.CallShare:
		if id := one(Pages); id != 0 {
			e.ask(op, id, 0)
		}
	case protocol.CallWithdraw:
		if id := one(Share); id != 0 {
			e.ask(op, id, 0)
		}
	case protocol.CallSaveLayer:
		if id := one(Prefill); id != 0 {
			e.ask(op, one(Pages), id)
		}
	case protocol.CallFinishPrefill, protocol.CallDropPrefill:
		if id := one(Prefill); id != 0 {
			e.ask(op, 0, id)
		}
	case protocol.CallAbort:
		if open := e.open(); len(open) > 0 {
			e.ask(op, open[w.some(len(open))], 0)
		}
	case protocol.CallDetach:
		if w.some(4) == 0 {
			e.ask(op, 0, 0)
		}
	}
}

// lie has an engine say anything: numbers of others, what is over, what never was, and what is no message.
func (e *engine) lie() {
	w := e.w
	number := func() uint64 { return uint64(w.some(6)) }
	if e.s == nil || w.some(5) == 0 {
		e.s, e.inbox = w.connect(e.process), nil
		m := protocol.AttachRequest{Version: protocol.AttachVersion, Session: number()}
		m.Incarnation = lifeOf(w.life - w.some(2))
		for range w.some(4) {
			m.Open = append(m.Open, number())
		}
		e.say(m.Append(nil))
		return
	}
	switch w.some(6) {
	case 0:
		e.say([]byte{0xC1, 0, 0})
	case 1:
		e.say((&protocol.EngineShown{ID: number(), First: uint32(number())}).Append(nil))
	default:
		all := protocol.CallOps()
		e.last += number()
		m := protocol.EngineCall{ID: e.last, Op: []byte(all[w.some(len(all))].String())}
		if w.some(2) == 0 {
			m.Target = number()
		}
		if w.some(3) == 0 {
			m.Prefill = number()
		}
		for range w.some(3) {
			m.Done = append(m.Done, uint64(w.some(int(e.last)+1)))
		}
		e.say(m.Append(nil))
	}
}

// note tells what happens.
func (w *world) note(format string, args ...any) {
	if *tell {
		w.t.Logf(format, args...)
	}
}

// turn lets one thing happen.
func (w *world) turn() {
	e := w.engines[w.some(len(w.engines))]
	e.write()
	switch w.some(28) {
	case 0, 1, 2, 3, 4, 5, 24, 25, 26, 27:
		switch {
		case e.gone || e.frozen:
		case e.lies:
			e.lie()
		case e.s == nil:
			e.connect()
		default:
			e.asks()
		}
	case 6, 7, 8, 9:
		if !e.gone && !e.frozen && e.s != nil {
			e.takes()
		}
	case 10, 11, 12, 13:
		if len(w.streams) > 0 {
			s := w.streams[w.some(len(w.streams))]
			most := len(s.up)
			if w.some(3) == 0 {
				most = w.some(most + 1)
			}
			w.arrive(s, most)
		}
	case 14, 15, 16, 17:
		if all := sortedWorks(w); len(all) > 0 {
			if h := all[w.some(len(all))]; !w.works[h].ended || w.some(4) == 0 { // Memory comes back slowly.
				w.end(h, w.some(4) > 0)
			}
		}
	case 18:
		if all := sortedWorks(w); len(all) > 0 {
			w.show(all[w.some(len(all))])
		}
	case 19:
		if len(w.frees) > 0 {
			w.freed(w.some(len(w.frees)))
		}
	case 20:
		if e.s != nil {
			w.cut(e.s)
		}
	case 21:
		if !e.gone && !e.lies && e.s != nil && w.some(3) == 0 {
			e.connect() // It gives up a connection that it has.
		}
		e.frozen = !e.frozen && w.some(3) == 0
	case 22:
		switch {
		case e.gone && !w.exited[e.process]:
			w.told(e)
		case e.gone:
			w.engines[slices.Index(w.engines, e)] = w.newEngine(e.lies)
		case w.some(4) == 0:
			w.die(e)
		}
	case 23:
		switch w.some(20) {
		case 0:
			w.start()
		case 1:
			w.draining = true
			w.step(w.m.Drain)
		}
	}
	w.keep()
}

// takes lets an engine read, if it is not a liar: those do not care.
func (e *engine) takes() {
	if e.lies {
		if e.s.down = nil; e.s.shutAgent {
			e.s = nil
		}
		return
	}
	e.read()
}

// keep forgets streams that are over.
func (w *world) keep() {
	w.streams = slices.DeleteFunc(w.streams, func(s *stream) bool { return s.over })
}

// settle ends all faults, and lets everything happen that is still to: calls of who is gone end only because they are
// aborted.
func (w *world) settle() {
	for _, e := range w.engines {
		if e.frozen = false; e.lies {
			w.die(e)
		}
		if e.gone && !w.exited[e.process] {
			w.told(e)
		}
	}
	for range 12 {
		for _, e := range w.engines {
			if e.gone {
				continue
			}
			if e.s == nil {
				e.connect()
			}
			e.write()
			e.read()
		}
		for _, s := range slices.Clone(w.streams) {
			w.arrive(s, len(s.up))
		}
		w.keep()
		for _, h := range sortedWorks(w) {
			if k := w.works[h]; k != nil && (k.aborted || !w.gone(h.Session)) {
				w.end(h, true)
			}
		}
		for len(w.frees) > 0 {
			w.freed(0)
		}
		w.giveBack(!w.draining) // Whoever is left as it drains has another agent to go to.
	}
}

// giveBack has engines release what they hold, or end what they share alone: pages wait for that.
func (w *world) giveBack(shares bool) {
	for _, e := range w.engines {
		for _, id := range slices.Sorted(maps.Keys(e.had)) {
			if h := e.had[id]; !e.gone && !h.giving {
				switch {
				case h.kind == Share:
					e.ask(protocol.CallWithdraw, id, 0)
				case shares:
				case h.kind == Pages:
					e.ask(protocol.CallRelease, id, 0)
				default:
					e.ask(protocol.CallDropPrefill, 0, id)
				}
			}
		}
	}
}

// rest looks at what is left when everything has happened.
func (w *world) rest() {
	holds := 0
	for _, e := range w.engines {
		if e.gone {
			continue
		}
		if open := e.open(); len(open) > 0 {
			w.t.Fatalf("calls %d of engine %d have no end: %v", open, e.process, e.calls[open[0]].op)
		}
		if !e.attached && !w.draining && !e.adopts { // Else another one may have the pool as its own memory.
			w.t.Fatalf("engine %d gets nowhere", e.process)
		}
		holds += len(e.had)
	}
	if len(w.works) > 0 {
		w.t.Fatalf("calls go on: %v", sortedWorks(w))
	}
	if calls, holdings := w.m.Totals(); holdings != len(w.holds) || holdings != holds {
		w.t.Fatalf("%d things are held, %d for the machine, %d as engines know; %d calls", len(w.holds), holdings, holds,
			calls)
	}
	for i, p := range w.pages {
		if p.owner != (handle{}) && w.holds[p.owner] == nil || p.lent != (handle{}) {
			w.t.Fatalf("page %d is nobody's, and not free", i)
		}
	}
}

var (
	seeds = flag.Uint64("session.seeds", 2000, "so many worlds are tried")
	first = flag.Uint64("session.first", 0, "the first one")
	tell  = flag.Bool("session.log", false, "tell what happens")
)

// TestEngines lets engines do anything, and an agent meet anything. A seed is a world: -session.first=17
// -session.seeds=1 is one of them again.
func TestEngines(t *testing.T) {
	for seed := *first; seed < *first+*seeds && !t.Failed(); seed++ {
		done := false
		defer func() {
			if !done && seed != 0 {
				t.Logf("in the world of seed %d", seed)
			}
		}()
		live(t, seed)
		done = true
	}
}

// live is one world, from its beginning to its end.
func live(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	for range 1 + w.some(800) {
		w.turn()
	}
	w.settle()
	w.rest()
	// Then whoever is left detaches, or dies, or gives back all that it has and the agent drains.
	switch how := w.some(3); {
	case how == 0 && !w.draining:
		for _, e := range w.engines {
			if !e.gone && (e.attached || !e.adopts) && !e.ask(protocol.CallDetach, 0, 0) {
				t.Fatalf("engine %d cannot detach", e.process)
			}
		}
	case how == 1:
		for _, e := range w.engines {
			w.die(e)
		}
	case !w.draining:
		w.draining = true
		w.step(w.m.Drain)
	}
	w.settle()
	alive := 0
	for _, e := range w.engines {
		if !e.gone && !w.draining {
			alive++
		}
	}
	calls, holdings := w.m.Totals()
	if n := w.m.CountSessions(); alive == 0 && n > 0 || holdings+len(w.holds)+len(w.works) > 0 || alive == 0 && calls > 0 {
		t.Fatalf("%d engines of %d are attached at the end, with %d calls and %d holdings", n, alive, calls, holdings)
	}
}
