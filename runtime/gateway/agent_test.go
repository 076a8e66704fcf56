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

// standing returns a gateway with a machine that does nothing until the test lets it run.
func standing() *Gateway {
	log := slog.New(slog.DiscardHandler)
	g := &Gateway{inbox: epochs.NewInbox(), log: log, seldom: loglimit.New(log), ends: map[machine.Agent]*end{}}
	g.cfg.Wire = protocol.DefaultLimits()
	g.m = machine.New(machine.Config{Wire: g.cfg.Wire})
	return g
}

// The bytes of queued notes are bounded, whatever is sent; when the machine has taken the notes, there is room again.
func TestWaitingNotesAreBounded(t *testing.T) {
	for _, length := range []int{0, 1000, 1 << 20} {
		g := standing()
		e := &end{g: g, number: 9} // The machine does not know this agent, and does nothing.
		n := libnixl.Notice{Peer: "P", Bytes: make([]byte, length)}
		for range 2 {
			before := g.Stats().NotesReceived
			most := uint64(notesBytes/(length+noteBytes) + 1)
			for range most + 1 {
				e.takeNote(n)
			}
			if got := g.Stats().NotesReceived.OK - before.OK; got == 0 || got > most {
				t.Errorf("%d notes of %d bytes wait; want at most %d", got, length, most)
			}
			for _, f := range g.inbox.TakeAll() {
				f(0)
			}
			if left := e.notes.Load(); left != 0 {
				t.Errorf("%d bytes wait, and no note", left)
			}
		}
	}
	g := standing()
	(&end{g: g}).takeNote(libnixl.Notice{Bytes: make([]byte, 1<<20+1)})
	if got := g.Stats().NotesReceived; got != (Results{Failed: 1}) {
		t.Errorf("of a note that is too long: %v", got)
	}
}

// A task of an agent that is gone, or is not made any more, fails.
func TestTasksOfMissingAgentsFail(t *testing.T) {
	g := standing()
	g.load(machine.Load{Agent: 7})
	g.say(machine.Notification{Agent: 7})
	g.over = true
	g.begin(7, nil, false)
	failed := Results{Failed: 1}
	if got := g.Stats(); got != (Stats{AgentsMade: failed, AgentsLoaded: failed, NotesSent: failed}) {
		t.Errorf("counted %v", got)
	}
	if got := len(g.inbox.TakeAll()); got != 3 {
		t.Errorf("the machine hears %d times; want 3", got)
	}
	g.countWrite(&job{bytes: 9}, effects.PeerLost)
	if got := g.Stats(); got.Writes != failed || got.Bytes != 0 {
		t.Errorf("of a transfer that failed: %v", got)
	}
}
