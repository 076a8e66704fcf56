package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
)

// alone is the room's part that speaks to senders, without a pool.
func alone(cfg Config) (*Receiver, *env.Env, *kernel.Timers, *kernel.Corrs) {
	r := New(cfg, 2, 1)
	queue, owed := kernel.NewTimers(16), kernel.NewCorrs(16)
	return &r, &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &queue, Corrs: &owed}, &queue, &owed
}

// A word that finds no room while its host's address is to be tried again later leaves the host as it is until then.
func TestHostIsNotIdleBeforeItsNextTry(t *testing.T) {
	r, v, queue, _ := alone(Config{GrantsMax: 1, PeersMax: 2, BackoffMin: 1, BackoffMax: 1})
	p := &r.pull.notices
	first := p.promise(v, 1, []byte("a:1"))
	p.promise(v, 1, []byte("a:1"))
	other := p.promise(v, 1, []byte("b:1"))
	p.notify(v, first, 0, nil)
	for try := 1; ; try++ {
		p.opened(v, first, &effects.Opened{Code: effects.Unreachable})
		if try == notifyMax {
			break
		}
		v.Now++
		ref, _ := queue.Pop(v.Now)
		r.OnTimer(v, ref)
	}
	p.notify(v, other, 0, nil) // All the room there is for words.
	p.notify(v, first, 0, nil)
	if p.addresses.Listed(first) {
		t.Fatal("it is idle, and may be forgotten before its deadline")
	}
	v.Now++
	ref, ok := queue.Pop(v.Now)
	if !ok || ref.Subject != first {
		t.Fatalf("its deadline is %v %v", ref, ok)
	}
	r.OnTimer(v, ref)
	if !p.addresses.Listed(first) {
		t.Fatal("it is not idle, and has nothing to be told")
	}
}

// A class whose done address takes nothing has no more words in the table than it leaves, and its addresses take none that is another's.
func TestWordsAndAddressesAreShared(t *testing.T) {
	const classes, words = 5, 16
	r := New(Config{GrantsMax: words / 2, OffersMax: words / 2, PeersMax: classes - 1, BackoffMin: 1, BackoffMax: 1}, classes, 1)
	queue, owed := kernel.NewTimers(64), kernel.NewCorrs(64)
	v := &env.Env{Out: &effects.Effects{}, Timers: &queue, Corrs: &owed}
	p := &r.pull.notices
	for class := 1; class < classes-1; class++ { // All guests but one.
		for i := range 3 * words {
			p.promise(v, class, []byte{'a' + byte(class), 'a' + byte(i%26), 'a' + byte(i/26), ':', '1'})
		}
	}
	for range 2 * words {
		p.notify(v, p.promise(v, 1, []byte("baa:1")), 1, nil)
	}
	if n := p.rows.Len(); n != words/2 {
		t.Errorf("one class has %d of %d words", n, words)
	}
	honest := p.promise(v, classes-1, []byte("h:1"))
	if honest == 0 {
		t.Fatal("an honest sender's address finds no room")
	}
	v.Out.Reset()
	p.notify(v, honest, classes-1, nil)
	if v.Out.Len() != 1 {
		t.Fatalf("%d effects; want one, that opens a connection to it", v.Out.Len())
	}
	p.opened(v, honest, &effects.Opened{Conn: 3})
	for p.addresses.Get(honest).telling {
		r.OnSendDone(v, kernel.Ref{Subject: honest}, effects.OK)
	}
	if !p.addresses.Listed(honest) || p.inUse[classes-1] != 0 {
		t.Error("what was told counts on")
	}
	if used, most := p.addresses.Len()-p.idle.Len(), 2*(classes-1)-1; used > most {
		t.Errorf("%d addresses of three guests; want %d at most, so that one is left for each", used, most)
	}
}

// A sender that changes the address for renewals again and again is asked at one of them at a time, however long
// connections to the others take; what was wanted is asked for at the last one.
func TestRenewalAddressesDoNotPileUp(t *testing.T) {
	r, v, _, owed := alone(Config{PeersMax: 1, BackoffMin: 1, BackoffMax: 1})
	for i := range 100 {
		if !r.pull.renewers.announced(v, 1, []byte{'a' + byte(i%26), ':', '1'}) {
			t.Fatal("an address is refused")
		}
		r.pull.renewers.want(1)
		r.pull.renew(v, &r.rooms, 1)
		if owed.Len() != 1 {
			t.Fatalf("%d connections are under way", owed.Len())
		}
	}
	e := *v.Out.At(v.Out.Len() - 1).(*effects.Open)
	ref, _ := owed.Close(e.Corr)
	v.Out.Reset()
	r.pull.renewOpened(v, &r.rooms, ref, &effects.Opened{Corr: e.Corr, Conn: 7})
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
