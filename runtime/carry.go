package runtime

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A world carries out the effects of a rank. The embedded type carries out the effects that any machine may emit;
// effects on pages go to the pool and the planes. Only the goroutine that steps the machine may use the object, except
// for tickets and facts.
type world struct {
	hands
	memory memory
	planes []plane.Plane // in order of preference
	// The two maps record the plane of each Import in progress and of each Link. Landings need no table: all planes
	// number landings from a common counter, and ignore the landings of other planes.
	imports map[effects.Corr]plane.Plane
	links   map[effects.Link]plane.Plane
	mailbox *mailbox
	// scatters counts the engine's calls that read the pool.
	scatters *scatters
}

// before records the plane of a new Link, and deletes Links that ended.
func (w *world) before(ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Imported:
		if ev.Code == effects.OK {
			w.links[ev.Link] = w.imports[ev.Corr]
		}
		delete(w.imports, ev.Corr)
	case *effects.Dropped:
		delete(w.links, ev.Link)
	default: // The other events concern the machine only.
	}
}

// carryOut carries out an effect of the machine, and never blocks: long work is handed to a plane, the control
// transport or a crew, which posts the completion to the mailbox. An unknown effect is a defect, and carryOut panics.
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
		// If there are two pools, the generations of the second pool's pages are not published to peers.
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

// load copies the pages that a message carries over the end of the message's body.
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

// scatter hands chunks to the goroutine of their fetch. A fetch that was submitted as a bare command has no goroutine
// and ends as Unsupported.
func (w *world) scatter(e *effects.Scatter) {
	to := w.tickets.scattererOf(e.Ticket)
	if to == nil {
		w.mailbox.Post(&effects.Scattered{Corr: e.Corr, Code: effects.Unsupported})
		return
	}
	to.hand(batch{corr: e.Corr, first: int(e.First), pages: slices.Clone(e.Pages)})
}

// The following three methods post the completion themselves if the plane does not exist, so that every effect gets a
// completion.

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

// shortID renders the first four bytes of an incarnation, and does so only when a log record is really written.
type shortID effects.Incarnation

// LogValue implements slog.LogValuer.
func (s shortID) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%x", s[:4])) }
