package runtime

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A rankDriver carries out the effects of a rank. The embedded type carries out the effects that any machine may emit;
// effects on pages go to the pool and the planes. Only the goroutine that steps the machine may use the object, except
// for tickets and facts.
type rankDriver struct {
	baseDriver
	memory memory
	planes []plane.Plane // in order of preference
	// The two maps record the plane of each Import in progress and of each Link. Landings need no table: all planes
	// number landings from a common counter, and ignore the landings of other planes.
	importPlanes map[effects.Corr]plane.Plane
	linkPlanes   map[effects.Link]plane.Plane
	mailbox      *mailbox
	// verifications compares pages with their checksums when the machine asks for it.
	verifications verifications
	// scatterCalls counts the engine's calls that read the pool.
	scatterCalls *scatterCalls
}

// beforeStep records the plane of a new Link, and deletes Links that ended. The meter has the events that it counts.
func (w *rankDriver) beforeStep(ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.TransferDone:
		w.facts.recordEvent(ev)
	case *effects.Imported:
		w.facts.recordEvent(ev)
		if ev.Code == effects.OK {
			w.linkPlanes[ev.Link] = w.importPlanes[ev.Corr]
		}
		delete(w.importPlanes, ev.Corr)
	case *effects.Dropped:
		w.facts.recordEvent(ev)
		delete(w.linkPlanes, ev.Link)
	default: // The other events concern the machine only.
	}
}

// carryOut carries out an effect of the machine, and never blocks: long work is handed to a plane, the control
// transport or a crew, which posts the completion to the mailbox. An unknown effect is a defect, and carryOut panics.
func (w *rankDriver) carryOut(e effects.Effect) {
	switch e := e.(type) {
	case *effects.Open, *effects.Close, *effects.Send, *effects.Post, *effects.Reply, *effects.Deliver, *effects.Return,
		*effects.Observe:
		w.fillCarried(e)
		w.tryCarryOut(e)
	case *effects.Import:
		w.facts.recordEffect(e)
		w.importPeer(e)
	case *effects.Drop:
		w.dropLink(e.Link)
	case *effects.Publish:
		// If there are two pools, the generations of the second pool's pages are not published to peers.
		if pool := w.memory.servedPool(); len(e.Pages) > 0 && e.Pages[0].Pool == pool.ID() {
			pool.Publish(e.Pages)
		}
	case *effects.Grant:
		w.memory.servedPool().Grant(e)
	case *effects.Revoke:
		w.memory.servedPool().Revoke(e.Grant)
	case *effects.Transfer:
		w.facts.recordEffect(e)
		w.startTransfer(e)
	case *effects.Cancel:
		for _, p := range w.planes {
			p.Cancel(e.Corr)
		}
		w.memory.cancelCopy(e.Corr)
	case *effects.Confirm:
		for _, p := range w.planes {
			p.Confirm(e.Landing, e.Code)
		}
	case *effects.Copy:
		w.memory.startCopy(e)
	case *effects.Store:
		copy(w.memory.hostBytes(e.Page), e.Bytes)
	case *effects.Verify:
		w.verifications.start(e, w.memory.hostBytes, w.mailbox)
	case *effects.Scatter:
		w.startScatter(e)
	default:
		panic(fmt.Sprintf("BUG: unknown effect %T", e))
	}
}

// fillCarried copies the pages that a message carries over the end of the message's body.
func (w *rankDriver) fillCarried(e effects.Effect) {
	x, ok := e.(*effects.Send)
	if !ok || len(x.Carries) == 0 {
		return
	}
	at := len(x.Body)
	for _, page := range x.Carries {
		at -= int(page.Length)
	}
	for _, page := range x.Carries {
		at += copy(x.Body[at:], w.memory.hostBytes(page))
	}
}

// startScatter hands chunks to the goroutine of their fetch. A fetch that was submitted as a bare command has no
// goroutine and ends as Unsupported.
func (w *rankDriver) startScatter(e *effects.Scatter) {
	to := w.tickets.findScatterer(e.Ticket)
	if to == nil {
		w.mailbox.Post(&effects.Scattered{Corr: e.Corr, Code: effects.Unsupported})
		return
	}
	to.sendBatch(pageBatch{corr: e.Corr, first: int(e.First), pages: slices.Clone(e.Pages)})
}

// The following three methods post the completion themselves if the plane does not exist, so that every effect gets a
// completion.

func (w *rankDriver) importPeer(e *effects.Import) {
	for _, p := range w.planes {
		if p.Name() == e.Plane {
			w.importPlanes[e.Corr] = p
			p.Import(e)
			return
		}
	}
	w.mailbox.Post(&effects.Imported{Corr: e.Corr, Code: effects.Unsupported})
}

func (w *rankDriver) dropLink(l effects.Link) {
	if p := w.linkPlanes[l]; p != nil {
		p.Drop(l)
		return
	}
	w.mailbox.Post(&effects.Dropped{Link: l})
}

func (w *rankDriver) startTransfer(e *effects.Transfer) {
	if p := w.linkPlanes[e.Link]; p != nil {
		p.Transfer(e)
		return
	}
	w.mailbox.Post(&effects.TransferDone{Corr: e.Corr, Code: effects.PeerLost, Settled: true, At: now()})
}

// shortID renders the first four bytes of an incarnation, and does so only when a log record is really written.
type shortID effects.Incarnation

// LogValue implements slog.LogValuer.
func (s shortID) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%x", s[:4])) }
