package directory

import (
	"maps"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// An actual is a worker as it really is: what it has, and what is on its way to the directory. Its reports and syncs go
// one after the other, and may be lost; its registrations and heartbeats go another way and overtake them.
type actual struct {
	Sender
	named  bool // it names its incarnation
	at     Address
	chunks map[uint64]bool
	next   uint64
	way    []func(d *Directory, now effects.Time) // in order
	syncs  byte
}

var cpu = []byte("cpu")

func (a *actual) starts(d *Directory, now effects.Time) {
	if a.chunks, a.next = map[uint64]bool{}, 0; a.named {
		a.Incarnation[0]++
	} else {
		a.way = nil // What was on its way from one that cannot be told from this one is lost.
	}
	d.Register(now, a.Sender, a.at)
}

func (a *actual) does(hash uint64, evict bool) {
	if a.chunks[hash] = true; evict {
		delete(a.chunks, hash)
	}
	r := &Report{Sender: a.Sender, Location: cpu, Operations: []Operation{{Evict: evict, Hash: hash, Sequence: a.next}}}
	a.next++
	a.way = append(a.way, func(d *Directory, now effects.Time) { d.ApplyReport(now, r) })
}

// tells all that it has, if the directory lets it begin. Each batch has what is there when it is sent, and operations
// go on in between, but for those of a worker that does not say at which one it began: it keeps still.
func (a *actual) tells(d *Directory, now effects.Time, between func()) {
	a.syncs++
	id, from := []byte{a.syncs}, a.Sender
	begin := &SyncBegin{Sender: from, Location: cpu, ID: id, Batches: 2, NextSequence: a.next, Numbered: a.named}
	if a.named && len(a.way) > 0 { // It begins behind what is on its way, which it tells of.
		a.drain(d, now)
	}
	if d.BeginSync(now, begin) != effects.OK {
		return
	}
	total := int64(0)
	for batch := range int64(2) {
		var half []uint64
		for _, hash := range slices.Sorted(maps.Keys(a.chunks)) {
			if int64(hash%2) == batch {
				half = append(half, hash)
			}
		}
		total += int64(len(half))
		b := &SyncBatch{Sender: from, Location: cpu, ID: id, Batch: batch, Hashes: half}
		a.way = append(a.way, func(d *Directory, now effects.Time) { d.AddSyncBatch(now, b) })
		if a.named {
			between()
		}
	}
	e := &SyncEnd{Sender: from, Location: cpu, ID: id, Chunks: total}
	a.way = append(a.way, func(d *Directory, now effects.Time) { d.EndSync(now, e) })
	if !a.named { // Nor is its first operation afterwards lost, as nobody could tell.
		a.does(98, false)
		a.drain(d, now)
	}
}

func (a *actual) drain(d *Directory, now effects.Time) {
	for _, arrive := range a.way {
		arrive(d, now)
	}
	a.way = nil
}

// Whatever was lost, restarted or forgotten: as soon as every worker's next operation and a few heartbeats get through,
// the directory knows exactly what they have.
func TestItConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := wide()
		c.Syncs, c.SweepRows = rapid.IntRange(1, 3).Draw(t, "places"), 2
		now, lives := effects.Time(0), uint64(0)
		d := New(c)
		var all []*actual
		for i := range 3 {
			a := &actual{Sender: Sender{Instance: []byte{'a' + byte(i)}}, named: rapid.Bool().Draw(t, "named"),
				at: Address{URL: []byte("u")}}
			a.starts(&d, now)
			all = append(all, a)
		}
		one := func(t *rapid.T) *actual { return rapid.SampledFrom(all).Draw(t, "worker") }
		operate := func(t *rapid.T, a *actual) {
			a.does(rapid.Uint64Range(0, 9).Draw(t, "chunk"), rapid.IntRange(0, 2).Draw(t, "evict") == 0)
		}
		beat := func(a *actual, between func()) SyncReason {
			why, _ := d.Heartbeat(now, a.Sender, a.at)
			if why != NoSync {
				a.tells(&d, now, between)
			}
			return why
		}
		step := func(seconds int) {
			now = now.Add(effects.Duration(seconds) * effects.Second)
			d.Advance(now)
			d.ClearNotes()
		}
		t.Repeat(map[string]func(*rapid.T){
			"operate":      func(t *rapid.T) { operate(t, one(t)) },
			"operate more": func(t *rapid.T) { operate(t, one(t)) },
			"arrive": func(t *rapid.T) {
				if a := one(t); len(a.way) > 0 {
					a.way[0](&d, now)
					a.way = a.way[1:]
				}
			},
			"lose": func(t *rapid.T) {
				if a := one(t); len(a.way) > 0 {
					a.way = a.way[1:]
				}
			},
			"heartbeat": func(t *rapid.T) {
				a := one(t)
				beat(a, func() { operate(t, a) })
			},
			"restart": func(t *rapid.T) { one(t).starts(&d, now) },
			"directory restarts": func(t *rapid.T) {
				lives++
				c.Seed = lives
				d = New(c)
				d.Advance(now)
			},
			"wait": func(t *rapid.T) { step(rapid.IntRange(0, 20).Draw(t, "seconds")) },
		})
		for _, a := range all {
			a.drain(&d, now)
			a.does(99, false)
			a.drain(&d, now)
		}
		// A sync that lost its end is given up, and then there is a place in turn for each.
		for range 12 {
			for _, a := range all {
				beat(a, func() {})
				a.drain(&d, now)
			}
			step(9)
		}
		for _, a := range all {
			n, sum, ok := d.CountChunks(a.Sender, cpu)
			if !ok || n != len(a.chunks) || sum != sumOf(a.chunks) {
				t.Fatalf("%s has %d chunks, known %v, and %d in truth", a.Instance, n, ok, len(a.chunks))
			}
			if why := beat(a, func() {}); why != NoSync {
				t.Fatalf("%s is asked for one more sync: %v", a.Instance, why)
			}
		}
		for d.chunks.HasRetired() {
			d.Advance(now)
		}
		if f := d.Figures(); f.Holders != len(all) || f.Syncs != 0 {
			t.Fatalf("%+v are left", f)
		}
	})
}
