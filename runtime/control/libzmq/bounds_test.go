//go:build cgo && linux

package libzmq

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

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
	if q.swapBatch(&b) {
		t.Error("closed")
	}
	if len(b.commands) != 3 || string(b.bodyOf(&b.commands[0])) != "abc" || string(b.bodyOf(&b.commands[1])) != "d" ||
		b.commands[2].conn != 5 {
		t.Errorf("took %+v with %q", b.commands, b.bytes)
	}
	push(command{verb: verbSend}, "next", effects.OK, true)
	if q.close() {
		t.Error("close wakes a second time")
	}
	push(command{verb: verbClose}, "", effects.Closed, false)
	if !q.swapBatch(&b) || len(b.commands) != 1 || string(b.bodyOf(&b.commands[0])) != "next" {
		t.Errorf("after close: %+v", b.commands)
	}
}

func TestClientsAreKeptWithinBounds(t *testing.T) {
	const limit = 4
	rapid.Check(t, func(t *rapid.T) {
		table := newClients(limit)
		var drawn effects.Conn
		draw := func() effects.Conn { drawn++; return drawn }
		type use struct {
			number uint32
			conn   effects.Conn
		}
		var uses []use
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			number := rapid.Uint32Range(0, 12).Draw(t, "client")
			from := netip.AddrFrom4([4]byte{10, 0, 0, byte(number)})
			conn := table.connFor(0, binary.BigEndian.AppendUint32([]byte{0}, number), from, draw)
			if got := table.callerAddr(conn); got != from {
				t.Fatalf("client %d comes from %v", number, got)
			}
			// Whoever is among the limit clients seen last keeps its Conn; nobody has another's.
			recent := map[uint32]bool{}
			for i := len(uses) - 1; i >= 0; i-- {
				if uses[i].number != number && uses[i].conn == conn {
					t.Fatalf("clients %d and %d share conn %d", number, uses[i].number, conn)
				}
				if uses[i].number == number {
					if len(recent) < limit && uses[i].conn != conn {
						t.Fatalf("client %d had conn %d and has %d", number, uses[i].conn, conn)
					}
					break
				}
				recent[uses[i].number] = true
			}
			uses = append(uses, use{number, conn})
			if n := len(table.young.callers) + len(table.old.callers); n > 2*limit {
				t.Fatalf("%d clients kept", n)
			}
		}
	})
}
