package serve

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/snapshot"
)

// A generatedMessage is a message, where it goes, and the same fact as the directory is told it: how it answers.
type generatedMessage struct {
	channel effects.Channel
	message protocol.Message
	fact    fact
}

// The machine is a directory that is told the facts that its messages are, and answers what that answers: whatever is
// said, both are in the same state, to the bit.
func TestMessagesAreFacts(t *testing.T) {
	w := snapshot.New()
	rapid.Check(t, func(t *rapid.T) {
		c := smallConfig(t)
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		r, d := rig{Machine: m, now: 1}, directory.New(c.Directory)
		advance := func() {
			d.Advance(r.now)
			d.ClearNotes()
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if a, b := snapshot.Hash(w, &r.directory), snapshot.Hash(w, &d); a != b {
					t.Fatalf("the machine knows %+v, the directory %+v", r.Figures(), d.Figures())
				}
			},
			"say": func(t *rapid.T) {
				x := genMessage(t, &c)
				r.hears(x.channel, effects.Conn(7), x.message.Append(nil))
				advance()
				want, code := x.fact(&d, r.now)
				d.ClearNotes()
				var body []byte
				switch {
				case want != nil:
					body = want.Append(nil)
				case x.channel.HasReplies():
					body = r.answer(t)
					var e protocol.ErrorMsg
					if err := e.Decode(body, nil); err != nil || len(e.Error) == 0 {
						t.Fatalf("%x answers what is refused: %v", body, err)
					}
				}
				if got := r.answer(t); !slices.Equal(got, body) {
					t.Fatalf("%T is answered by %x, want %x", x.message, got, body)
				}
				if got := r.refused(); got != code {
					t.Fatalf("%T is refused by %v, want %v", x.message, got, code)
				}
			},
			"wait": func(t *rapid.T) {
				seconds := effects.Duration(rapid.IntRange(0, 6).Draw(t, "seconds")) * effects.Second
				r.pass(r.now.Add(seconds), advance)
			},
		})
	})
}

// smallConfig has bounds that are met.
func smallConfig(t *rapid.T) Config {
	c := Default()
	n := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }
	c.Directory = directory.Config{
		Seed: rapid.Uint64().Draw(t, "seed"), Instances: 2, Workers: n("workers", 2, 4), WorkersPerConnection: n("of source", 1, 4),
		LocationsPerWorker: n("locations", 1, 2), Holders: n("holders", 2, 12), Chunks: n("chunks", 4, 40),
		HoldersPerChunk: n("of chunk", 1, 4),
		TextBytes:       n("text", 4, 16), Syncs: n("syncs", 1, 2), BatchesPerSync: n("batches", 1, 3), HashesPerBatch: n("hashes", 1, 6),
		HashesPerLookup: n("prefix", 1, 8), PeersPerLookup: n("peers", 1, 3),
		Silence:     effects.Duration(n("silence", 0, 2)) * 5 * effects.Second,
		SyncTimeout: 3 * effects.Second, SweepRows: n("sweep", 1, 20), EndsPerStep: n("ends", 1, 3),
	}
	c.Directory.WorkersPerInstance = c.Directory.Workers
	c.Heartbeat = rapid.SampledFrom([]string{"", "h:1"}).Draw(t, "heartbeat")
	return c
}

var genHash = rapid.Custom(func(t *rapid.T) protocol.ChunkHash {
	if rapid.Bool().Draw(t, "signed") {
		return protocol.ChunkHash{Bits: -rapid.Uint64Range(1, 3).Draw(t, "below 0"), Negative: true}
	}
	return protocol.ChunkHash{Bits: rapid.Uint64Range(0, 6).Draw(t, "chunk")}
})

func hashesOf(keys []protocol.ChunkHash) (all []uint64) {
	for _, k := range keys {
		all = append(all, k.Bits)
	}
	return all
}

func senderOf(w protocol.Worker, is protocol.UUID) directory.Sender {
	return directory.Sender{Instance: w.InstanceID, Worker: int64(w.WorkerID), Incarnation: effects.Incarnation(is),
		Source: 7}
}
