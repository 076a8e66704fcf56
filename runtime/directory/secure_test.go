package directory_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// Directories reach a log that requires certificates of the fleet with their own, which they show to workers as well.
func TestLogWithTheFleetsCertificates(t *testing.T) {
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, identity := range map[string]string{"log": "localhost", "directory": "spiffe://fleet/directory/1"} {
		if err := a.WriteFolder(filepath.Join(dir, name), identity, authority.FleetPolicy("fleet")); err != nil {
			t.Fatal(err)
		}
	}
	in := func(file string) string { return filepath.Join(dir, "log", file) }
	server := valkeytest.StartEncrypted(t, valkeytest.KeyFiles{CA: in(authority.CAFile), Cert: in(authority.CertFile),
		Key: in(authority.KeyFile)})
	at := strings.Replace(server.Addr(), "127.0.0.1", "localhost", 1)
	more := fmt.Sprintf(", log_tls: true}, security: {mode: permissive, dir: %q", filepath.Join(dir, "directory"))
	first := sharesBy(t, freePorts(t, 1), at, more, slog.DiscardHandler)
	second := sharesBy(t, freePorts(t, 1), at, more, slog.DiscardHandler)
	w := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, second.Ports()[0], "b", 0)
	w.register()
	w.tell(w.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)
}

// A strict directory serves LMCache's unmodified workers, which have no TLS, if their network is listed, and hangs up on
// them otherwise.
func TestWorkersWithoutTLSAtAStrictDirectory(t *testing.T) {
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := a.WriteFolder(dir, "spiffe://fleet/directory/1", authority.FleetPolicy("fleet")); err != nil {
		t.Fatal(err)
	}
	file := func(more string) string {
		return freePorts(t, 1) + fmt.Sprintf("extra_config: {kvferry: {security: {mode: strict, dir: %q%s}}}\n", dir, more)
	}
	d := open(t, file(", plain: [127.0.0.1/32]"))
	w, b := newWorker(t, d.Ports()[0], "a", 0), newWorker(t, d.Ports()[0], "b", 0)
	w.register()
	w.tell(w.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)

	strict := open(t, file(", plain: [127.0.0.2/32]"))
	refused := newWorker(t, strict.Ports()[0], "a", 0)
	if err := refused.reply.SetRcvtimeo(300 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, err := refused.reply.SendMessage("", "anything"); err != nil {
		t.Fatal(err)
	}
	if answer, err := refused.reply.RecvMessageBytes(0); err == nil {
		t.Errorf("a worker of another network is answered with %q", answer)
	}
}
