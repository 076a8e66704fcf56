//go:build cgo && linux

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

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		addr    effects.Addr
		host    bool // may be looked up
		connect string
	}{
		{effects.Addr{Host: "10.0.0.1", Port: 7}, true, "tcp://10.0.0.1:7"},
		{effects.Addr{Host: "fd00::1", Port: 7}, true, "tcp://[fd00::1]:7"},
		{effects.Addr{Host: "fe80::1%eth0", Port: 7}, true, "tcp://[fe80::1%eth0]:7"},
		// Names never reach ZeroMQ.
		{effects.Addr{Host: "node-1.rack_2", Port: 7}, true, ""},
		{effects.Addr{Host: "localhost", Port: 7}, true, ""},
		{effects.Addr{Host: "::1"}, true, ""},
		{effects.Addr{Port: 7}, false, ""},
		{effects.Addr{Host: "*"}, false, ""},
		{effects.Addr{Host: "[::1]", Port: 7}, false, ""},
		{effects.Addr{Host: "fe80::1%a;b", Port: 7}, false, ""},
		{effects.Addr{Host: "a/b", Port: 7}, false, ""},
		{effects.Addr{Host: "a\x00b", Port: 7}, false, ""},
		{effects.Addr{Host: string(make([]byte, 300)), Port: 7}, false, ""},
	} {
		if got, ok := connectEndpoint(c.addr); got != c.connect || ok != (c.connect != "") {
			t.Errorf("connect to %+v: %q, %t, want %q", c.addr, got, ok, c.connect)
		}
		if got := isHost(c.addr.Host); got != c.host {
			t.Errorf("%q is a host: %t", c.addr.Host, got)
		}
	}
}

func TestQueueIsBoundedAndWakesOnce(t *testing.T) {
	q := queue{maxCommands: 2, maxBytes: 4}
	push := func(c command, body string, wantCode effects.Code, wantWake bool) {
		t.Helper()
		if code, wake := q.push(c, []byte(body)); code != wantCode || wake != wantWake {
			t.Errorf("push %q: %s, wake %t; want %s, %t", body, code, wake, wantCode, wantWake)
		}
	}
	push(command{verb: verbSend, corr: 1}, "abc", effects.OK, true)
	push(command{verb: verbSend, corr: 2}, "de", effects.TooMany, false) // bytes
	push(command{verb: verbSend, corr: 3}, "d", effects.OK, false)
	push(command{verb: verbSend, corr: 4}, "", effects.TooMany, false) // commands
	push(command{verb: verbClose, conn: 5}, "", effects.OK, false)

	var b batch
	if q.take(&b) {
		t.Error("closed")
	}
	if len(b.commands) != 3 || string(b.body(&b.commands[0])) != "abc" || string(b.body(&b.commands[1])) != "d" ||
		b.commands[2].conn != 5 {
		t.Errorf("took %+v with %q", b.commands, b.bytes)
	}
	push(command{verb: verbSend}, "next", effects.OK, true)
	if q.close() {
		t.Error("close wakes a second time")
	}
	push(command{verb: verbClose}, "", effects.Closed, false)
	if !q.take(&b) || len(b.commands) != 1 || string(b.body(&b.commands[0])) != "next" {
		t.Errorf("after close: %+v", b.commands)
	}
}

func TestQueueAllocatesNothingInASteadyState(t *testing.T) {
	q := queue{maxCommands: 100, maxBytes: 1 << 20}
	body := make([]byte, 2048)
	var b batch
	if n := testing.AllocsPerRun(100, func() {
		for range 10 {
			q.push(command{verb: verbSend}, body)
		}
		q.take(&b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
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
