package directory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// In every share each origin has as many places as its workers, instances and syncs use, however workers move between
// addresses, are asked for syncs, begin them, restart and leave.
func TestSharesMatchTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := wide()
		c.Silence, c.SyncTimeout, c.Seed = 9*effects.Second, 4*effects.Second, rapid.Uint64().Draw(t, "seed")
		c.Workers, c.Instances, c.Syncs = 4, 3, 3
		s := &stage{Directory: New(c)}
		lives := map[string]byte{}
		sender := func(t *rapid.T) Sender {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "instance")
			if lives[name] == 0 || rapid.IntRange(0, 3).Draw(t, "restarts") == 0 {
				lives[name]++
			}
			return Sender{
				Instance: []byte(name), Incarnation: effects.Incarnation{lives[name]},
				Origin: effects.Origin(rapid.IntRange(1, 3).Draw(t, "origin")),
			}
		}
		at := Address{IP: []byte("x"), Port: 1}
		t.Repeat(map[string]func(*rapid.T){
			"register":   func(t *rapid.T) { s.Register(s.now, sender(t), at) },
			"heartbeat":  func(t *rapid.T) { s.Heartbeat(s.now, sender(t), at) },
			"deregister": func(t *rapid.T) { s.Deregister(s.now, sender(t), at) },
			"begin": func(t *rapid.T) {
				s.BeginSync(s.now, &SyncBegin{Sender: sender(t), Location: []byte("cpu"), ID: []byte("s"), Batches: 2})
			},
			"wait": func(t *rapid.T) {
				s.now = s.now.Add(rapid.SampledFrom([]effects.Duration{0, effects.Second, 4 * effects.Second}).Draw(t, "time"))
				s.Advance(s.now)
			},
			"": func(t *rapid.T) { verifyShares(t, &s.Directory) },
		})
	})
}

// verifyShares fails the test if a share of a directory differs from its tables.
func verifyShares(t *rapid.T, d *Directory) {
	t.Helper()
	o := &d.roster.origins
	workers, instances, syncs := make([]int, d.config.maxOrigins()), make([]int, d.config.maxOrigins()), make([]int, d.config.maxOrigins())
	for slot := range d.roster.workers.Slots() {
		h := d.roster.workers.At(slot)
		if h == 0 {
			continue
		}
		w := d.roster.workers.Get(h)
		workers[w.shareClass()]++
		syncs[w.shareClass()] += w.syncs
		if w.reservation != 0 {
			syncs[w.shareClass()]++
		}
	}
	for slot := range d.roster.instances.Slots() {
		if h := d.roster.instances.At(slot); h != 0 {
			instances[d.roster.instances.Get(h).origin.Slot()]++
		}
	}
	for class := range workers {
		if got := o.workerShare.CountOf(class); got != workers[class] {
			t.Fatalf("origin %d counts %d workers, and has %d", class, got, workers[class])
		}
		if got := o.instanceShare.CountOf(class); got != instances[class] {
			t.Fatalf("origin %d counts %d instances, and has %d", class, got, instances[class])
		}
		if got := d.syncs.share.CountOf(class); got != syncs[class] {
			t.Fatalf("origin %d counts %d syncs and reservations, and has %d", class, got, syncs[class])
		}
	}
}
