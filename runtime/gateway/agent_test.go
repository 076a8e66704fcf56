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

// newIdleGateway returns a gateway with a machine that does nothing until the test lets it run.
func newIdleGateway() *Gateway {
	log := slog.New(slog.DiscardHandler)
	g := &Gateway{inbox: epochs.NewInbox(), log: log, limitedLog: loglimit.New(log), agents: map[machine.Agent]*ownAgent{}}
	g.cfg.MessageLimits = protocol.DefaultLimits()
	g.m = machine.New(machine.Config{Wire: g.cfg.MessageLimits})
	return g
}

// The bytes of queued notes are bounded, whatever is sent; when the machine has taken the notes, there is room again.
func TestWaitingNotesAreBounded(t *testing.T) {
	for _, length := range []int{0, 1000, 1 << 20} {
		g := newIdleGateway()
		e := &ownAgent{g: g, id: 9} // The machine does not know this agent, and does nothing.
		n := libnixl.Notice{Peer: "P", Bytes: make([]byte, length)}
		for range 2 {
			before := g.Stats().NotesReceived
			most := uint64(pendingNotesMax/(length+noteOverhead) + 1)
			for range most + 1 {
				e.receiveNote(n)
			}
			if got := g.Stats().NotesReceived.OK - before.OK; got == 0 || got > most {
				t.Errorf("%d notes of %d bytes wait; want at most %d", got, length, most)
			}
			for _, f := range g.inbox.TakeAll() {
				f(0)
			}
			if left := e.pendingNoteBytes.Load(); left != 0 {
				t.Errorf("%d bytes wait, and no note", left)
			}
		}
	}
	g := newIdleGateway()
	(&ownAgent{g: g}).receiveNote(libnixl.Notice{Bytes: make([]byte, 1<<20+1)})
	if got := g.Stats().NotesReceived; got != (Results{Failed: 1}) {
		t.Errorf("of a note that is too long: %v", got)
	}
}

// A task of an agent that is gone, or is not made any more, fails.
func TestTasksOfMissingAgentsFail(t *testing.T) {
	g := newIdleGateway()
	g.loadMetadata(machine.Load{Agent: 7})
	g.sendNote(machine.Notification{Agent: 7})
	g.closing = true
	g.startAgent(7, nil, false)
	failed := Results{Failed: 1}
	if got := g.Stats(); got != (Stats{AgentsMade: failed, AgentsLoaded: failed, NotesSent: failed}) {
		t.Errorf("counted %v", got)
	}
	if got := len(g.inbox.TakeAll()); got != 3 {
		t.Errorf("the machine hears %d times; want 3", got)
	}
	g.countWrite(&writeJob{bytes: 9}, effects.PeerLost)
	if got := g.Stats(); got.Writes != failed || got.Bytes != 0 {
		t.Errorf("of a transfer that failed: %v", got)
	}
}
