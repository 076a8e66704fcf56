//go:build cgo && linux

package runtime_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// Nodes push and pull whichever control transport each of them has; the proxy is told likewise.
func TestNodesOverBothControlTransports(t *testing.T) {
	transports := map[string]control.Opener{"zmq": zmq.Config{}.Opener(), "libzmq": libzmq.Config{}.Opener()}
	for senders, of := range transports {
		for receivers, at := range transports {
			for _, pull := range []bool{false, true} {
				name := senders + " pushes to " + receivers
				if pull {
					name = senders + " offers to " + receivers
				}
				t.Run(name, func(t *testing.T) { carriesOver(t, of, at, pull) })
			}
		}
	}
}

func carriesOver(t *testing.T, of, at control.Opener, pull bool) {
	start := func(cfg *config.Config, control control.Opener) *runtime.Node {
		n, err := runtime.Open(t.Context(), cfg, runtime.WithControl(control), runtime.WithPlane(shm.Name, shm.Open),
			runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))), audit(t, true))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	proxy := startProxy(t)
	receives, sends := receiverConfig(t, "shm", nil), senderConfig(t, "shm", proxy.addr)
	if pull {
		receives.Pull.Enabled, sends = true, pullSenderConfig(t, "shm", proxy.addr)
	}
	r, s := start(receives, at), start(sends, of)
	keys := keysOf("carried", 4)
	pages := mustReserve(t, s, 4)
	fill(t, pages, keys)
	put := runtime.Put{Peer: peerOf(r), Request: "r1", Keys: keys, Pages: pages, Last: true}
	if res, err := s.Sender().Put(within(t), put); err != nil || res.Sent != 4 {
		t.Fatalf("put: %+v, %v", res, err)
	}
	if got := <-proxy.told; got != "r1" {
		t.Errorf("the proxy was told of %q", got)
	}
	got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r1", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, got, keys, pageBytes)
	mustRelease(t, got)
	mustRelease(t, pages)
	mustClose(t, s)
	mustClose(t, r)
}
