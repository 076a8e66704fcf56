package secure

import (
	"strconv"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// The names of identities are remembered for those who ask what a principal stands for, in a bounded number: those of open
// connections stay.
func TestIdentityNamesAreBounded(t *testing.T) {
	g := &Guard{names: map[effects.Principal]string{}, conns: map[*Conn]struct{}{}}
	connected := Peer{Principal: 7, Name: "connected"}
	g.conns[&Conn{peer: connected}] = struct{}{}
	g.rememberName(&connected)
	for i := range 3 * namesMax {
		p := Peer{Principal: effects.Principal(100 + i), Name: strconv.Itoa(i)}
		g.rememberName(&p)
		if len(g.names) > namesMax {
			t.Fatalf("%d names are kept", len(g.names))
		}
		if got := g.IdentityName(p.Principal); got != p.Name {
			t.Fatalf("the last identity is %q", got)
		}
	}
	if got := g.IdentityName(7); got != "connected" {
		t.Errorf("the identity of an open connection is %q", got)
	}
	if g.rememberName(&Peer{}); g.IdentityName(0) != "" || (*Guard)(nil).IdentityName(7) != "" {
		t.Error("a peer that proved nothing has a name")
	}
}
