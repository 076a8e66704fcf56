package planetest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// fleetVariable names the folder with the certificates of the nodes, in this process and in the processes that a test
// starts. If it is not set, nodes have no guard.
const fleetVariable = "KVFERRY_TEST_FLEET"

// A Fleet has the certificates of the nodes of a test, and what their guards log.
type Fleet struct {
	*authority.Authority
	dir string

	mu    sync.Mutex
	modes map[byte]secure.Mode // of nodes of this process; mode Strict if there is no entry
	logs  map[byte]*logtest.Lines
	ahead time.Duration // by which the clocks of all guards of this process are ahead
}

// fleets are the fleets of the tests that run, by folder.
var fleets sync.Map

// maxMembers is the number of nodes that have a certificate, which are numbered from 1.
const maxMembers = 4

// UseFleet makes the nodes that makers with certificates (LeasedMaker.WithCertificates) open use TLS, until the end of
// the test, also in processes that the test starts.
func UseFleet(tb testing.TB) *Fleet {
	tb.Helper()
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		tb.Fatal(err)
	}
	f := &Fleet{Authority: a, dir: tb.TempDir(), modes: map[byte]secure.Mode{}, logs: map[byte]*logtest.Lines{}}
	for id := range byte(maxMembers) {
		if err := a.WriteFolder(f.folderOf(id+1), memberName(id+1), memberPolicy(0)); err != nil {
			tb.Fatal(err)
		}
	}
	fleets.Store(f.dir, f)
	tb.Cleanup(func() { fleets.Delete(f.dir) })
	tb.Setenv(fleetVariable, f.dir)
	return f
}

func memberName(id byte) string { return fmt.Sprintf("spiffe://fleet/both/%d", id) }

// memberPolicy returns a policy that gives all members both roles, except for one.
func memberPolicy(except byte) []byte {
	var b strings.Builder
	b.WriteString("identities:\n")
	for id := byte(1); id <= maxMembers; id++ {
		if id != except {
			fmt.Fprintf(&b, "  - name: %s\n    roles: [prefill, decode]\n", memberName(id))
		}
	}
	b.WriteString("  - name: spiffe://fleet/proxy/1\n    roles: [proxy]\n")
	return []byte(b.String())
}

func folderOf(dir string, id byte) string { return filepath.Join(dir, fmt.Sprint(id)) }

func (f *Fleet) folderOf(id byte) string { return folderOf(f.dir, id) }

// SetMode sets the security mode of a node that is opened afterwards in this process.
func (f *Fleet) SetMode(id byte, mode secure.Mode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.modes[id] = mode
}

// Log returns what a node that was opened last in this process, and its guard, have logged.
func (f *Fleet) Log(id byte) *logtest.Lines {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs[id]
}

// Revoke removes the identity of a peer from the policy of a node, which reads it again soon.
func (f *Fleet) Revoke(tb testing.TB, node, peer byte) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(f.folderOf(node), authority.PolicyFile), memberPolicy(peer), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// EndCertificates sets the clocks of the guards of this process ahead, so that all certificates have ended.
func (f *Fleet) EndCertificates() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = time.Hour + secure.ExpiryGrace + time.Minute
}

func (f *Fleet) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead)
}

// Guard opens a guard with the certificate of an identity, which it issues. The guard is closed at the test's end.
func (f *Fleet) Guard(tb testing.TB, identity string) *secure.Guard {
	tb.Helper()
	dir := tb.TempDir()
	if err := f.WriteFolder(dir, identity, memberPolicy(0)); err != nil {
		tb.Fatal(err)
	}
	g, err := secure.Open(guardConfig(dir, secure.Strict))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return g
}

// recheck is the time between two looks of a guard at its files.
const recheck = 20 * time.Millisecond

func guardConfig(dir string, mode secure.Mode) secure.Config {
	in := func(name string) string { return filepath.Join(dir, name) }
	return secure.Config{Mode: mode, Cert: in(authority.CertFile), Key: in(authority.KeyFile), CA: in(authority.CAFile),
		Policy: in(authority.PolicyFile), Recheck: recheck, Log: slog.New(slog.DiscardHandler)}
}

// WithCertificates returns a maker whose nodes have guards if the test, or the process that has started this one, uses a
// fleet.
func (m LeasedMaker) WithCertificates() LeasedMaker {
	return func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) LeasedEnd {
		tb.Helper()
		end := m(tb, id, pages, pageBytes, sink)
		dir := os.Getenv(fleetVariable)
		if dir == "" {
			return end
		}
		open := end.Open
		end.Open = func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			config := guardConfig(folderOf(dir, id), secure.Strict)
			if known, ok := fleets.Load(dir); ok {
				known.(*Fleet).prepare(id, &config, &env)
			}
			g, err := secure.Open(config)
			if err != nil {
				return nil, err
			}
			tb.Cleanup(g.Close) // After the node: the test registers that later.
			env.Guard = g
			return open(ctx, env)
		}
		return end
	}
}

// prepare completes the configuration of a node of this process.
func (f *Fleet) prepare(id byte, config *secure.Config, env *plane.Env) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mode, ok := f.modes[id]; ok {
		config.Mode = mode
	}
	if config.Mode == secure.Off {
		*config = secure.Config{Mode: secure.Off}
	}
	f.logs[id] = new(logtest.Lines)
	config.Now, config.Log, env.Log = f.now, f.logs[id].Logger(), f.logs[id].Logger()
}
