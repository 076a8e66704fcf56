package tcp_test

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A name is resolved where it was configured and nowhere else: peers are told an address, and accept nothing else.
func TestPeersAreToldAddresses(t *testing.T) {
	a, b := planetest.OpenNode(t, tcp.Open, 1, 2, 4096), planetest.OpenNode(t, tcp.Config{Host: "localhost"}.Open, 2, 2, 4096)
	at, err := netip.ParseAddrPort(string(b.Plane.Blob()[3:]))
	if err != nil {
		t.Fatalf("peers are told %q", b.Plane.Blob()[3:])
	}
	if e := a.TryImport(t, b.Inc, b.Plane.Blob()); e.Code != effects.OK {
		t.Errorf("an address: the import ended as %s", e.Code)
	}
	named := framing.AppendBlob(nil, "localhost:"+strconv.Itoa(int(at.Port())))
	if e := a.TryImport(t, b.Inc, named); e.Code != effects.Unreachable {
		t.Errorf("a name: the import ended as %s", e.Code)
	}
}

// The reason why a link to a peer cannot be opened is logged once, however often the import is tried.
func TestImportFailureIsLoggedOnce(t *testing.T) {
	var log logtest.Lines
	a := planetest.OpenNode(t, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Log = log.Logger()
		return tcp.Open(ctx, env)
	}, 1, 2, 4096)
	nowhere := framing.AppendBlob(nil, "127.0.0.1:1")
	for range 3 {
		if e := a.TryImport(t, effects.Incarnation{7}, nowhere); e.Code != effects.Unreachable {
			t.Errorf("the import ended as %s", e.Code)
		}
	}
	lines := log.LinesWith("cannot open a link to a peer: unreachable")
	if len(lines) != 1 || !strings.Contains(lines[0], "address=127.0.0.1:1") || !strings.Contains(lines[0], "refused") {
		t.Errorf("the log is\n%s", log.String())
	}
}
