package link

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// acquireLane is the lane's connection, if one more request may go on it.
func (r *rig) acquireLane(h table.Handle, lane Lane) (c effects.Conn) {
	r.runStep(func(v *env.Env) { c = r.links.AcquireLane(v, h, lane) })
	return c
}

// The smaller of what both ends said is how many requests are in flight on the alloc lane; who says nothing means one.
// Commits stay in lockstep. A hello has not a byte more where there is no window.
func TestWindowIsTheSmallerOne(t *testing.T) {
	for _, c := range []struct{ ours, theirs, want uint16 }{
		{0, 0, 1}, {1, 1, 1}, {0, 16, 1}, {1, 16, 1}, {16, 0, 1}, {16, 1, 1}, {16, 16, 16}, {2, 16, 2}, {16, 3, 3},
	} {
		r := newRig(t)
		r.links.cfg.Window, r.peer.cfg.Window = c.ours, c.theirs
		h := r.acquirePeer(receiverAddr)
		r.completeOpen(effects.OK)
		if said := bytes.Contains(r.bodies[0], []byte("kvf_window")); said != (c.ours > 1) {
			t.Fatalf("%+v: the hello says a window: %v", c, said)
		}
		r.answerSend(func(answer []byte) []byte {
			if said := bytes.Contains(answer, []byte("kvf_window")); said != (c.theirs > 1) {
				t.Fatalf("%+v: the answer says a window: %v", c, said)
			}
			return answer
		})
		r.completeImport(effects.OK, 5)
		r.answerSend(nil)
		for lane, want := range map[Lane]uint16{LaneAlloc: c.want, LaneCommit: 1} {
			r.acquireLane(h, lane)
			e, conn := r.completeOpen(effects.OK)
			if max(e.Window, 1) != want {
				t.Fatalf("%+v: lane %d is opened with a window of %d", c, lane, e.Window)
			}
			for i := range want {
				if got := r.acquireLane(h, lane); got != conn {
					t.Fatalf("%+v: request %d of lane %d goes on %d", c, i, lane, got)
				}
			}
			if r.acquireLane(h, lane) != 0 {
				t.Fatalf("%+v: lane %d takes more than %d requests", c, lane, want)
			}
			r.releaseLane(h, lane, conn)
			if r.acquireLane(h, lane) != conn || r.acquireLane(h, lane) != 0 {
				t.Fatalf("%+v: an answer on lane %d makes not room for one", c, lane)
			}
		}
	}
}

// A window is what one incarnation said: whoever comes back says it again, or has none; and no number is too large.
func TestWindowIsOfOneIncarnation(t *testing.T) {
	r := newRig(t)
	r.links.cfg.Window, r.peer.cfg.Window = 16, 16
	h := r.shakeHands(5)
	r.acquireLane(h, LaneAlloc)
	if e, _ := r.completeOpen(effects.OK); e.Window != 16 {
		t.Fatalf("a window of %d", e.Window)
	}
	for _, c := range []struct {
		says uint32
		want uint16
	}{{0, 0}, {1 << 16, 16}, {1<<32 - 1, 16}, {1, 0}} {
		r.runStep(func(v *env.Env) { r.links.FailPeer(v, h, effects.PeerLost, effects.Why{}) })
		r.runNextTimer()
		r.completeOpen(effects.OK)
		r.answerSend(func(answer []byte) []byte {
			var m protocol.HixlInitResponse
			if err := m.Decode(answer, &r.links.cfg.Wire); err != nil {
				t.Fatal(err)
			}
			m.Ext.Window = c.says
			return m.Append(nil)
		})
		r.completeImport(effects.OK, 6)
		r.answerSend(nil)
		r.acquireLane(h, LaneAlloc)
		if e, _ := r.completeOpen(effects.OK); e.Window != c.want {
			t.Fatalf("one who says %d is opened with a window of %d", c.says, e.Window)
		}
	}
}

// Example: a silent peer holds one request, and a second put takes a place on the lane and gives the place back, because
// the peer cannot take the put. The first request must not wait longer for that.
func TestReturnedPlaceIsNoReply(t *testing.T) {
	r := newRig(t)
	r.links.cfg.Window, r.peer.cfg.Window = 2, 2
	h := r.shakeHands(5)
	r.acquireLane(h, LaneAlloc)
	_, conn := r.completeOpen(effects.OK)
	for range 2 {
		if r.acquireLane(h, LaneAlloc) != conn {
			t.Fatal("the lane has no two places")
		}
	}
	r.links.ReturnLane(h, LaneAlloc, conn)
	if at := r.links.Lane(h, LaneAlloc).LastReply(conn); at != 0 {
		t.Errorf("a place that was given back counts as a reply at %d", at)
	}
	if r.acquireLane(h, LaneAlloc) != conn || r.acquireLane(h, LaneAlloc) != 0 {
		t.Error("a place that was given back is not free, or is free twice")
	}
}
