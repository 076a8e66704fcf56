package secure_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet issues the certificates of a test.
type fleet struct {
	*testing.T
	*authority.Authority
	clock  *clock
	policy []byte
}

// clock is a time of day that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	c := &clock{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	a, err := authority.New(time.Hour, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{t, a, c, authority.FleetPolicy("fleet")}
}

// configOf writes the files of an identity and returns the configuration that names them.
func (f *fleet) configOf(identity string, mode secure.Mode) secure.Config {
	f.Helper()
	dir := f.TempDir()
	if err := f.WriteFolder(dir, identity, f.policy); err != nil {
		f.Fatal(err)
	}
	return secure.Config{
		Mode: mode, Cert: filepath.Join(dir, authority.CertFile), Key: filepath.Join(dir, authority.KeyFile),
		CA: filepath.Join(dir, authority.CAFile), Policy: filepath.Join(dir, authority.PolicyFile),
		Recheck: time.Hour, Now: f.clock.now, Log: slog.New(slog.DiscardHandler),
	}
}

func (f *fleet) guard(identity string, mode secure.Mode) *secure.Guard {
	f.Helper()
	return f.open(f.configOf(identity, mode))
}

func (f *fleet) open(c secure.Config) *secure.Guard {
	f.Helper()
	g, err := secure.Open(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(g.Close)
	return g
}

// end is one end of a connection after its handshake.
type end struct {
	conn net.Conn
	peer secure.Peer
	err  error
}

// connect lets a client and a server shake hands over a real connection. The server must have one of roles.
func connect(t *testing.T, client, server *secure.Guard, face secure.Face, roles effects.Roles) (c, s end) {
	t.Helper()
	near, far := socketPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.conn, s.peer, s.err = server.Accept(far, secure.FaceControl, effects.RolePrefill); s.err != nil {
			_ = far.Close()
		}
	}()
	c.conn, c.peer, c.err = client.Connect(context.Background(), near, face, roles)
	if c.err == nil && client.Mode() == secure.Off {
		_, _ = c.conn.Write([]byte{0xFF}) // The server waits for a first byte.
	}
	<-done
	return c, s
}

func socketPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// Both ends learn the identity and the roles of the other, and what one writes the other reads.
func TestBothEndsAreKnown(t *testing.T) {
	f := newFleet(t)
	c, s := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), f.guard("spiffe://fleet/decode/7", secure.Strict),
		secure.FaceControl, effects.RoleDecode)
	if c.err != nil || s.err != nil {
		t.Fatal(c.err, s.err)
	}
	if c.peer.Name != "spiffe://fleet/decode/7" || c.peer.Roles != effects.RoleDecode || c.peer.Principal == 0 {
		t.Errorf("the client is connected to %+v", c.peer)
	}
	if s.peer.Name != "spiffe://fleet/prefill/3" || s.peer.Roles != effects.RolePrefill || s.peer.Principal == c.peer.Principal {
		t.Errorf("the server is connected to %+v", s.peer)
	}
	go func() { _, _ = c.conn.Write([]byte("words")) }()
	got := make([]byte, 5)
	if _, err := io.ReadFull(s.conn, got); err != nil || string(got) != "words" {
		t.Errorf("%q, %v", got, err)
	}
	_, _ = c.conn.Close(), s.conn.Close()
}

// A peer is refused that has no certificate of the fleet, no role, the wrong role, or speaks another protocol. The
// error at the end that refuses names the reason.
func TestRefusedPeers(t *testing.T) {
	f, other := newFleet(t), newFleet(t)
	decode := f.guard("spiffe://fleet/decode/7", secure.Strict)
	foreign := other.configOf("spiffe://fleet/prefill/3", secure.Strict)
	foreign.CA = f.configOf("spiffe://fleet/prefill/3", secure.Strict).CA // It believes the fleet, and the fleet does not believe it.
	for name, c := range map[string]struct {
		client, server *secure.Guard
		face           secure.Face
		want           string
		byClient       bool
	}{
		"another authority's client": {f.open(foreign), decode, secure.FaceControl,
			"not valid here", false},
		"another authority's server": {f.guard("spiffe://fleet/prefill/3", secure.Strict), other.guard("spiffe://fleet/decode/7", secure.Strict),
			secure.FaceControl, "not valid here", true},
		"a client without a role": {f.guard("spiffe://fleet/visitor/3", secure.Strict), decode, secure.FaceControl,
			`gives "spiffe://fleet/visitor/3" no role`, false},
		"a server of another role": {f.guard("spiffe://fleet/prefill/3", secure.Strict), f.guard("spiffe://fleet/proxy/1", secure.Strict),
			secure.FaceControl, "must be one of decode", true},
		"another protocol": {f.guard("spiffe://fleet/prefill/3", secure.Strict), decode, secure.FaceData, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, c.client, c.server, c.face, effects.RoleDecode)
			err := server.err
			if c.byClient {
				err = client.err
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v; want %q", err, c.want)
			}
			if client.conn != nil && server.conn != nil {
				t.Error("both ends have a connection")
			}
		})
	}
}

// The modes of two ends, and how their connection comes out.
func TestModes(t *testing.T) {
	f := newFleet(t)
	guards := map[secure.Mode][2]*secure.Guard{}
	for _, m := range []secure.Mode{secure.Permissive, secure.Strict} {
		guards[m] = [2]*secure.Guard{f.guard("spiffe://fleet/prefill/3", m), f.guard("spiffe://fleet/decode/7", m)}
	}
	guards[secure.Off] = [2]*secure.Guard{f.open(secure.Config{}), nil}
	for _, c := range []struct {
		client, server secure.Mode
		secured        bool
		serverError    error
	}{
		{secure.Off, secure.Off, false, nil},
		{secure.Off, secure.Permissive, false, nil},
		{secure.Off, secure.Strict, false, secure.ErrPlain},
		{secure.Permissive, secure.Permissive, true, nil},
		{secure.Permissive, secure.Strict, true, nil},
		{secure.Strict, secure.Permissive, true, nil},
		{secure.Strict, secure.Strict, true, nil},
	} {
		t.Run(c.client.String()+" to "+c.server.String(), func(t *testing.T) {
			client, server := connect(t, guards[c.client][0], guards[c.server][1], secure.FaceControl, effects.RoleDecode)
			if client.err != nil || !errors.Is(server.err, c.serverError) {
				t.Fatalf("the errors are %v and %v", client.err, server.err)
			}
			if _, secured := client.conn.(*secure.Conn); secured != c.secured {
				t.Errorf("the client's connection is a %T", client.conn)
			}
			if c.serverError == nil && !c.secured && (server.peer.Principal != 0 || server.peer.Roles != effects.AllRoles) {
				t.Errorf("a plain client is %+v", server.peer)
			}
		})
	}
}

// Mode permissive accepts a peer that strict would refuse, with all roles, and logs each. The peer keeps an identity
// that a listed authority has certified, so that it is not refused names that it has proved to own.
func TestPermissiveRefusesNobody(t *testing.T) {
	other := newFleet(t)
	for name, c := range map[string]struct {
		identity string
		foreign  bool // of another authority
		ended    bool
		says     string
	}{
		"another authority": {identity: "spiffe://fleet/prefill/3", foreign: true, says: "not valid here"},
		"no role":           {identity: "spiffe://fleet/visitor/3", says: "no role"},
		"another role":      {identity: "spiffe://fleet/proxy/3", says: "must be one of"},
		"ended":             {identity: "spiffe://fleet/both/3", ended: true, says: "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			from := f
			if c.foreign {
				from = other
			}
			doubtful := from.guard(c.identity, secure.Permissive)
			if c.ended {
				f.clock.advance(2 * time.Hour)
			}
			log := new(logtest.Lines)
			config := f.configOf("spiffe://fleet/decode/7", secure.Permissive)
			config.Log = log.Logger()
			decode := f.open(config)
			for range 2 { // The second line is left out.
				client, server := connect(t, doubtful, decode, secure.FaceControl, effects.RoleDecode)
				if client.err != nil || server.err != nil {
					t.Fatal(client.err, server.err)
				}
				if p := server.peer; p.Roles != effects.AllRoles || (p.Principal == 0) != c.foreign {
					t.Errorf("the server is connected to %+v", p)
				}
			}
			if lines := log.LinesWith("would refuse"); len(lines) != 1 || !strings.Contains(lines[0], c.says) ||
				!strings.Contains(lines[0], "from="+c.identity) {
				t.Errorf("the log says %q", lines)
			}
			client, server := connect(t, decode, doubtful, secure.FaceControl, effects.RoleDecode)
			if client.err != nil || server.err != nil || client.peer.Roles != effects.AllRoles || (client.peer.Principal == 0) != c.foreign {
				t.Errorf("as a server it is %+v: %v, %v", client.peer, client.err, server.err)
			}
			if n := decode.Stats().Doubtful; n != 3 {
				t.Errorf("%d were counted", n)
			}
		})
	}
}

// Mode permissive logs each address that still connects without TLS.
func TestPermissiveLogsPlainPeers(t *testing.T) {
	f := newFleet(t)
	log := new(logtest.Lines)
	config := f.configOf("spiffe://fleet/decode/7", secure.Permissive)
	config.Log = log.Logger()
	server := f.open(config)
	for range 2 {
		if _, s := connect(t, f.open(secure.Config{}), server, secure.FaceControl, effects.RoleDecode); s.err != nil {
			t.Fatal(s.err)
		}
	}
	if lines := log.LinesWith("without TLS"); len(lines) != 1 || !strings.Contains(lines[0], "from=127.0.0.1") {
		t.Errorf("the log says %q", lines)
	}
}

// Ending one direction of a connection does not wait for a peer that reads nothing, because the goroutine that steps the
// machine does it.
func TestCloseWriteDoesNotWait(t *testing.T) {
	f := newFleet(t)
	c, s := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), f.guard("spiffe://fleet/decode/7", secure.Strict),
		secure.FaceControl, effects.RoleDecode)
	if c.err != nil || s.err != nil {
		t.Fatal(c.err, s.err)
	}
	writes, ended := make(chan struct{}, 1<<20), make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1<<14); ; writes <- struct{}{} {
			if _, err := c.conn.Write(b); err != nil {
				return
			}
		}
	}()
	for stuck := false; !stuck; {
		select {
		case <-writes:
		case <-time.After(100 * time.Millisecond):
			stuck = true
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.conn.(interface{ CloseWrite() error }).CloseWrite() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Second): // TLS would wait 5 s to send an alert.
		t.Error("it waits for the peer")
	}
	_, _ = c.conn.Close(), s.conn.Close()
	<-ended
}

// A stranger cannot make a server keep more of its handshake than a chain of certificates needs.
func TestHandshakeIsBounded(t *testing.T) {
	f := newFleet(t)
	server := f.guard("spiffe://fleet/decode/7", secure.Strict)
	near, far := socketPair(t)
	wrote := make(chan int)
	go func() {
		// Records of a handshake message that says to be long.
		record := append([]byte{0x16, 3, 1, 0x40, 0}, make([]byte, 1<<14)...)
		copy(record[5:], []byte{1, 0, 0xFF, 0xFF})
		n := 0
		for range 1 << 12 {
			m, err := near.Write(record)
			if n += m; err != nil {
				break
			}
		}
		wrote <- n
	}()
	if _, _, err := server.Accept(far, secure.FaceControl, effects.RolePrefill); err == nil {
		t.Error("it was accepted")
	}
	_ = far.Close()
	if n := <-wrote; n == 1<<12*(5+1<<14) {
		t.Errorf("all %d bytes were taken", n)
	}
}

// A client whose server answers without TLS learns that. Of a server that only closes the connection nothing is known.
func TestServerWithoutTLS(t *testing.T) {
	f := newFleet(t)
	g := f.guard("spiffe://fleet/prefill/3", secure.Strict)
	greet := func(c net.Conn) { _, _ = c.Write([]byte{0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F}) }
	closeIt := func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 10))
		_ = c.Close()
	}
	for name, c := range map[string]struct {
		face   secure.Face
		answer func(net.Conn)
		plain  bool
	}{
		"control greets": {secure.FaceControl, greet, true}, "data refuses": {secure.FaceData, secure.RefuseTLS, true},
		"control closes": {secure.FaceControl, closeIt, false}, "data closes": {secure.FaceData, closeIt, false},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := socketPair(t)
			done := make(chan struct{})
			go func() { defer close(done); c.answer(far) }()
			_, _, err := g.Connect(context.Background(), near, c.face, effects.RoleDecode)
			if err == nil || errors.Is(err, secure.ErrNoTLS) != c.plain {
				t.Errorf("the error is %v", err)
			}
			if closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET); closed == c.plain {
				t.Errorf("the error is %v", err)
			}
			<-done
		})
	}
}

// An older version of TLS is refused.
func TestOldTLSIsRefused(t *testing.T) {
	f := newFleet(t)
	g := f.guard("spiffe://fleet/decode/7", secure.Strict)
	near, far := socketPair(t)
	go func() {
		c := tls.Client(near, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		_ = c.Handshake()
	}()
	if _, _, err := g.Accept(far, secure.FaceControl, effects.RolePrefill); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

// New files are in force for the connections that follow, and open connections stay.
func TestRenewal(t *testing.T) {
	f := newFleet(t)
	config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
	server, client := f.open(config), f.guard("spiffe://fleet/prefill/3", secure.Strict)
	before, _ := connect(t, client, server, secure.FaceControl, effects.RoleDecode)
	if err := f.WriteFolder(filepath.Dir(config.Cert), "spiffe://fleet/decode/8", f.policy); err != nil {
		t.Fatal(err)
	}
	reload(t, server, func(s secure.Stats) bool { return s.Reloads == 1 })
	after, _ := connect(t, client, server, secure.FaceControl, effects.RoleDecode)
	if before.peer.Name != "spiffe://fleet/decode/7" || after.peer.Name != "spiffe://fleet/decode/8" || server.Name() != after.peer.Name {
		t.Errorf("the server is %q before and %q after", before.peer.Name, after.peer.Name)
	}
	if s := server.Stats(); s.Open != 2 || s.Ended != 0 {
		t.Errorf("%+v", s)
	}
}

// A program that renews the files replaces them one by one. A process that starts in between waits for the second file.
func TestStartDuringARenewal(t *testing.T) {
	f := newFleet(t)
	config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
	fresh := f.configOf("spiffe://fleet/decode/7", secure.Strict)
	key, err := os.ReadFile(fresh.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh.Cert, config.Cert); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		g, err := secure.Open(config)
		g.Close()
		opened <- err
	}()
	if err := os.WriteFile(config.Key, key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// Files that cannot be used leave the former ones in force.
func TestBadRenewal(t *testing.T) {
	f := newFleet(t)
	config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
	server, client := f.open(config), f.guard("spiffe://fleet/prefill/3", secure.Strict)
	if err := os.WriteFile(config.Policy, []byte("identities: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload(t, server, func(s secure.Stats) bool { return s.BadReloads == 1 })
	if c, s := connect(t, client, server, secure.FaceControl, effects.RoleDecode); c.err != nil || s.err != nil {
		t.Error(c.err, s.err)
	}
}

// A connection ends when the policy takes its peer's role away, and when its peer's certificate has ended long ago.
// Connections of other peers stay.
func TestConnectionsEnd(t *testing.T) {
	for name, lose := range map[string]func(f *fleet, server *secure.Guard, config secure.Config){
		"no role": func(f *fleet, _ *secure.Guard, config secure.Config) {
			policy := strings.ReplaceAll(string(f.policy), "spiffe://fleet/prefill/*", "spiffe://fleet/prefill/4")
			if err := os.WriteFile(config.Policy, []byte(policy), 0o600); err != nil {
				f.Fatal(err)
			}
		},
		"other tenants": func(f *fleet, _ *secure.Guard, config secure.Config) {
			policy := string(f.policy) + "  - {name: spiffe://fleet/prefill/9, roles: [prefill], tenants: [default]}\n"
			if err := os.WriteFile(config.Policy, []byte(policy), 0o600); err != nil {
				f.Fatal(err)
			}
		},
		"authority not listed": func(f *fleet, _ *secure.Guard, config secure.Config) {
			// The authority changes: prefill 4 and the server have certificates of the new one, prefill 3 has not.
			fresh, err := authority.New(time.Hour, f.clock.now)
			if err != nil {
				f.Fatal(err)
			}
			f.Authority = fresh
			if err := f.WriteFolder(filepath.Dir(config.Cert), "spiffe://fleet/decode/7", f.policy); err != nil {
				f.Fatal(err)
			}
		},
		"certificate ended": func(f *fleet, server *secure.Guard, config secure.Config) {
			f.clock.advance(40 * time.Minute)
			// The server's own certificate is renewed in time.
			if err := f.WriteFolder(filepath.Dir(config.Cert), "spiffe://fleet/decode/7", f.policy); err != nil {
				f.Fatal(err)
			}
			reload(f.T, server, func(s secure.Stats) bool { return s.Reloads == 1 })
			f.clock.advance(20*time.Minute + secure.ExpiryGrace + time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
			server := f.open(config)
			three, atServer := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), server, secure.FaceControl, effects.RoleDecode)
			if three.err != nil || atServer.err != nil {
				t.Fatal(three.err, atServer.err)
			}
			lose(f, server, config)
			reload(t, server, func(s secure.Stats) bool { return s.Reloads > 0 })
			four, fourAtServer := connect(t, f.guard("spiffe://fleet/prefill/4", secure.Strict), server, secure.FaceControl, effects.RoleDecode)
			if four.err != nil || fourAtServer.err != nil {
				t.Fatal(four.err, fourAtServer.err)
			}
			reload(t, server, func(s secure.Stats) bool { return s.Ended == 1 })
			if _, err := three.conn.Read(make([]byte, 1)); err == nil {
				t.Error("the connection goes on")
			}
			if s := server.Stats(); s.Open != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// reload lets a guard look at its files until it counts what the test expects.
func reload(t *testing.T, g *secure.Guard, done func(secure.Stats) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(g.Stats()); {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", g.Stats())
		}
		g.Reload()
		time.Sleep(time.Millisecond)
	}
}

// Each error of a configuration names the key, the value and what to do.
func TestConfigurationErrors(t *testing.T) {
	f := newFleet(t)
	write := func(c secure.Config, which *string, text string) secure.Config {
		if err := os.WriteFile(*which, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for want, change := range map[string]func(c secure.Config) secure.Config{
		"security.cert names no file": func(c secure.Config) secure.Config { c.Cert = ""; return c },
		"security.mode is off":        func(c secure.Config) secure.Config { c.Mode = secure.Off; return c },
		"security.key: open":          func(c secure.Config) secure.Config { c.Key += "x"; return c },
		"is empty":                    func(c secure.Config) secure.Config { return write(c, &c.CA, " \n") },
		"no certificate in PEM form":  func(c secure.Config) secure.Config { return write(c, &c.CA, "words") },
		"are no pair": func(c secure.Config) secure.Config {
			c.Key = f.configOf("spiffe://fleet/decode/8", secure.Strict).Key
			return c
		},
		`"king" is no role`: func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: a.b, roles: [king]}]")
		},
		"has no identities": func(c secure.Config) secure.Config { return write(c, &c.Policy, "identities: []") },
		"is empty; list":    func(c secure.Config) secure.Config { return write(c, &c.Policy, "# nothing") },
		"beside other characters": func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: 'a*.b', roles: [decode]}]")
		},
		"has no role; give": func(c secure.Config) secure.Config { return write(c, &c.Policy, "identities: [{name: a.b}]") },
		"would match every": func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: '*', roles: [decode]}]")
		},
		"has an empty segment": func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: 'a..b', roles: [decode]}]")
		},
		`tenants: "9F86D081884C7D65" is no tenant`: func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: a.b, roles: [decode], tenants: [9F86D081884C7D65]}]")
		},
		"tenants: the list is empty": func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: a.b, roles: [decode], tenants: []}]")
		},
		"tenants: 257 tenants": func(c secure.Config) secure.Config {
			return write(c, &c.Policy, "identities: [{name: a.b, roles: [decode], tenants: [default"+strings.Repeat(", default", 256)+"]}]")
		},
		"field identity not found in type": func(c secure.Config) secure.Config { return write(c, &c.Policy, "identity: []") },
		"security.cert " /* ended */ + "/": func(c secure.Config) secure.Config { f.clock.advance(2 * time.Hour); return c },
	} {
		c := change(f.configOf("spiffe://fleet/decode/7", secure.Strict))
		if _, err := secure.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v; want %q", err, want)
		}
	}
}

// Patterns match whole segments.
func TestPolicyPatterns(t *testing.T) {
	p, err := secure.ParsePolicy([]byte(`identities:
  - {name: spiffe://fleet/prefill/*, roles: [prefill]}
  - {name: spiffe://fleet/prefill/both, roles: [decode]}
  - {name: "*.Decode.Example", roles: [decode]}
  - {name: SPIFFE://Other/Decode/*, roles: [decode]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]effects.Roles{
		"spiffe://fleet/prefill/3":      effects.RolePrefill,
		"spiffe://fleet/prefill/both":   effects.RolePrefill | effects.RoleDecode,
		"spiffe://fleet/prefill/3/more": 0,
		"spiffe://fleet/prefill/":       0,
		"spiffe://other/Decode/1":       effects.RoleDecode,
		"spiffe://other/decode/1":       0,
		"spiffe://other/prefill/3":      0,
		"spiffe://fleet.prefill.3":      0,
		"a.decode.example":              effects.RoleDecode,
		"a.b.decode.example":            0,
		".decode.example":               0,
		"decode.example":                0,
	} {
		if got := p.RolesOf(name); got != want {
			t.Errorf("%s has %v; want %v", name, got, want)
		}
	}
}

// A plain peer counts by its address, and a peer with an identity by identity and address, or by the identity alone if
// the policy says so.
func TestPeersAreCounted(t *testing.T) {
	const near, far = effects.Origin(1), effects.Origin(2)
	for count, byAddress := range map[string]bool{"": true, "count: host\n": true, "count: identity\n": false} {
		f := newFleet(t)
		f.policy = append([]byte(count), f.policy...)
		server := f.guard("spiffe://fleet/decode/7", secure.Strict)
		origin := func(identity string, at effects.Origin) effects.Origin {
			c, s := connect(t, f.guard(identity, secure.Strict), server, secure.FaceControl, effects.RoleDecode)
			if c.err != nil || s.err != nil {
				t.Fatal(c.err, s.err)
			}
			defer c.conn.Close()
			defer s.conn.Close()
			return s.peer.Origin(at)
		}
		one := origin("spiffe://fleet/prefill/1", near)
		if one != origin("spiffe://fleet/prefill/1", near) || one == origin("spiffe://fleet/prefill/2", near) || one == near || one == 0 {
			t.Errorf("%q: an identity counts against %x", count, one)
		}
		if differs := one != origin("spiffe://fleet/prefill/1", far); differs != byAddress {
			t.Errorf("%q: two addresses of an identity count apart: %t", count, differs)
		}
	}
	if p := new(secure.Peer); p.Origin(near) != near {
		t.Errorf("a plain peer counts against %x", p.Origin(near))
	}
	if _, err := secure.ParsePolicy([]byte("count: hosts\nidentities: [{name: spiffe://fleet/a, roles: [decode]}]")); err == nil ||
		!strings.Contains(err.Error(), `count: "hosts"`) {
		t.Errorf("a policy with another count: %v", err)
	}
}

// Without tenants in the policy, every identity has all tenants. As soon as one entry states tenants, an entry without
// them has the default tenant only.
func TestPolicyTenants(t *testing.T) {
	const a, b = effects.Tenant(0x9f86d081884c7d65), effects.Tenant(0x60303ae22b998861)
	for _, c := range []struct {
		policy string
		want   map[string]*effects.Tenants
	}{
		{`identities:
  - {name: spiffe://fleet/prefill/*, roles: [prefill]}
`, map[string]*effects.Tenants{"spiffe://fleet/prefill/1": nil}},
		{`identities:
  - {name: spiffe://fleet/prefill/*, roles: [prefill]}
  - {name: spiffe://fleet/prefill/a, roles: [prefill], tenants: [9f86d081884c7d65]}
  - {name: spiffe://fleet/decode/ab, roles: [decode], tenants: [9f86d081884c7d65, 60303ae22b998861]}
  - {name: spiffe://fleet/decode/all, roles: [decode], tenants: ["*"]}
  - {name: spiffe://fleet/decode/*, roles: [decode], tenants: [60303ae22b998861]}
  - {name: spiffe://fleet/decode/digits, roles: [decode], tenants: [0123456789012345]}
  - {name: spiffe://fleet/decode/float, roles: [decode], tenants: [1234567890123e12]}
`, map[string]*effects.Tenants{
			"spiffe://fleet/prefill/1":  effects.NewTenants(0),
			"spiffe://fleet/prefill/a":  effects.NewTenants(0, a), // the roles and tenants of both entries
			"spiffe://fleet/decode/ab":  effects.NewTenants(a, b),
			"spiffe://fleet/decode/all": nil,
			"spiffe://fleet/decode/1":   effects.NewTenants(b),
			"spiffe://fleet/nobody":     effects.NewTenants(),
			// Texts that YAML would read as numbers.
			"spiffe://fleet/decode/digits": effects.NewTenants(b, 0x0123456789012345),
			"spiffe://fleet/decode/float":  effects.NewTenants(b, 0x1234567890123e12),
		}},
	} {
		p, err := secure.ParsePolicy([]byte(c.policy))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want {
			if got := p.TenantsOf(name); !got.Equal(want) {
				t.Errorf("%s has the tenants %v; want %v", name, got, want)
			}
		}
	}
}

// What a peer may touch follows from what it proved: in mode Strict from its identity, in mode Permissive only with
// ProvenChunks, and a peer without a certificate then has the default tenant and no trust domain.
func TestTenantsAndRealmsAreProven(t *testing.T) {
	f := newFleet(t)
	f.policy = []byte(`identities:
  - {name: spiffe://fleet/*/1, roles: [prefill, decode], tenants: [9f86d081884c7d65]}
  - {name: spiffe://fleet/*/2, roles: [prefill, decode]}
  - {name: spiffe://other/*/*, roles: [prefill, decode]}
  - {name: prefill.example, roles: [prefill, decode]}
`)
	server := func(mode secure.Mode, proven bool) *secure.Guard {
		c := f.configOf("spiffe://fleet/decode/1", mode)
		c.ProvenChunks = proven
		return f.open(c)
	}
	peerAt := func(client, server *secure.Guard) secure.Peer {
		c, s := connect(t, client, server, secure.FaceControl, effects.RoleDecode|effects.RolePrefill)
		if s.err != nil {
			t.Fatal(c.err, s.err)
		}
		return s.peer
	}
	all, only, byDefault := (*effects.Tenants)(nil), effects.NewTenants(0x9f86d081884c7d65), effects.NewTenants(0)
	off := f.open(secure.Config{Mode: secure.Off})
	client := func(identity string) *secure.Guard { return f.guard(identity, secure.Strict) }
	for _, c := range []struct {
		name           string
		client, server *secure.Guard
		tenants        *effects.Tenants
		own            bool // the peer is in the server's trust domain
	}{
		{"strict, a listed tenant", client("spiffe://fleet/prefill/1"), server(secure.Strict, false), only, true},
		{"strict, no tenants listed", client("spiffe://fleet/prefill/2"), server(secure.Strict, false), byDefault, true},
		{"strict, another domain", client("spiffe://other/prefill/2"), server(secure.Strict, false), byDefault, false},
		{"strict, a DNS name", client("prefill.example"), server(secure.Strict, false), byDefault, false},
		{"permissive", client("spiffe://fleet/prefill/1"), server(secure.Permissive, false), all, true},
		{"permissive, plain", off, server(secure.Permissive, false), all, true},
		{"permissive with proven chunks", client("spiffe://fleet/prefill/1"), server(secure.Permissive, true), only, true},
		{"permissive with proven chunks, plain", off, server(secure.Permissive, true), byDefault, false},
		{"off", off, off, all, true},
	} {
		p := peerAt(c.client, c.server)
		if !p.Tenants.Equal(c.tenants) || (p.Realm == 0) != c.own {
			t.Errorf("%s: the peer has the tenants %v in realm %x; want %v, own realm %t", c.name, p.Tenants, p.Realm, c.tenants, c.own)
		}
	}
	permissive, strict := server(secure.Permissive, false), server(secure.Strict, false)
	for _, peer := range []struct{ identity, domain string }{
		{"spiffe://fleet/prefill/1", "spiffe://fleet"}, {"spiffe://other/prefill/2", "spiffe://other"}, {"prefill.example", "dns"},
	} {
		if realm, ours, _ := strict.ParseDomain(peer.domain); ours != "" || realm != peerAt(client(peer.identity), strict).Realm {
			t.Errorf("the domain %s is realm %x (refused: %q), and its peer %s is of another", peer.domain, realm, ours, peer.identity)
		}
	}
	for domain, guard := range map[string]*secure.Guard{
		"spiffe://other": permissive, "unproven": off, "other": strict, "spiffe://": strict, "spiffe://other/prefill": strict,
	} {
		if _, ours, remedy := guard.ParseDomain(domain); ours == "" || remedy == "" {
			t.Errorf("in mode %s the domain %q is accepted", guard.Mode(), domain)
		}
	}
	if realm, ours, _ := server(secure.Permissive, true).ParseDomain("unproven"); ours != "" || realm != effects.RealmUnproven {
		t.Errorf("unproven is realm %x, refused: %q", realm, ours)
	}
	for _, g := range []*secure.Guard{nil, off, permissive, strict} {
		if realm, ours, _ := g.ParseDomain(""); realm != 0 || ours != "" {
			t.Errorf("the own domain is realm %x, refused: %q", realm, ours)
		}
	}
	if !server(secure.Strict, false).StatesTenants() || off.StatesTenants() || (*secure.Guard)(nil).StatesTenants() {
		t.Error("StatesTenants does not tell whether the policy limits tenants")
	}
}
