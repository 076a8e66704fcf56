package attach

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

// However many want to attach: one that is attached is not closed to make room for them, idle as it may be.
func TestAnAttachedEngineGivesWayToNobody(t *testing.T) {
	r := newRig(t, "sender")
	c := r.attach()
	at := filepath.Join(t.TempDir(), "crowd")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	known := make(chan struct{})
	r.s.door.Serve(l, "crowd", func(g *door.Conn) error { // As those that are turned away, but slower to go.
		defer g.Close()
		g.MarkKnown()
		known <- struct{}{}
		_, err := io.Copy(io.Discard, g)
		return err
	})
	for range 2 * (2*r.s.cfg.Engines + 8) {
		conn, err := net.Dial("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		<-known
	}
	c.ok(protocol.CallStats, protocol.EngineCall{})

	// One that goes on elsewhere does.
	old := *c
	c.connect(protocol.AttachRequest{Version: 1, Session: c.told.Session, Incarnation: c.told.Incarnation, Open: []uint64{c.last}})
	if !c.told.Resumed {
		t.Fatal("not resumed")
	}
	if _, err := io.Copy(io.Discard, old.conn); err != nil {
		t.Error(err)
	}
	c.ok(protocol.CallStats, protocol.EngineCall{})
}

// Else the first engine would end the agent.
func TestNumbersHaveBounds(t *testing.T) {
	r := newRig(t, "sender")
	path := filepath.Join(t.TempDir(), "other")
	for want, cfg := range map[string]Config{
		"Engines is -1":             {Engines: -1},
		"Window is -1":              {Window: -1},
		"Window is 4294967296":      {Window: 1 << 32},
		"Holdings is -1":            {Holdings: -1},
		"CallBytes is 4096":         {CallBytes: 4096},
		"Keys is 65537":             {Keys: 1<<16 + 1},
		"MessageBytes is 134217728": {MessageBytes: 128 << 20},
	} {
		cfg.Node, cfg.Path = r.node, path
		if s, err := Serve(cfg); err == nil {
			t.Errorf("%s: it serves", want)
			_ = s.Close(t.Context())
		} else if !strings.Contains(err.Error(), want+"; set it to 1") {
			t.Errorf("%v instead of %s", err, want)
		}
	}
}
