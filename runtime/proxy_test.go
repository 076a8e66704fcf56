//go:build cgo

package runtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// timesTold is how often the node says that the proxy was told.
func timesTold(n *runtime.Node) (times uint64) {
	for _, c := range n.FactCounts() {
		if c.Fact == effects.FactProxyTold && c.Code == effects.OK {
			times += c.Times
		}
	}
	return times
}

// A proxy that is down hears of a request when it is there; until then nothing says that it was told, and a drain says
// what is left.
func TestProxyThatIsDownIsNotCalledTold(t *testing.T) {
	tr, err := zmq.Listen(zmq.Config{}, []control.Server{{Channel: effects.ChannelProxy,
		Addr: effects.Addr{Host: "127.0.0.1"}}}, &proxy{told: make(chan string, 4)})
	if err != nil {
		t.Fatal(err)
	}
	at := tr.Servers()[0].Addr
	at.Host = "127.0.0.1"
	// It is gone before anybody was connected to it: what is said on a connection that has just ended may count as
	// told.
	if err := tr.Shutdown(within(t)); err != nil {
		t.Fatal(err)
	}
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	s := open(t, senderConfig(t, "shm", at))
	keys, pages := keysOf("proxy", 1), mustReserve(t, s, 1)
	fill(t, pages, keys)
	if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r1", Keys: keys, Pages: pages,
		Last: true}); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	left, err := s.Drain(ctx)
	cancel()
	if left != 1 || runtime.CodeOf(err) != effects.Expired || !strings.Contains(err.Error(), "proxy") {
		t.Errorf("the drain says %d left, %v; want 1, and that the proxy may be the cause", left, err)
	}
	if n := timesTold(s); n != 0 {
		t.Errorf("the proxy counts as told %d times, and nobody was there", n)
	}
	again := startProxyAt(t, at)
	if got := <-again.told; got != "r1" {
		t.Errorf("the proxy was told of %q", got)
	}
	mustClose(t, s)
}
