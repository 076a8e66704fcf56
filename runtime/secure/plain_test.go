package secure_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A strict server accepts control connections without TLS from the listed networks alone, and their clients have the roles
// of engines, the chunks of the default tenant and no trust domain.
func TestPlainNetworks(t *testing.T) {
	f := newFleet(t)
	for _, c := range []struct {
		networks string
		face     secure.Face
		admitted bool
	}{
		{"127.0.0.0/8", secure.FaceControl, true}, {"127.0.0.1/32", secure.FaceControl, true},
		{"127.0.0.2/32", secure.FaceControl, false}, {"::1/128", secure.FaceControl, false}, {"127.0.0.0/8", secure.FaceData, false},
	} {
		t.Run(c.networks+" "+string(c.face), func(t *testing.T) {
			config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
			config.Plain = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix(c.networks)}
			server := f.open(config)
			near, far := socketPair(t)
			if _, err := near.Write([]byte{0xFF}); err != nil {
				t.Fatal(err)
			}
			conn, peer, err := server.Accept(far, c.face, effects.RolePrefill)
			if !c.admitted {
				if !errors.Is(err, secure.ErrPlain) || server.Stats().Refused != 1 {
					t.Errorf("the client is accepted as %+v, %v; %+v", peer, err, server.Stats())
				}
				return
			}
			if err != nil || conn != far || server.Stats().Plain != 1 {
				t.Fatalf("%v, %v; %+v", conn, err, server.Stats())
			}
			if peer.Principal != 0 || peer.Roles != effects.RolePrefill|effects.RoleDecode ||
				!peer.Tenants.Equal(effects.NewTenants(0)) || peer.Realm != effects.RealmUnproven {
				t.Errorf("the client is %+v", peer)
			}
			// A client with a certificate is known as without the list.
			client, atServer := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), server, secure.FaceControl, effects.RoleDecode)
			if client.err != nil || atServer.err != nil || atServer.peer.Name != "spiffe://fleet/prefill/3" ||
				atServer.peer.Realm != 0 {
				t.Errorf("%v, %+v, %v", client.err, atServer.peer, atServer.err)
			}
		})
	}
}
