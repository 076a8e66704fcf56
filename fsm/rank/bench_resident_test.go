package rank

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/snapshot"
)

// BenchmarkResident says how much memory of a receiver one key takes that is ready and claimed by its request: the
// receiver of many pages, all of them full, less what it takes with few. Keys have 46 bytes, as of a short model's name
// and a 64-bit hash.
func BenchmarkResident(b *testing.B) {
	const few, many = 1 << 10, 1 << 16
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	filled := func(pages int) uint64 {
		before := heap()
		l := filledReceiver(b, pages)
		after := heap()
		runtime.KeepAlive(l)
		return after - before
	}
	for b.Loop() {
		b.ReportMetric(float64(filled(many)-filled(few))/(many-few), "B/key")
	}
	b.ReportMetric(0, "ns/op")
}

// filledReceiver returns a loop whose receiver has a chunk, claimed by its request, in each of its pages.
func filledReceiver(b *testing.B, pages int) *loop {
	const batch = 64
	l := newLoop(b, batch)
	names := make([][]byte, batch)
	cfg := Config{
		Planes: l.r.cfg.Planes, Role: RoleReceiver,
		Common: Common{Layout: layout},
		Memory: Memory{Pages: uint32(pages)},
		Peers:  Peers{LocalID: "x"},
	}
	r, err := New(cfg, 2, 0)
	if err != nil {
		b.Fatal(err)
	}
	l.r, l.sender = r, nameFor(l.s, "", r, "r")
	for i := range pages / batch {
		for k := range names {
			names[k] = fmt.Appendf(nil, "meta-llama-8b@8@0@%016x@bfloat16", uint64(i*batch+k)*0x9E3779B97F4A7C15)
		}
		l.put.Request, l.put.Keys = fmt.Appendf(nil, "request-%d", i), names
		l.ticket++
		l.command = effects.Command{Ticket: l.ticket, Body: &l.put}
		l.drive(&l.command)
		if !l.got {
			b.Fatal("put did not end well")
		}
	}
	if n := l.r.Stats().Entries; n != pages {
		b.Fatalf("%d keys are there, want %d", n, pages)
	}
	return l
}

// BenchmarkCheckpoint writes the state of a receiver whose pages are all full, as the flight recorder of a node does between
// two steps, and reads it back.
func BenchmarkCheckpoint(b *testing.B) {
	for _, pages := range []int{1 << 10, 1 << 13, 1 << 16} {
		l, w := filledReceiver(b, pages), snapshot.New()
		state := snapshot.Encode(w, nil, l.r)
		b.Run(fmt.Sprintf("write/pages=%d", pages), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				state = snapshot.Encode(w, state[:0], l.r)
			}
			b.ReportMetric(float64(len(state)), "bytes")
			b.ReportMetric(float64(len(state))/float64(pages), "bytes/page")
		})
		b.Run(fmt.Sprintf("read/pages=%d", pages), func(b *testing.B) {
			for b.Loop() {
				into, err := New(l.r.cfg, 2, 0)
				if err == nil {
					err = snapshot.Decode(w, into, state, 4*uint64(len(state)))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
