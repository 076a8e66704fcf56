package runtime_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A node whose log takes nothing goes on: puts to peers that are there and to those that are not, a peer's end, its
// own.
func TestALogThatBlocksHoldsNothingUp(t *testing.T) {
	log := slog.New(slog.NewTextHandler(logtest.FullPipe(t), &slog.HandlerOptions{Level: slog.LevelDebug}))
	openInto := func(cfg *config.Config) *runtime.Node {
		n, err := runtime.Open(within(t), cfg, runtime.WithControl(zmq.Config{}.Opener()), runtime.WithLogger(log),
			runtime.WithPlane(shm.Name, shm.Open), runtime.WithPlane(tcp.Name, tcp.Open))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s := openInto(senderConfig(t, "tcp", effects.Addr{}))
	for i := range 1 {
		r := openInto(receiverConfig(t, "tcp", nil))
		pages := mustReserve(t, s, 1)
		for _, c := range []struct {
			peer runtime.Peer
			code effects.Code
		}{{peerOf(r), effects.OK}, {runtime.Peer{Host: "127.0.0.1", InitPort: 1, AllocPort: 1}, effects.Unreachable}} {
			_, err := s.Sender().Put(within(t), runtime.Put{Peer: c.peer, Request: fmt.Sprint("r", i),
				Keys: keysOf(fmt.Sprint("blocked", i), 1), Pages: pages})
			wantCode(t, err, c.code)
		}
		mustRelease(t, pages)
		mustClose(t, r) // With a peer's end, which is a line of its own.
	}
	for range 1000 { // Facts, more than wait for a log.
		mustRelease(t, mustReserve(t, s, 1))
	}
	mustClose(t, s)
}
