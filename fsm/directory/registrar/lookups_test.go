package registrar

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// peers has each directory know another worker that has the first few chunks.
func (w *network) peers(chunks int) {
	b := protocol.Worker{InstanceID: []byte("b")}
	for _, m := range w.towers {
		tell := func(ch effects.Channel, x protocol.Message) {
			var out effects.Effects
			m.Step(w.now, &effects.Received{Conn: 9, Channel: ch, Request: 1, Body: x.Append(nil)}, &out)
		}
		tell(effects.ChannelDirectory, &protocol.RegisterMsg{Worker: b, PeerInitURL: []byte("b0:7000")})
		x := protocol.BatchedKVOperationMsg{Worker: b, Location: []byte("cpu")}
		for n := range chunks {
			x.Operations = append(x.Operations, protocol.KVOperation{Key: protocol.ChunkHash{Bits: hashOf(n)}, Seq: uint64(n)})
		}
		tell(effects.ChannelFeed, &x)
	}
}

// Each question has one answer, in the time that is said, whatever becomes of what is asked. An answer names nobody who
// has not as much. When nothing is lost it is right at once.
func TestLookupsEnd(t *testing.T) {
	const has, most = 3, 6
	rapid.Check(t, func(t *rapid.T) {
		w := newTown(t, rapid.IntRange(1, 3).Draw(t, "directories"), 10)
		w.peers(has)
		w.lossy = true
		type asking struct {
			chunks int
			until  effects.Time
		}
		open, last := map[uint64]asking{}, uint64(0)
		w.hears = func(a *LookupResult) {
			q, is := open[a.Ref.Attempt]
			if !is {
				t.Fatalf("question %d is answered twice, or was given up", a.Ref.Attempt)
			}
			delete(open, a.Ref.Attempt)
			if a.Code != effects.OK && len(a.Holders) > 0 {
				t.Fatalf("%v names %+v", a.Code, a.Holders)
			}
			for _, h := range a.Holders {
				if h.Instance != "b" || h.Location != "cpu" || h.At != (effects.Addr{Host: "b0", Port: 7000}) ||
					h.Chunks != min(q.chunks, has) {
					t.Fatalf("of %d chunks %+v", q.chunks, h)
				}
			}
			if !w.lossy && (a.Code != effects.OK || len(a.Holders) != min(q.chunks, 1)) {
				t.Fatalf("nothing is lost, and %d chunks are answered by %+v", q.chunks, a)
			}
		}
		ask := func(chunks int) {
			last++
			open[last] = asking{chunks, w.now.Add(w.Lookups.cfg.MaxLookupTime())}
			var keys [][]byte
			for n := range chunks {
				keys = append(keys, keyOf(n))
			}
			v := w.env()
			w.out.Reset()
			h := w.Lookups.StartLookup(&v, kernel.Ref{Attempt: last}, keys)
			if w.carry(); h == 0 && len(open) > 0 && open[last].until != 0 {
				t.Fatal("it is answered, and nobody hears")
			}
			if h != 0 && open[last].until != 0 && rapid.IntRange(0, 9).Draw(t, "give up") == 0 {
				delete(open, last)
				v = w.env()
				w.Lookups.CancelLookup(&v, h)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for n, q := range open {
					if q.until < w.now {
						t.Fatalf("question %d was to be answered at %v", n, q.until)
					}
				}
				if w.Lookups.CountUnfinished() != len(open) {
					t.Fatalf("%d questions are open, %d are known", len(open), w.Lookups.CountUnfinished())
				}
			},
			"ask":  func(t *rapid.T) { ask(rapid.IntRange(0, most).Draw(t, "chunks")) },
			"down": func(t *rapid.T) { i := rapid.IntRange(0, len(w.towers)-1).Draw(t, "directory"); w.down[i] = !w.down[i] },
			"forget": func(*rapid.T) {
				w.Lookups.ForgetReply([][]byte{keyOf(0)})
			},
			"wait": func(t *rapid.T) {
				w.goes(&effects.Tick{})
				w.until(w.now.Add(effects.Duration(rapid.IntRange(0, 600).Draw(t, "ms")) * effects.Millisecond))
			},
		})
		w.until(w.now.Add(heals))
		w.lossy = false
		clear(w.down)
		w.until(w.now.Add(heals))
		w.peers(has)
		for chunks := range most {
			ask(chunks)
		}
		w.until(w.now)
		if len(open) > 0 {
			t.Fatalf("%d questions have no answer", len(open))
		}
	})
}

// Of more questions than there is room for the others are refused.
func TestLookupsAreBounded(t *testing.T) {
	r := newRig(t, 0, func(c *Config) { c.LookupsMax, c.CacheSize = 1, 0 })
	v := r.env()
	for n := range 3 {
		r.Lookups.StartLookup(&v, kernel.Ref{Attempt: uint64(n)}, [][]byte{keyOf(n)})
	}
	var codes []effects.Code
	for _, a := range r.Lookups.Results() {
		codes = append(codes, a.Code)
	}
	if len(codes) != 2 || codes[0] != effects.TooMany || r.Lookups.CountUnfinished() != 1 {
		t.Errorf("answered by %v, %d are left", codes, r.Lookups.CountUnfinished())
	}
}
