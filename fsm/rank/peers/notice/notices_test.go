package notice

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

const triesMax = 5

// newNotices are notices to so many classes, and what they stand on.
func newNotices(peers, noticesMax, classes int) (*Notices, *env.Env, *kernel.Timers) {
	n := New(Config{BackoffMin: 1, BackoffMax: 1, Peers: peers, NoticesMax: noticesMax, TriesMax: triesMax}, classes)
	queue, owed, conns := kernel.NewTimers(64), kernel.NewCorrs(64), kernel.NewConns(64)
	return &n, &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &queue, Corrs: &owed,
		Conns: &conns}, &queue
}

// A word that finds no room while its host's address is to be tried again later leaves the host as it is until then.
func TestHostIsNotIdleBeforeItsNextTry(t *testing.T) {
	p, v, queue := newNotices(2, 1, 2)
	first := p.ReserveAddress(v, 1, []byte("a:1"))
	p.ReserveAddress(v, 1, []byte("a:1"))
	other := p.ReserveAddress(v, 1, []byte("b:1"))
	p.QueueNotice(v, first, 0, nil)
	for try := 1; ; try++ {
		p.OnOpened(v, first, &effects.Opened{Code: effects.Unreachable})
		if try == triesMax {
			break
		}
		v.Now++
		ref, _ := queue.Pop(v.Now)
		p.OnTimer(v, ref.Subject)
	}
	p.QueueNotice(v, other, 0, nil) // All the room there is for words.
	p.QueueNotice(v, first, 0, nil)
	if p.addresses.InList(first) {
		t.Fatal("it is idle, and may be forgotten before its deadline")
	}
	v.Now++
	ref, ok := queue.Pop(v.Now)
	if !ok || ref.Subject != first {
		t.Fatalf("its deadline is %v %v", ref, ok)
	}
	p.OnTimer(v, ref.Subject)
	if !p.addresses.InList(first) {
		t.Fatal("it is not idle, and has nothing to be told")
	}
}

// A class whose done address takes nothing has no more words in the table than it leaves, and its addresses take none
// that is another's.
func TestWordsAndAddressesAreShared(t *testing.T) {
	const classes, words = 5, 16
	p, v, _ := newNotices(classes-1, words, classes)
	for class := 1; class < classes-1; class++ { // All guests but one.
		for i := range 3 * words {
			p.ReserveAddress(v, class, []byte{'a' + byte(class), 'a' + byte(i%26), 'a' + byte(i/26), ':', '1'})
		}
	}
	for range 2 * words {
		p.QueueNotice(v, p.ReserveAddress(v, 1, []byte("baa:1")), 1, nil)
	}
	if n := p.rows.Len(); n != words/2 {
		t.Errorf("one class has %d of %d words", n, words)
	}
	honest := p.ReserveAddress(v, classes-1, []byte("h:1"))
	if honest == 0 {
		t.Fatal("an honest sender's address finds no room")
	}
	v.Out.Reset()
	p.QueueNotice(v, honest, classes-1, nil)
	if v.Out.Len() != 1 {
		t.Fatalf("%d effects; want one, that opens a connection to it", v.Out.Len())
	}
	p.OnOpened(v, honest, &effects.Opened{Conn: 3})
	for p.addresses.Get(honest).sending {
		p.OnSendDone(v, honest, effects.OK)
	}
	if !p.addresses.InList(honest) || p.inUse[classes-1] != 0 {
		t.Error("what was told counts on")
	}
	if used, most := p.addresses.Len()-p.idle.Len(), 2*(classes-1)-1; used > most {
		t.Errorf("%d addresses of three guests; want %d at most, so that one is left for each", used, most)
	}
}
