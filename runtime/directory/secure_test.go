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
