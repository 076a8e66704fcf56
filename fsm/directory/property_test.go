package directory

import (
	"maps"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// A directory does what the model does, whatever comes in whatever order: few names and chunks, so that they meet, and
// sweeps of a row at a time, so that much is left over.
func TestDirectoryAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := wide()
		c.Silence, c.Yield, c.SyncTimeout = 14*effects.Second, 9*effects.Second, 6*effects.Second
		c.Fade = 4 * effects.Second
		c.Seed, c.SweepRows, c.Syncs = rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 3).Draw(t, "sweep"), 3
		s := &stage{Directory: New(c)}
		m := &model{workers: map[named]*modelWorker{}, served: map[string]int{}, places: c.Syncs,
			yield: c.Yield, patience: c.SyncTimeout}
		names := rapid.Custom(func(t *rapid.T) named {
			return named{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "instance"), rapid.Int64Range(0, 1).Draw(t, "rank")}
		})
		// Most facts are of the identity and the incarnation that is known; an own one for each name, or none.
		life := func(t *rapid.T, n named) byte {
			if w := m.workers[n]; w != nil && rapid.IntRange(0, 7).Draw(t, "others") > 0 {
				m.who = w.owner
			} else {
				m.who = rapid.SampledFrom([]effects.Principal{0, 0, 0, 1, 2}).Draw(t, "principal")
			}
			if w := m.workers[n]; w != nil && rapid.IntRange(0, 7).Draw(t, "other") > 0 {
				return w.is
			}
			return rapid.SampledFrom([]byte{0, 0, 1, 2, 3}).Draw(t, "life")
		}
		address := func(t *rapid.T, n named) where {
			if w := m.workers[n]; w != nil && rapid.IntRange(0, 4).Draw(t, "moved") > 0 {
				return w.at
			}
			return where{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "ip"), rapid.Int64Range(1, 2).Draw(t, "port"),
				rapid.SampledFrom([]string{"u", "v", ""}).Draw(t, "url")}
		}
		locations, ids := rapid.SampledFrom([]string{"cpu", "disk"}), rapid.SampledFrom([]string{"s", "t"})
		chunks := rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 6)
		sender := func(n named, life byte) Sender {
			return Sender{Instance: []byte(n.instance), Worker: n.rank, Incarnation: effects.Incarnation{life},
				Origin: effects.Origin(n.instance[0]), Principal: m.who}
		}
		at := func(w where) Address { return Address{IP: []byte(w.ip), Port: w.port, URL: []byte(w.url)} }
		same := func(t *rapid.T, what string, got, want any) {
			if got != want {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
		report := func(t *rapid.T) {
			n := names.Draw(t, "name")
			l, location, unnumbered := life(t, n), locations.Draw(t, "location"), rapid.IntRange(0, 9).Draw(t, "unnumbered") == 0
			next := uint64(0)
			if w := m.workers[n]; w != nil && w.feeds[location] != nil {
				next = w.feeds[location].next
			}
			if rapid.IntRange(0, 9).Draw(t, "out of order") == 0 {
				next = rapid.Uint64Range(0, 9).Draw(t, "sequence")
			}
			var ops []Operation
			for _, hash := range chunks.Draw(t, "chunks") {
				ops = append(ops, Operation{Hash: hash, Sequence: next, Evict: rapid.IntRange(0, 2).Draw(t, "evict") == 0})
				next++
			}
			want := m.operate(s.now, n, l, location, ops, unnumbered)
			got := s.ApplyReport(s.now, &Report{Sender: sender(n, l), Location: []byte(location), Operations: ops,
				Unnumbered: unnumbered})
			same(t, "operate", got, want)
		}
		actions := map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, a := life(t, n), address(t, n)
				same(t, "register", s.Register(s.now, sender(n, l), at(a)), m.register(s.now, n, l, a))
			},
			"deregister": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, a := life(t, n), address(t, n)
				same(t, "deregister", s.Deregister(s.now, sender(n, l), at(a)), m.deregister(n, l, a))
			},
			"heartbeat": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, a := life(t, n), address(t, n)
				why, code := s.Heartbeat(s.now, sender(n, l), at(a))
				wantWhy, want := m.heartbeat(s.now, n, l, a)
				same(t, "heartbeat", code, want)
				same(t, "full sync", why, wantWhy)
			},
			"report":      report,
			"report more": report,
			"begin sync": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, location, id, batches := life(t, n), locations.Draw(t, "location"), ids.Draw(t, "id"),
					rapid.Int64Range(0, 2).Draw(t, "batches")
				want := m.beginSync(s.now, n, l, location, id, batches)
				got := s.BeginSync(s.now, &SyncBegin{Sender: sender(n, l), Location: []byte(location), ID: []byte(id),
					Batches: batches})
				same(t, "begin sync", got, want)
			},
			"whole sync": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, location, id, all := life(t, n), locations.Draw(t, "location"), ids.Draw(t, "id"), chunks.Draw(t, "chunks")
				want := m.beginSync(s.now, n, l, location, id, 1)
				same(t, "begin sync", s.BeginSync(s.now, &SyncBegin{
					Sender: sender(n, l), Location: []byte(location), ID: []byte(id), Batches: 1,
				}), want)
				want = m.batch(s.now, n, l, location, id, 0, all)
				same(t, "batch", s.AddSyncBatch(s.now, &SyncBatch{
					Sender: sender(n, l), Location: []byte(location), ID: []byte(id), Hashes: all,
				}), want)
				if rapid.Bool().Draw(t, "end") {
					want = m.endSync(s.now, n, l, location, id, int64(len(all)))
					same(t, "end sync", s.EndSync(s.now, &SyncEnd{
						Sender: sender(n, l), Location: []byte(location), ID: []byte(id), Chunks: int64(len(all)),
					}), want)
				}
			},
			"batch": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, location, id, all := life(t, n), locations.Draw(t, "location"), ids.Draw(t, "id"), chunks.Draw(t, "chunks")
				batch := rapid.Int64Range(0, 2).Draw(t, "batch")
				want := m.batch(s.now, n, l, location, id, batch, all)
				got := s.AddSyncBatch(s.now, &SyncBatch{
					Sender: sender(n, l), Location: []byte(location), ID: []byte(id), Batch: batch, Hashes: all,
				})
				same(t, "batch", got, want)
			},
			"end sync": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, location, id, said := life(t, n), locations.Draw(t, "location"), ids.Draw(t, "id"),
					rapid.Int64Range(0, 6).Draw(t, "said")
				want := m.endSync(s.now, n, l, location, id, said)
				got := s.EndSync(s.now, &SyncEnd{Sender: sender(n, l), Location: []byte(location), ID: []byte(id), Chunks: said})
				same(t, "end sync", got, want)
			},
			"wait": func(t *rapid.T) {
				for range rapid.IntRange(0, 8).Draw(t, "seconds") { // What begins as something else ends may end as well.
					s.pass(s.now.Add(effects.Second))
					m.pass(s.now, c.Silence, c.SyncTimeout, c.Fade)
				}
			},
			"status": func(t *rapid.T) {
				n := names.Draw(t, "name")
				l, id := life(t, n), ids.Draw(t, "id")
				p, code := s.SyncStatus(s.now, sender(n, l), []byte(id), make([]int64, 0, 9))
				begun, ended, want := m.status(s.now, n, l, id)
				same(t, "status", code, want)
				if p.Complete && !ended || !p.Complete && len(begun) == 0 && ended || !p.Resume && len(begun) == 0 {
					t.Fatalf("status: %+v; under way %v, ended %v", p, begun, ended)
				}
				for _, b := range begun { // The same id may be at two locations.
					if int64(len(p.Missing)) == b.batches-int64(len(b.came)) || p.Complete {
						return
					}
				}
				if len(begun) > 0 {
					t.Fatalf("status: %+v", p)
				}
			},
			"lookup": func(t *rapid.T) {
				n := names.Draw(t, "name")
				if rapid.Bool().Draw(t, "stranger") {
					n.instance = "x"
				}
				l, prefix := life(t, n), chunks.Draw(t, "prefix")
				peers, code := s.Lookup(s.now, sender(n, l), prefix, nil)
				same(t, "lookup", code, effects.OK)
				answers(t, m, peers, m.lookup(s.now, n, l, prefix))
			},
			"": func(t *rapid.T) { alike(t, s, m, sender) },
		}
		for range 3 { // So that there are stories of some length.
			t.Repeat(actions)
		}
	})
}

// answers holds the peers of a lookup against what each instance has.
func answers(t *rapid.T, m *model, peers []Peer, want map[string]int) {
	got := map[string]int{}
	for i, p := range peers {
		got[p.Instance] = p.Chunks
		if !slices.ContainsFunc(slices.Collect(maps.Keys(m.workers)), func(n named) bool {
			return n.instance == p.Instance && m.workers[n].at.url == p.URL && m.workers[n].feeds[p.Location] != nil
		}) {
			t.Fatalf("%+v: no worker is there", p)
		}
		if i == 0 {
			continue
		}
		before := peers[i-1]
		if before.Chunks < p.Chunks || before.Chunks == p.Chunks && m.served[before.Instance] > m.served[p.Instance] {
			t.Fatalf("%v: %s comes too late", peers, p.Instance)
		}
	}
	if !maps.Equal(got, want) || len(peers) != len(want) {
		t.Fatalf("lookup: %v, want %v", peers, want)
	}
	if m.turn++; len(peers) > 0 {
		m.served[peers[0].Instance] = m.turn
	}
}

// alike holds all that is known against the model.
func alike(t *rapid.T, s *stage, m *model, sender func(named, byte) Sender) {
	s.ClearNotes()
	locations, syncs := 0, 0
	for n, w := range m.workers {
		for location, f := range w.feeds {
			if locations++; f.sync != nil {
				syncs++
			}
			count, sum, ok := s.CountChunks(sender(n, 0), []byte(location))
			if !ok || count != len(f.chunks) || sum != sumOf(f.chunks) {
				t.Fatalf("%v has %d chunks at %s, known %v, want %d", n, count, location, ok, len(f.chunks))
			}
		}
	}
	got := s.Figures()
	if got.Workers != len(m.workers) || got.Locations != locations || got.Syncs != syncs {
		t.Fatalf("%+v; want %d workers, %d locations, %d syncs", got, len(m.workers), locations, syncs)
	}
}
