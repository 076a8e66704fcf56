package directory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A fleet is workers with their chunks, for tests of what a directory costs.
func fleet(c Config, instances, chunks int) *Directory {
	d := New(c)
	for i := range instances {
		s := Sender{Instance: []byte{'a' + byte(i)}}
		d.Register(0, s, Address{IP: []byte("10.0.0.1"), Port: 9000, URL: []byte("10.0.0.1:7000")})
		r := Report{Sender: s, Location: []byte("cpu")}
		for hash := range uint64(chunks) {
			r.Operations = append(r.Operations[:0], Operation{Hash: hash, Sequence: hash})
			if code := d.ApplyReport(0, &r); code != effects.OK {
				panic(code)
			}
		}
	}
	d.ClearNotes()
	return &d
}

// In a steady state nothing is allocated: by reports of chunks that come and go, heartbeats, lookups, syncs of what is
// known, and sweeps of what they leave.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	const chunks = 1000
	c := wide()
	d := fleet(c, 6, chunks)
	s := Sender{Instance: []byte("a")}
	at := Address{IP: []byte("10.0.0.1"), Port: 9000, URL: []byte("10.0.0.1:7000")}
	location, id := []byte("cpu"), []byte("s")
	all := make([]uint64, chunks)
	for i := range all {
		all[i] = uint64(i)
	}
	ops := make([]Operation, 50)
	next, now, peers, missing := uint64(chunks), effects.Time(0), []Peer(nil), make([]int64, 0, 4)
	ok := func(code effects.Code) {
		if code != effects.OK {
			t.Fatal(code)
		}
	}
	for name, f := range map[string]func(){
		"reports": func() {
			for i := range ops {
				ops[i] = Operation{Hash: next / 2 % (2 * chunks), Evict: next%2 == 0, Sequence: next}
				next++
			}
			ok(d.ApplyReport(now, &Report{Sender: s, Location: location, Operations: ops}))
		},
		"heartbeats": func() {
			_, code := d.Heartbeat(now, s, at)
			ok(code)
		},
		"lookups": func() {
			var code effects.Code
			peers, code = d.Lookup(now, s, all, peers[:0])
			if ok(code); len(peers) != 5 {
				t.Fatal(peers)
			}
		},
		"syncs": func() {
			id[0] ^= 1
			ok(d.BeginSync(now, &SyncBegin{Sender: s, Location: location, ID: id, Batches: 1, Numbered: true, NextSequence: next}))
			_, code := d.SyncStatus(now, s, id, missing)
			ok(code)
			ok(d.AddSyncBatch(now, &SyncBatch{Sender: s, Location: location, ID: id, Hashes: all}))
			ok(d.EndSync(now, &SyncEnd{Sender: s, Location: location, ID: id, Chunks: chunks}))
		},
	} {
		round := func() {
			f()
			now++
			for d.Advance(now); d.chunks.HasRetired(); d.Advance(now) {
			}
			d.ClearNotes()
		}
		for range 100 {
			round()
		}
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
