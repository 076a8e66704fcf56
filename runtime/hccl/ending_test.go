package hccl

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// events keeps all that the machine is told.
type events struct {
	recorder
	told []effects.Event
}

func (e *events) post(ev effects.Event) { e.told = append(e.told, ev) }

// A peer that does not answer an offer is waited for as long as the rules say, and no longer: the import ends, or the link is lost with what
// waited on it.
func TestOffersWithoutAnswer(t *testing.T) {
	begin := func() (*link, *events) {
		h := &events{}
		l := &link{hands: h, id: 5, corr: 7, rules: rules{window: 2, tries: 3, answer: 50, patience: 100, grace: 20}}
		l.ask(1000)
		return l, h
	}
	waits := func(l *link, h *events) {
		t.Helper()
		said := len(h.told)
		l.tick(l.askedBy - 1)
		if len(h.told) != said || l.wake() != l.askedBy {
			t.Fatalf("a moment before its time: %d said, woken at %d", len(h.told)-said, l.wake())
		}
		l.tick(l.askedBy)
		if l.phase != over {
			t.Fatalf("the link is in phase %d", l.phase)
		}
	}
	l, h := begin()
	if l.askedBy != 1050 {
		t.Fatalf("asked until %d", l.askedBy)
	}
	waits(l, h)
	if e, ok := h.told[0].(*effects.Imported); len(h.told) != 1 || !ok || e.Corr != 7 || e.Code != effects.Unreachable {
		t.Fatalf("the import ended with %+v", h.told)
	}

	l, h = begin()
	l.accepted(accept{life: 1}, 1001)
	l.formed(1, effects.OK, 1002)
	l.condemned(1)
	l.settled(1, 1003)
	l.transfer(&transfer{corr: 8, grant: 1, notAfter: 5000, batches: make([][]piece, 1)}, 1004)
	waits(l, h)
	if len(h.told) != 3 {
		t.Fatalf("told %+v", h.told)
	}
	if e, ok := h.told[1].(*effects.TransferDone); !ok || e.Corr != 8 || e.Code != effects.PeerLost || !e.Settled {
		t.Errorf("the transfer ended with %+v", h.told[1])
	}
	if e, ok := h.told[2].(*effects.LinkLost); !ok || e.Link != 5 {
		t.Errorf("the link ended with %+v", h.told[2])
	}
}
