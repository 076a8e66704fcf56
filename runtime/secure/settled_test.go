package secure

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// A peer that has not completed its handshake is read no further than maxHandshakeBytes.
func TestReadsOfAHandshakeAreLimited(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	go func() { _, _ = far.Write(make([]byte, 2*maxHandshakeBytes)) }()
	n, err := io.Copy(io.Discard, io.LimitReader(newBulkConn(near), 2*maxHandshakeBytes))
	if n != maxHandshakeBytes || err == nil {
		t.Errorf("%d bytes were read: %v", n, err)
	}
}

// A policy that is half written when the files are read does not count.
func TestHalfAPolicyDoesNotCount(t *testing.T) {
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	whole := authority.FleetPolicy("fleet")
	if err := a.WriteFolder(dir, "spiffe://fleet/decode/1", whole); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	c := Config{Cert: in(authority.CertFile), Key: in(authority.KeyFile), CA: in(authority.CAFile), Policy: in(authority.PolicyFile),
		Now: time.Now}
	former, err := loadCredentials(&c)
	if err != nil {
		t.Fatal(err)
	}
	write := func(policy string) {
		if err := os.WriteFile(c.Policy, []byte(policy), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("identities:\n  - name: spiffe://fleet/prefill/*\n    roles: [prefill]\n")
	c.Now = func() time.Time { // It is asked after the files were read.
		write(string(whole) + "# whole\n")
		return time.Now()
	}
	x, err := loadSettled(t.Context(), &c, former)
	if err != nil || x.policy.RolesOf("spiffe://fleet/decode/1") != effects.RoleDecode {
		t.Errorf("the policy in force is half of the file: %v", err)
	}
}

// A process warns once in an hour while its certificate has less than a quarter of its life left.
func TestEndOfOwnCertificate(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	now, log := start, new(logtest.Lines)
	g := &Guard{config: Config{Now: func() time.Time { return now }, Log: log.Logger()}}
	g.current.Store(&credentials{pair: tls.Certificate{Leaf: &x509.Certificate{NotBefore: start, NotAfter: start.Add(16 * time.Hour)}}})
	var last time.Time
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{11 * time.Hour, 0}, {13 * time.Hour, 1}, {13*time.Hour + time.Minute, 1}, {15 * time.Hour, 2}} {
		now = start.Add(c.at)
		last = g.warnBeforeEnd(last)
		if n := log.CountText("ends soon"); n != c.want {
			t.Errorf("%d warnings after %v; want %d", n, c.at, c.want)
		}
	}
}
