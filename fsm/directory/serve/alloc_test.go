package serve

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// In a steady state nothing is allocated: by operations that come and go, lookups that are answered, syncs under way
// and heartbeats of who is asked for nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	r := newBusyRig(t)
	w, cpu := worker("a", 0), []byte("cpu")
	next := uint64(1)
	ops := protocol.BatchedKVOperationMsg{Worker: w, Location: cpu, Operations: make([]protocol.KVOperation, 50)}
	ask := protocol.BatchedP2PLookupMsg{Worker: worker("c", 0), Hashes: make([]protocol.ChunkHash, 100)}
	for i := range ask.Hashes {
		ask.Hashes[i].Bits = uint64(i + 1)
	}
	var body []byte
	for name, say := range map[string]func(){
		"operations": func() {
			for i := range ops.Operations {
				ops.Operations[i] = protocol.KVOperation{Type: protocol.OpType(next % 2),
					Key: protocol.ChunkHash{Bits: next / 2 % 100}, Seq: next}
				next++
			}
			body = ops.Append(body[:0])
			r.hears(effects.ChannelFeed, 1, body)
		},
		"lookup": func() {
			body = ask.Append(body[:0])
			r.hears(effects.ChannelDirectory, 1, body)
		},
		"batch": func() {
			m := protocol.FullSyncBatchMsg{Worker: w, Location: cpu, SyncID: []byte("s"), Keys: ask.Hashes}
			body = m.Append(body[:0])
			r.hears(effects.ChannelFeed, 1, body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(200, say); n > 0 {
				t.Errorf("%v allocations", n)
			}
			if r.refused() != effects.OK {
				t.Errorf("refused: %v", r.refused())
			}
		})
	}
}

// A configuration that nothing can work with is refused by what is wrong with it.
func TestConfigIsChecked(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"directory: syncs: 0 is not within":  func(c *Config) { c.Directory.Syncs = 0 },
		`directory: heartbeat: endpoint "h"`: func(c *Config) { c.Heartbeat = "h" },
	} {
		c := Default()
		change(&c)
		if _, err := New(c); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
