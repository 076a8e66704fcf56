package runtime_test

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/runtime"
)

// A laterPeer is a receiver that takes connections and says nothing, as a frozen process does, until open gives it one
// that does. So puts to it wait; puts to where nobody listens end at once.
type laterPeer struct {
	runtime.Peer
	listeners [2]net.Listener
	there     chan struct{} // closed when real is known
	over      chan struct{}
	real      runtime.Peer
	work      sync.WaitGroup
}

func newLaterPeer(t *testing.T) *laterPeer {
	t.Helper()
	p := &laterPeer{there: make(chan struct{}), over: make(chan struct{})}
	p.Host = "127.0.0.1"
	for i, port := range []*uint16{&p.InitPort, &p.AllocPort} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.listeners[i], *port = l, uint16(l.Addr().(*net.TCPAddr).Port)
		p.work.Go(func() { p.serve(l, i) })
	}
	t.Cleanup(func() {
		close(p.over)
		for _, l := range p.listeners {
			_ = l.Close()
		}
		p.work.Wait()
	})
	return p
}

// open leads all connections, those that wait included, to a receiver.
func (p *laterPeer) open(r *runtime.Node) {
	p.real = peerOf(r)
	close(p.there)
}

func (p *laterPeer) serve(l net.Listener, which int) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.lead(conn, which) })
	}
}

func (p *laterPeer) lead(conn net.Conn, which int) {
	defer conn.Close()
	select {
	case <-p.there:
	case <-p.over:
		return
	}
	port := [...]uint16{p.real.InitPort, p.real.AllocPort}[which]
	real, err := net.Dial("tcp", net.JoinHostPort(p.real.Host, strconv.Itoa(int(port))))
	if err != nil {
		return
	}
	defer real.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{conn, real}, {real, conn}} {
		p.work.Go(func() { _, _ = io.Copy(way[0], way[1]); ended <- struct{}{} })
	}
	select {
	case <-ended:
	case <-p.over:
	}
}
