package tcp_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// certsVariable names the folder with the certificates of this process and of the processes that a test starts. If it
// is set, openMaybeSecured opens planes with TLS.
const certsVariable = "KVFERRY_TEST_CERTS"

var guards struct {
	mu   sync.Mutex
	open map[string]*secure.Guard // by folder
}

// openMaybeSecured is the opener of all processes of this package's tests.
func openMaybeSecured(ctx context.Context, env plane.Env) (plane.Plane, error) {
	if dir := os.Getenv(certsVariable); dir != "" {
		guards.mu.Lock()
		defer guards.mu.Unlock()
		g := guards.open[dir]
		if g == nil {
			var err error
			if g, err = secure.Open(secureConfig(dir, secure.Strict)); err != nil {
				return nil, err
			}
			guards.open = map[string]*secure.Guard{dir: g}
		}
		env.Guard = g
	}
	return tcp.Open(ctx, env)
}

func secureConfig(dir string, mode secure.Mode) secure.Config {
	in := func(name string) string { return filepath.Join(dir, name) }
	return secure.Config{Mode: mode, Cert: in(authority.CertFile), Key: in(authority.KeyFile), CA: in(authority.CAFile),
		Policy: in(authority.PolicyFile), Recheck: time.Hour, Log: slog.New(slog.DiscardHandler)}
}

// useCerts makes openMaybeSecured open planes with TLS, in this process and in the processes that it starts. The result
// issues further certificates of the same fleet.
func useCerts(tb testing.TB) *authority.Authority {
	tb.Helper()
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := a.WriteFolder(dir, "spiffe://fleet/both/1", authority.FleetPolicy("fleet")); err != nil {
		tb.Fatal(err)
	}
	tb.Setenv(certsVariable, dir)
	tb.Cleanup(func() {
		guards.mu.Lock()
		defer guards.mu.Unlock()
		guards.open[dir].Close()
		delete(guards.open, dir)
	})
	return a
}

// The plane keeps the contract over TLS as well.
func TestContractOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole contract once more, with processes that are killed and frozen")
	}
	useCerts(t)
	planetest.Run(t, openMaybeSecured)
}

// newGuard returns a guard of the fleet whose certificates useCerts has made.
func newGuard(t *testing.T, mode secure.Mode) *secure.Guard {
	t.Helper()
	g, err := secure.Open(secureConfig(os.Getenv(certsVariable), mode))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func openWith(g *secure.Guard) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Guard = g
		return tcp.Open(ctx, env)
	}
}

// Which modes of two nodes have a link between them, and whether a push over it arrives.
func TestModesOfLinks(t *testing.T) {
	useCerts(t)
	modes := map[string]*secure.Guard{"off": nil, "permissive": newGuard(t, secure.Permissive), "strict": newGuard(t, secure.Strict)}
	for _, c := range []struct {
		from, to string
		linked   bool
	}{
		{"off", "permissive", true}, {"off", "strict", false}, {"permissive", "off", true}, {"permissive", "permissive", true},
		{"permissive", "strict", true}, {"strict", "off", false}, {"strict", "permissive", true},
	} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			a := planetest.OpenNode(t, openWith(modes[c.from]), 1, 2, 4096)
			b := planetest.OpenNode(t, openWith(modes[c.to]), 2, 2, 4096)
			imported := a.TryImport(t, b.Inc, b.Plane.Blob())
			if linked := imported.Code == effects.OK; linked != c.linked {
				t.Fatalf("the link is %s", imported.Code)
			}
			if !c.linked {
				return
			}
			push := planetest.NewWholePush(a, b, imported.Link, 0, 1, 4096)
			if done := a.AwaitDone(t, a.StartPush(push)); done.Code != effects.OK {
				t.Errorf("the push ended as %s", done.Code)
			}
		})
	}
}

// A member of the fleet that is no engine's node leaves nothing behind when it is refused.
func TestOtherRolesAreRefused(t *testing.T) {
	certs := useCerts(t)
	g := newGuard(t, secure.Strict)
	b := planetest.OpenNode(t, openWith(g), 2, 2, 4096)
	proxy := t.TempDir()
	if err := certs.WriteFolder(proxy, "spiffe://fleet/proxy/1", authority.FleetPolicy("fleet")); err != nil {
		t.Fatal(err)
	}
	client, err := secure.Open(secureConfig(proxy, secure.Strict))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		conn, err := net.Dial("tcp", string(b.Plane.Blob()[3:]))
		if err != nil {
			t.Fatal(err)
		}
		secured, _, err := client.Connect(t.Context(), conn, secure.FaceData, effects.AllRoles)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := secured.Read(make([]byte, 1)); err == nil {
			t.Error("the plane answers a proxy")
		}
		_ = secured.Close()
	}
	if n := g.Stats().Open; n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// A stream over TLS that the target's door closes is opened again, and not without TLS.
func TestEvictedStreamsAreOpenedAgainOverTLS(t *testing.T) {
	useCerts(t)
	for _, mode := range []secure.Mode{secure.Strict, secure.Permissive} {
		t.Run(mode.String(), func(t *testing.T) {
			g := newGuard(t, mode)
			a, b := planetest.OpenNode(t, openWith(g), 1, 2, 4096), planetest.OpenNode(t, openWith(g), 2, 2, 4096)
			_, blob := newRelay(t, b.Plane.Blob(), stall{refuse: 3})
			l := a.Import(t, b.Inc, blob)
			if done := a.AwaitDone(t, a.StartPush(planetest.NewWholePush(a, b, l, 0, 2, 4096))); done.Code != effects.OK {
				t.Errorf("a push over the link ended as %s", done.Code)
			}
			if n := g.Stats().Plain; n != 0 {
				t.Errorf("%d connections are plain", n)
			}
		})
	}
}

// A hello is proven for one TLS connection. A member of the fleet to which a peer connects cannot pass the peer's proof
// on to the node that the peer wants to reach.
func TestProofIsNotPassedOn(t *testing.T) {
	useCerts(t)
	g := newGuard(t, secure.Strict)
	b := planetest.OpenNode(t, openWith(g), 2, 2, 4096)
	greet := func(bind func(net.Conn) []byte) (*link.Welcome, error) {
		conn, err := net.Dial("tcp", string(b.Plane.Blob()[3:]))
		if err != nil {
			t.Fatal(err)
		}
		secured, _, err := g.Connect(t.Context(), conn, secure.FaceData, effects.AllRoles)
		if err != nil {
			t.Fatal(err)
		}
		defer secured.Close()
		h := link.Hello{From: effects.Incarnation{0: 9, 15: 9}, To: b.Inc, Session: [16]byte{7}}
		h.Proof = h.ComputeProof(link.KindHello, planetest.Key.Token(tcp.Name, h.From, h.To), bind(secured))
		if _, err := secured.Write(link.AppendHello(nil, link.KindHello, h)); err != nil {
			t.Fatal(err)
		}
		kind, body, _, err := link.ReadFrame(secured, nil, link.SmallFrame)
		if err != nil || kind != link.KindWelcome {
			t.Fatal(kind, err)
		}
		return &link.Welcome{Code: effects.CodeFromWire(uint32(body[0]))}, nil
	}
	for name, c := range map[string]struct {
		bind func(net.Conn) []byte
		want effects.Code
	}{
		"of this connection":    {secure.Binding, effects.OK},
		"of another connection": {func(net.Conn) []byte { return make([]byte, 32) }, effects.Refused},
		"of no connection":      {func(net.Conn) []byte { return nil }, effects.Refused},
	} {
		if w, err := greet(c.bind); err != nil || w.Code != c.want {
			t.Errorf("a proof %s is answered with %v, %v", name, w, err)
		}
	}
}

// BenchmarkTLS compares pushes over TLS with pushes in the clear.
func BenchmarkTLS(b *testing.B) {
	useCerts(b)
	planetest.BenchPushes(b, nil, planetest.Contender{Name: "tls", Open: openMaybeSecured},
		planetest.Contender{Name: "tls1", Open: func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			p, err := openMaybeSecured(ctx, env) // Opens the guard.
			if err != nil {
				return nil, err
			}
			_ = p.Close(ctx)
			env.Guard = guards.open[os.Getenv(certsVariable)]
			return tcp.Config{Streams: 1}.Open(ctx, env)
		}},
		planetest.Contender{Name: "plain", Open: tcp.Open}, planetest.Contender{Name: "plain1", Open: tcp.Config{Streams: 1}.Open})
}
