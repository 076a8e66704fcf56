package pull

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// A sender that changes the address for renewals again and again is asked at one of them at a time, however long
// connections to the others take; what was wanted is asked for at the last one.
func TestRenewalAddressesDoNotPileUp(t *testing.T) {
	all := flow.Config{
		Settings: flow.Settings{BackoffMin: 1, BackoffMax: 1, Wire: protocol.DefaultLimits()}, PeersMax: 1,
	}
	r := new(Target).Recycle(TargetConfig{RenewsMax: 1}, &all, 2, 1)
	queue, owed := kernel.NewTimers(16), kernel.NewCorrs(16)
	v := &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &queue, Corrs: &owed}
	e := &flow.Env{Env: *v, Cfg: &all, Rooms: &flow.Rooms{}}
	for i := range 100 {
		if !r.renewers.SetAddress(v, 1, []byte{'a' + byte(i%26), ':', '1'}) {
			t.Fatal("an address is refused")
		}
		r.renewers.RequestRenewal(1)
		r.renewLeases(e, 1)
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

// A peer whose class was another's before is asked for more time although a connection to that one is still being made,
// which may take long. However many peers have a class one after the other, two such connections are under way at most.
func TestRenewalsOfAFormerPeerHoldUpNoOther(t *testing.T) {
	all := flow.Config{
		Settings: flow.Settings{BackoffMin: 1, BackoffMax: 1, Wire: protocol.DefaultLimits()}, PeersMax: 1,
	}
	r := new(Target).Recycle(TargetConfig{RenewsMax: 1}, &all, 2, 1)
	queue, owed := kernel.NewTimers(16), kernel.NewCorrs(16)
	v := &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &queue, Corrs: &owed}
	e := &flow.Env{Env: *v, Cfg: &all, Rooms: &flow.Rooms{}}
	var opens []effects.Open
	opened := func() (hosts string) {
		for i := range v.Out.Len() {
			if o, ok := v.Out.At(i).(*effects.Open); ok {
				opens, hosts = append(opens, *o), hosts+o.Addr.Host
			}
		}
		v.Out.Reset()
		return hosts
	}
	asks := func(host byte) string {
		r.renewers.SetAddress(v, 1, []byte{host, ':', '1'})
		r.renewers.RequestRenewal(1)
		r.renewLeases(e, 1)
		return opened()
	}
	completes := func(o effects.Open) string {
		ref, _ := owed.Close(o.Corr)
		r.Step(e, ref, &effects.Opened{Corr: o.Corr, Code: effects.Unreachable})
		return opened()
	}
	if got := asks('a'); got != "a" {
		t.Fatalf("opens %q for the first peer", got)
	}
	r.OnClassReassigned(e, 1)
	if got := asks('b'); got != "b" {
		t.Fatalf("opens %q for the second peer, while the connection to the first is being made", got)
	}
	for _, host := range []byte("cdefg") {
		r.OnClassReassigned(e, 1)
		if got := asks(host); got != "" || owed.Len() != 2 {
			t.Fatalf("opens %q, and %d are under way", got, owed.Len())
		}
	}
	if got := completes(opens[1]); got != "g" {
		t.Fatalf("opens %q when the connection to the second peer could not be made", got)
	}
	if got := completes(opens[0]); got != "" || owed.Len() != 1 {
		t.Fatalf("opens %q, and %d are under way", got, owed.Len())
	}
	if got := completes(opens[2]); got != "" || owed.Len() != 0 { // It waits until it tries again.
		t.Fatalf("opens %q, and %d are under way", got, owed.Len())
	}
}
