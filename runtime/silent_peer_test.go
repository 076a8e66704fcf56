package runtime_test

import (
	"net"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/runtime"
)

// A silentPeer is a receiver that takes connections and says nothing, as a frozen process does. So puts to it wait; puts
// to where nobody listens end at once.
type silentPeer struct {
	runtime.Peer
	listeners [2]net.Listener
	over      chan struct{}
	work      sync.WaitGroup
}

func newSilentPeer(t *testing.T) *silentPeer {
	t.Helper()
	p := &silentPeer{over: make(chan struct{})}
	p.Host = "127.0.0.1"
	for i, port := range []*uint16{&p.InitPort, &p.AllocPort} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.listeners[i], *port = l, uint16(l.Addr().(*net.TCPAddr).Port)
		p.work.Go(func() { p.serve(l) })
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

func (p *silentPeer) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() {
			defer conn.Close()
			<-p.over
		})
	}
}
