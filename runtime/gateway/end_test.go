//go:build cgo && linux

package gateway

import (
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// standing is a gateway whose machine does nothing, as long as nobody lets it.
func standing() *Gateway {
	log := slog.New(slog.DiscardHandler)
	g := &Gateway{inbox: epochs.NewInbox(), log: log, seldom: loglimit.New(log), ends: map[machine.Agent]*end{}}
	g.cfg.Wire = protocol.DefaultLimits()
	g.m = machine.New(machine.Config{Wire: g.cfg.Wire})
	return g
}

// Whatever is sent, so many bytes of notes wait for the machine; when it has taken them there is room again.
func TestNotesThatWait(t *testing.T) {
	for _, length := range []int{0, 1000, 1 << 20} {
		g := standing()
		e := &end{g: g, number: 9} // The machine knows no such agent, and does nothing.
		n := libnixl.Notice{Peer: "P", Bytes: make([]byte, length)}
		for range 2 {
			before := g.Stats().Heard
			most := uint64(notesBytes/(length+noteBytes) + 1)
			for range most + 1 {
				e.heard(n)
			}
			if got := g.Stats().Heard.OK - before.OK; got == 0 || got > most {
				t.Errorf("%d notes of %d bytes wait; want at most %d", got, length, most)
			}
			for _, f := range g.inbox.Take() {
				f(0)
			}
			if left := e.notes.Load(); left != 0 {
				t.Errorf("%d bytes wait, and no note", left)
			}
		}
	}
	g := standing()
	(&end{g: g}).heard(libnixl.Notice{Bytes: make([]byte, 1<<20+1)})
	if got := g.Stats().Heard; got != (Results{Failed: 1}) {
		t.Errorf("of a note that is too long: %v", got)
	}
}

// What an agent was to do that is gone, or that is not made any more, has failed.
func TestWhatNoAgentDoes(t *testing.T) {
	g := standing()
	g.load(machine.Load{Agent: 7})
	g.say(machine.Say{Agent: 7})
	g.over = true
	g.begin(7, nil, false)
	failed := Results{Failed: 1}
	if got := g.Stats(); got != (Stats{Made: failed, Loaded: failed, Said: failed}) {
		t.Errorf("counted %v", got)
	}
	if got := len(g.inbox.Take()); got != 3 {
		t.Errorf("the machine hears %d times; want 3", got)
	}
	g.counted(&job{bytes: 9}, effects.PeerLost)
	if got := g.Stats(); got.Writes != failed || got.Bytes != 0 {
		t.Errorf("of a transfer that failed: %v", got)
	}
}
