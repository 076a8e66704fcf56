package pull

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// A sender that changes the address for renewals again and again is asked at one of them at a time, however long
// connections to the others take; what was wanted is asked for at the last one.
func TestRenewalAddressesDoNotPileUp(t *testing.T) {
	all := flow.Config{PeersMax: 1, BackoffMin: 1, BackoffMax: 1, Wire: protocol.DefaultLimits()}
	r := new(Target).Emptied(TargetConfig{RenewsMax: 1}, &all, 2, 1)
	queue, owed := kernel.NewTimers(16), kernel.NewCorrs(16)
	v := &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &queue, Corrs: &owed}
	e := &flow.Env{Env: *v, Cfg: &all, Rooms: &flow.Rooms{}}
	for i := range 100 {
		if !r.renewers.Announced(v, 1, []byte{'a' + byte(i%26), ':', '1'}) {
			t.Fatal("an address is refused")
		}
		r.renewers.Want(1)
		r.renew(e, 1)
		if owed.Len() != 1 {
			t.Fatalf("%d connections are under way", owed.Len())
		}
	}
	last := *v.Out.At(v.Out.Len() - 1).(*effects.Open)
	ref, _ := owed.Close(last.Corr)
	v.Out.Reset()
	r.Step(e, ref, &effects.Opened{Corr: last.Corr, Conn: 7})
	var opened, closed bool
	for i := range v.Out.Len() {
		switch e := v.Out.At(i).(type) {
		case *effects.Open:
			opened = e.Addr == effects.Addr{Host: string('a' + rune(99%26)), Port: 1}
		case *effects.Close:
			closed = e.Conn == 7
		}
	}
	if !opened || !closed || owed.Len() != 1 {
		t.Fatalf("opened the last %v, closed the first %v, %d under way", opened, closed, owed.Len())
	}
}
