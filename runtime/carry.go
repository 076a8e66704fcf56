package runtime

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A world carries out one rank's effects: its hands do what any machine may want, pages go to the pool and the planes.
// All but tickets and facts is for the goroutine that steps the machine alone.
type world struct {
	hands
	memory memory
	planes []plane.Plane // in order of preference
	// imports and links tell whose an Import in progress and a Link are. Landings need no such table:
	// planes number them from one counter and ignore what is not theirs.
	imports map[effects.Corr]plane.Plane
	links   map[effects.Link]plane.Plane
	mailbox *mailbox
	// scatters counts the engine's calls that read the pool.
	scatters *scatters
}

// before learns whose a new Link is, and forgets the Links that ended.
func (w *world) before(ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Imported:
		if ev.Code == effects.OK {
			w.links[ev.Link] = w.imports[ev.Corr]
		}
		delete(w.imports, ev.Corr)
	case *effects.Dropped:
		delete(w.links, ev.Link)
	default: // The others are the machine's business alone.
	}
}

func (w *world) carryOut(e effects.Effect) {
	switch e := e.(type) {
	case *effects.Open, *effects.Close, *effects.Send, *effects.Post, *effects.Reply, *effects.Deliver, *effects.Return,
		*effects.Observe:
		w.load(e)
		w.hands.carryOut(e)
	case *effects.Import:
		w.importPeer(e)
	case *effects.Drop:
		w.drop(e.Link)
	case *effects.Publish:
		// Of the lives of the other pool, where there are two, nobody else is to know.
		if pool := w.memory.served(); len(e.Pages) > 0 && e.Pages[0].Pool == pool.ID() {
			pool.Publish(e.Pages)
		}
	case *effects.Grant:
		w.memory.served().Grant(e)
	case *effects.Revoke:
		w.memory.served().Revoke(e.Grant)
	case *effects.Transfer:
		w.transfer(e)
	case *effects.Cancel:
		for _, p := range w.planes {
			p.Cancel(e.Corr)
		}
		w.memory.cancel(e.Corr)
	case *effects.Confirm:
		for _, p := range w.planes {
			p.Confirm(e.Landing, e.Code)
		}
	case *effects.Copy:
		w.memory.copy(e)
	case *effects.Store:
		copy(w.memory.host(e.Page), e.Bytes)
	case *effects.Scatter:
		w.scatter(e)
	default:
		panic(fmt.Sprintf("BUG: unknown effect %T", e))
	}
}

// load writes the pages that a message carries over its end.
func (w *world) load(e effects.Effect) {
	x, ok := e.(*effects.Send)
	if !ok || len(x.Carries) == 0 {
		return
	}
	at := len(x.Body)
	for _, page := range x.Carries {
		at -= int(page.Length)
	}
	for _, page := range x.Carries {
		at += copy(x.Body[at:], w.memory.host(page))
	}
}

// scatter hands chunks to the goroutine of their fetch. A fetch that was submitted as a bare command has none.
func (w *world) scatter(e *effects.Scatter) {
	to := w.tickets.scattererOf(e.Ticket)
	if to == nil {
		w.mailbox.Post(&effects.Scattered{Corr: e.Corr, Code: effects.Unsupported})
		return
	}
	to.hand(batch{corr: e.Corr, first: int(e.First), pages: slices.Clone(e.Pages)})
}

// The three below answer for a plane that is not there: every effect gets its completion.

func (w *world) importPeer(e *effects.Import) {
	for _, p := range w.planes {
		if p.Name() == e.Plane {
			w.imports[e.Corr] = p
			p.Import(e)
			return
		}
	}
	w.mailbox.Post(&effects.Imported{Corr: e.Corr, Code: effects.Unsupported})
}

func (w *world) drop(l effects.Link) {
	if p := w.links[l]; p != nil {
		p.Drop(l)
		return
	}
	w.mailbox.Post(&effects.Dropped{Link: l})
}

func (w *world) transfer(e *effects.Transfer) {
	if p := w.links[e.Link]; p != nil {
		p.Transfer(e)
		return
	}
	w.mailbox.Post(&effects.TransferDone{Corr: e.Corr, Code: effects.PeerLost, Settled: true, At: now()})
}

// shortID renders the first bytes of an incarnation only when a record is really written.
type shortID effects.Incarnation

// LogValue implements slog.LogValuer.
func (s shortID) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%x", s[:4])) }
