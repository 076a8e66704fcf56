package tcp_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// A relay stands between two nodes and does to their bytes what networks do.
type relay struct {
	listener net.Listener
	wg       sync.WaitGroup
	stalled  chan struct{} // closed when the connection has stalled as configured
	resume   chan struct{}
	goOn     func() // ends the stall

	mu      sync.Mutex
	more    sync.Cond // signalled when conns has grown
	over    bool      // conns are closed, and none is added
	conns   []net.Conn
	sources []net.Conn // towards the initiator, in order of connection: requests first, then streams
	targets []net.Conn // towards the target, in the same order
}

// A stall is where a relay stops to pass bytes on.
type stall struct {
	conn  int   // in order of connection: requests first, then streams
	back  bool  // stalls what the target sends
	after int64 // after so many bytes; zero: never
	// This many streams end as soon as they are connected.
	refuse int
}

// newRelay relays to the address of blob.
func newRelay(t *testing.T, blob []byte, at stall) (*relay, []byte) {
	const head = 1 + 2
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, stalled: make(chan struct{}), resume: make(chan struct{})}
	r.more.L = &r.mu
	pass := func(to, from net.Conn, stalls bool) {
		if stalls {
			_ = from.(*net.TCPConn).SetReadBuffer(64 << 10) // It must not buffer a whole page.
			_, _ = io.CopyN(to, from, at.after)
			close(r.stalled)
			<-r.resume
		}
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	r.wg.Go(func() {
		for n := 0; ; n++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", string(blob[head:]))
			if err != nil {
				_ = from.Close()
				continue
			}
			if n > 0 && n <= at.refuse {
				_, _ = from.Close(), to.Close()
				continue
			}
			r.mu.Lock()
			if r.over { // The test was faster than its last stream.
				r.mu.Unlock()
				_, _ = from.Close(), to.Close()
				return
			}
			r.conns, r.sources, r.targets = append(r.conns, from, to), append(r.sources, from), append(r.targets, to)
			r.more.Broadcast()
			r.mu.Unlock()
			stalls := at.after > 0 && n == at.conn
			r.wg.Go(func() { pass(to, from, stalls && !at.back) })
			r.wg.Go(func() { pass(from, to, stalls && at.back) })
		}
	})
	goOn := sync.OnceFunc(func() { close(r.resume) })
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		r.over = true
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		goOn()
		r.wg.Wait()
	})
	r.goOn = goOn
	ours := append([]byte(nil), blob[:head-2]...)
	ours = binary.LittleEndian.AppendUint16(ours, uint16(len(listener.Addr().String())))
	return r, append(ours, listener.Addr().String()...)
}

// initiatorConn waits for a connection and returns its end towards the initiator.
func (r *relay) initiatorConn(n int) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.sources) <= n {
		r.more.Wait()
	}
	return r.sources[n]
}
