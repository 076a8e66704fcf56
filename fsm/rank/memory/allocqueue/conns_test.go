package allocqueue

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// What was asked on a connection that is gone is condemned with it, and nothing else: neither what was asked on another
// one, nor what was asked again since.
func TestCondemnConn(t *testing.T) {
	timers := kernel.NewTimers(4)
	v := &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &timers, Pool: new(memory.Pool)}
	p := New(Settings{WaitersMax: 8, WaitingBytes: 4 << 10, BypassMax: 2}, 2)
	on := []effects.Conn{7, 7, 8, 7}
	for i, conn := range on {
		of := Row{Class: 1, Operation: uint64(i + 1)}
		wants := []uint64{5, uint64(100 + i)} // one key of all, and one of its own
		if why := p.Enqueue(v, of, &effects.Received{Conn: conn}, wants, effects.Second); why != nil {
			t.Fatalf("request %d cannot wait: %+v", i, why)
		}
	}
	h, _ := p.FindOperation(effects.Incarnation{}, 2)
	p.AcceptRetry(h, &effects.Received{Conn: 9}, 1)
	if p.CondemnConn(6) || !p.CondemnConn(7) || p.CondemnConn(7) {
		t.Fatal("another connection than 7 has ended")
	}
	for i, waits := range []bool{false, true, true, false} {
		if _, q := p.FindOperation(effects.Incarnation{}, uint64(i+1)); (q != nil) != waits {
			t.Errorf("that request %d waits is %v", i, q != nil)
		}
	}
	removed := 0
	for p.RemoveConnLost(v) {
		removed++
	}
	if removed != 2 || p.Len() != 2 || p.conns.rows.Len() != 2 {
		t.Fatalf("%d requests are out, %d wait, of %d connections; want 2, 2, 2", removed, p.Len(), p.conns.rows.Len())
	}
	for i, asked := range []bool{false, true, true, false} {
		if p.HasKey(uint64(100+i)) != asked || !p.HasKey(5) {
			t.Errorf("that the key of request %d is asked for is %v, and that of all %v", i, !asked, p.HasKey(5))
		}
	}
	for h := p.FirstOf(1); h != 0; h = p.FirstOf(1) {
		p.Remove(v, h)
	}
	if p.conns.rows.Len()+p.Len()+p.wantedKeys.rows.Len() > 0 || p.HasKey(5) {
		t.Errorf("%d connections, %d requests and %d keys are left", p.conns.rows.Len(), p.Len(), p.wantedKeys.rows.Len())
	}
	if p.RowsOf(1)+p.BytesOf(1) > 0 {
		t.Errorf("%d places and %d bytes of no request are kept", p.RowsOf(1), p.BytesOf(1))
	}
}
