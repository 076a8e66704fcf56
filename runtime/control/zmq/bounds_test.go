package zmq

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

func TestHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"10.0.0.1": true, "fd00::1": true, "fe80::1%eth0": true, "::1": true,
		"node-1.rack_2": true, "localhost": true,
		"": false, "*": false, "[::1]": false, "fe80::1%a;b": false, "a/b": false, "a\x00b": false,
		string(make([]byte, 300)): false,
	} {
		if got := isHost(host); got != want {
			t.Errorf("%q is a host: %t", host, got)
		}
	}
}

// What waited for a slow reader leaves no memory behind.
func TestOutboxKeepsNoMemory(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	var writers sync.WaitGroup
	o := newOutbox(near, 1<<20, time.Minute, &writers)
	for range 16 {
		if !o.send(make([]byte, 64<<10)) {
			t.Fatal("it takes less than its limit")
		}
	}
	if o.send([]byte{1}) {
		t.Error("it takes more than its limit")
	}
	if _, err := io.CopyN(io.Discard, far, 1<<20); err != nil {
		t.Fatal(err)
	}
	<-o.drain()
	writers.Wait()
	if cap(o.bytes) != 0 || !o.send(nil) {
		t.Errorf("it keeps %d bytes", cap(o.bytes))
	}
	o.calm()
	writers.Wait()
}

// The table behaves as a plain list that drops its oldest entry.
func TestRequestsForgetTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		table := newRequests(limit)
		var model []effects.Request
		next := effects.Request(1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				id, forgotten := table.add(route{talk: &talk{conn: effects.Conn(next)}})
				evicted := forgotten.talk != nil
				if id != next || evicted != (len(model) == limit) {
					t.Fatalf("added %d, evicted %t, with %v", id, evicted, model)
				}
				if evicted {
					model = model[1:]
				}
				model = append(model, id)
				next++
				continue
			}
			id := effects.Request(rapid.Uint64Range(0, uint64(next)).Draw(t, "id"))
			at := -1
			for i, known := range model {
				if known == id {
					at = i
				}
			}
			way, found := table.take(id)
			if found != (at >= 0) || found && way.talk.conn != effects.Conn(id) {
				t.Fatalf("took %d: %+v, %t, with %v", id, way, found, model)
			}
			if found {
				model = append(model[:at:at], model[at+1:]...)
			}
		}
	})
}
