package zmq_test

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// The transport keeps the contract over TLS as well.
func TestContractOverTLS(t *testing.T) {
	f := newFleet(t)
	c := unhurried
	c.Guard = f.guard("spiffe://fleet/all/1", secure.Strict)
	controltest.Run(t, c.Opener(), "127.0.0.1")
}

// fleet issues certificates whose names state the role, and "all" for all roles.
type fleet struct {
	testing.TB
	*authority.Authority
}

func newFleet(tb testing.TB) fleet {
	tb.Helper()
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		tb.Fatal(err)
	}
	return fleet{tb, a}
}

func (f fleet) guard(identity string, mode secure.Mode, plain ...netip.Prefix) *secure.Guard {
	f.Helper()
	dir := f.TempDir()
	policy := string(authority.FleetPolicy("fleet")) + "  - name: spiffe://fleet/all/*\n    roles: [" + effects.RoleNames() + "]\n" +
		"  - {name: spiffe://fleet/prefill/1, roles: [prefill], tenants: [9f86d081884c7d65]}\n" +
		"  - {name: spiffe://fleet/decode/1, roles: [decode], tenants: [60303ae22b998861]}\n"
	if err := f.WriteFolder(dir, identity, []byte(policy)); err != nil {
		f.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	g, err := secure.Open(secure.Config{Mode: mode, Cert: in(authority.CertFile), Key: in(authority.KeyFile), CA: in(authority.CAFile),
		Policy: in(authority.PolicyFile), Plain: plain, Recheck: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(g.Close)
	return g
}

// A message arrives with the identity and the roles that its sender proved; without TLS with neither.
func TestMessagesNameTheirSender(t *testing.T) {
	f := newFleet(t)
	start := func(mode secure.Mode) (*controltest.Endpoint, effects.Addr) {
		s := controltest.Start(t, zmq.Config{Guard: f.guard("spiffe://fleet/decode/1", mode)}.Opener(),
			control.Server{Channel: effects.ChannelAlloc, Addr: local})
		return s, s.Servers()[0].Addr
	}
	strict, atStrict := start(secure.Strict)
	permissive, atPermissive := start(secure.Permissive)
	seen := map[string]*effects.Received{}
	for name, guard := range map[string]*secure.Guard{
		"prefill 1": f.guard("spiffe://fleet/prefill/1", secure.Strict),
		"its twin":  f.guard("spiffe://fleet/prefill/1", secure.Permissive),
		"decode 2":  f.guard("spiffe://fleet/decode/2", secure.Strict),
		"plain":     nil,
	} {
		server, at := strict, atStrict
		if guard == nil {
			server, at = permissive, atPermissive
		}
		client := controltest.Start(t, zmq.Config{Guard: guard}.Opener())
		corr := client.SendRequest(client.Dial(effects.ChannelAlloc, at), name)
		got := server.AwaitReceived(name)
		seen[name] = got
		server.SendReply(got.Request, "yes")
		client.WantReply(corr, "yes")
		proved := controltest.Count(client.Recorder, func(e *effects.Replied) bool { return e.Principal != 0 })
		// The server's entry gives it the tenants of both entries that match.
		if n := controltest.Count(client.Recorder, func(e *effects.Replied) bool {
			return e.Tenants.Equal(effects.NewTenants(0, 0x60303ae22b998861)) && e.Realm == 0
		}); guard.Mode() == secure.Strict && n != 1 {
			t.Errorf("%s got %d replies with the server's tenants", name, n)
		}
		if want := min(1, len(name)-len("plain")); proved != max(want, 0) {
			t.Errorf("%s got %d replies of a server with an identity", name, proved)
		}
	}
	if seen["plain"].Principal != 0 {
		t.Errorf("a plain client is %x", seen["plain"].Principal)
	}
	if p := seen["prefill 1"]; p.Roles != effects.RolePrefill || p.Principal == 0 || p.Principal != seen["its twin"].Principal {
		t.Errorf("prefill 1 is %x with %v, and its twin %x", p.Principal, p.Roles, seen["its twin"].Principal)
	}
	for name, want := range map[string]*effects.Tenants{
		"prefill 1": effects.NewTenants(0, 0x9f86d081884c7d65), "decode 2": effects.NewTenants(0), "plain": nil,
	} {
		if !seen[name].Tenants.Equal(want) || seen[name].Realm != 0 {
			t.Errorf("%s has the tenants %v in realm %x", name, seen[name].Tenants, seen[name].Realm)
		}
	}
	if d := seen["decode 2"]; d.Roles != effects.RoleDecode || d.Principal == seen["prefill 1"].Principal {
		t.Errorf("decode 2 is %x with %v", d.Principal, d.Roles)
	}
	// All are on one host, and identities have shares of their own there.
	origins := map[effects.Origin]bool{}
	for _, name := range []string{"prefill 1", "decode 2", "plain"} {
		origins[seen[name].Origin] = true
	}
	if len(origins) != 3 || origins[0] || seen["prefill 1"].Origin != seen["its twin"].Origin {
		t.Errorf("the clients count against %v, and the twin against %x", origins, seen["its twin"].Origin)
	}
}

// A client without TLS from a listed network is served by a strict server. Its messages arrive with the roles of engines,
// without an identity, and of no trust domain.
func TestPlainClientsOfAStrictServer(t *testing.T) {
	f := newFleet(t)
	for network, admitted := range map[string]bool{"127.0.0.0/8": true, "192.0.2.0/24": false} {
		guard := f.guard("spiffe://fleet/decode/1", secure.Strict, netip.MustParsePrefix(network))
		server := controltest.Start(t, zmq.Config{Guard: guard}.Opener(), control.Server{Channel: effects.ChannelAlloc, Addr: local})
		client := controltest.Start(t, zmq.Config{}.Opener())
		corr := client.SendRequest(client.Dial(effects.ChannelAlloc, server.Servers()[0].Addr), "plain")
		if !admitted {
			// A client with a certificate is served, so the message of the other one would have arrived.
			member := controltest.Start(t, zmq.Config{Guard: f.guard("spiffe://fleet/prefill/1", secure.Strict)}.Opener())
			member.SendRequest(member.Dial(effects.ChannelAlloc, server.Servers()[0].Addr), "member")
			server.AwaitReceived("member")
			if n := controltest.Count(server.Recorder, func(e *effects.Received) bool { return string(e.Body) == "plain" }); n != 0 {
				t.Error("a client of another network is served")
			}
			continue
		}
		got := server.AwaitReceived("plain")
		server.SendReply(got.Request, "yes")
		client.WantReply(corr, "yes")
		if got.Principal != 0 || got.Roles != effects.RolePrefill|effects.RoleDecode || got.Realm != effects.RealmUnproven ||
			!got.Tenants.Equal(effects.NewTenants(0)) || got.Origin == 0 {
			t.Errorf("the client is %+v", got)
		}
	}
}

// A client sends nothing to a server that lacks the role of the channel, or that proves nothing; both logs say why.
func TestRefusedServersAndClients(t *testing.T) {
	f := newFleet(t)
	prefill := f.guard("spiffe://fleet/prefill/1", secure.Strict)
	for name, c := range map[string]struct {
		client, server         *secure.Guard
		clientSays, serverSays string
	}{
		"a server with another role": {prefill, f.guard("spiffe://fleet/proxy/1", secure.Strict), "must be one of decode", ""},
		"a server without TLS":       {prefill, nil, "security.mode is off", ""},
		"a client without TLS":       {nil, f.guard("spiffe://fleet/decode/1", secure.Strict), "TLS required", "the connection is not encrypted"},
		"a client without a role": {f.guard("spiffe://fleet/nobody/1", secure.Strict), f.guard("spiffe://fleet/decode/1", secure.Strict), "",
			"no role"},
	} {
		t.Run(name, func(t *testing.T) {
			var clientLog, serverLog logged
			server := controltest.Start(t, zmq.Config{Guard: c.server, Log: serverLog.Logger()}.Opener(),
				control.Server{Channel: effects.ChannelAlloc, Addr: local})
			client := controltest.Start(t, zmq.Config{Guard: c.client, Log: clientLog.Logger(), ConnectTimeout: time.Minute}.Opener())
			client.Open(&effects.Open{Corr: 1, Channel: effects.ChannelAlloc, Addr: server.Servers()[0].Addr})
			for log, text := range map[*logged]string{&clientLog: c.clientSays, &serverLog: c.serverSays} {
				if text != "" {
					log.await(t, text)
				}
			}
			if n := controltest.Count(server.Recorder, func(*effects.Received) bool { return true }); n > 0 {
				t.Errorf("%d messages arrived", n)
			}
		})
	}
}

// A connection that was opened for an identity sends nothing to another process, neither at first nor when another process
// has the address after the peer has gone.
func TestOnlyThePeerGetsMessages(t *testing.T) {
	f := newFleet(t)
	prefill := f.guard("spiffe://fleet/prefill/1", secure.Strict)
	start := func(identity string, at effects.Addr) *controltest.Endpoint {
		return controltest.Start(t, zmq.Config{Guard: f.guard(identity, secure.Strict)}.Opener(),
			control.Server{Channel: effects.ChannelAlloc, Addr: at})
	}
	one := start("spiffe://fleet/decode/1", local)
	at := one.Servers()[0].Addr
	var log logged
	client := controltest.Start(t, zmq.Config{Guard: prefill, Log: log.Logger(), Reconnect: time.Millisecond}.Opener())

	// Which identity the peer has is known by its reply.
	corr := client.SendRequest(client.Dial(effects.ChannelAlloc, at), "who?")
	one.SendReply(one.AwaitReceived("who?").Request, "one")
	client.WantReply(corr, "one")
	known := controltest.Await(t, client.Recorder, func(e *effects.Replied) bool { return e.Corr == corr }).Principal
	if known == 0 {
		t.Fatal("the reply names no identity")
	}
	open := func(corr effects.Corr, principal effects.Principal) *effects.Opened {
		client.Open(&effects.Open{Corr: corr, Channel: effects.ChannelAlloc, Addr: at, Principal: principal})
		return controltest.Await(t, client.Recorder, func(e *effects.Opened) bool { return e.Corr == corr })
	}
	if o := open(1000, known+1); o.Code != effects.Unreachable {
		t.Errorf("a connection for another identity: %v", o.Code)
	}
	log.await(t, "proves another identity")
	bound := open(1001, known)
	corr = client.SendRequest(bound.Conn, "for one")
	one.SendReply(one.AwaitReceived("for one").Request, "yes")
	client.WantReply(corr, "yes")

	// Another member of the fleet gets the address.
	one.Stop()
	two := start("spiffe://fleet/decode/2", at)
	client.SendRequest(bound.Conn, "a key of one")
	other := client.SendRequest(client.Dial(effects.ChannelAlloc, at), "for anybody")
	two.SendReply(two.AwaitReceived("for anybody").Request, "yes")
	client.WantReply(other, "yes")
	if n := controltest.Count(two.Recorder, func(e *effects.Received) bool { return string(e.Body) == "a key of one" }); n > 0 {
		t.Error("another process got what was for the peer")
	}
	// The peer is back, and is sent what waited.
	two.Stop()
	again := start("spiffe://fleet/decode/1", at)
	corr = client.SendRequest(open(1002, known).Conn, "again")
	again.SendReply(again.AwaitReceived("again").Request, "yes")
	client.WantReply(corr, "yes")
}
