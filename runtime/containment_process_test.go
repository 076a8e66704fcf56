package runtime_test

import (
	"io"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A rank fails whose peer is a process of its own. That is told at once, what it had offered is nobody's to wait for,
// and it finds the next rank in that place.
func TestAPeerInAnotherProcessIsToldOfAFailure(t *testing.T) {
	at := reservedPeer(t)
	cfg := delayedConfig(t, "shm", 2)
	cfg.InitPorts[0], cfg.AllocPorts[0] = at.InitPort, at.AllocPort
	failing, bad := openAlone(t, cfg, t.TempDir(), io.Discard)
	p, _ := startNode(t, order{Role: "sender", Channel: "shm", TTL: limit})
	put := func(name string) effects.Code {
		return p.perform(order{Op: "put", Peer: at, Keys: keysOf(name, 2)}).Code
	}
	if code := put("kept"); code != effects.OK {
		t.Fatalf("put: %v", code)
	}
	bad.completesTwice()
	wantFailed(t, failing, "BUG: an effect was completed twice, or never asked for")
	if code := put("late"); code != effects.PeerLost && code != effects.Unreachable {
		t.Errorf("a put to the rank that failed ended as %v", code)
	}
	closeFailed(t, failing)

	again := opened(t, cfg)
	if code := put("again"); code != effects.OK {
		t.Fatalf("a put to the next one there: %v", code)
	}
	mustFetch(t, again, "r", keysOf("again", 2))
}
