//go:build cgo && linux

package directory_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

// shares starts a directory from a file; it shares the log that a server keeps.
func shares(t *testing.T, file string, server *valkeytest.Server) *directory.Directory {
	t.Helper()
	return sharesBy(t, file, server.Addr(), "", slog.DiscardHandler)
}

// sharesBy is shares with additional keys in the file.
func sharesBy(t *testing.T, file, log, more string, says slog.Handler) *directory.Directory {
	t.Helper()
	cfg, err := config.ParseDirectory("directory.yaml",
		[]byte(file+"extra_config: {kvferry: {directory: {log: '"+log+"'"+more+"}}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := valkey.Config{Stream: cfg.Shared.Stream, Password: cfg.Shared.Password}
	if cfg.Shared.TLS {
		if c.TLS, err = valkey.TLSConfig(cfg.Shared.CA, cfg.Shared.Cert, cfg.Shared.Key); err != nil {
			t.Fatal(err)
		}
	}
	d, err := directory.Open(cfg, valkey.WithLog(zmq.Config{}.Opener(), c), slog.New(says))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, d) })
	return d
}

// lives sends heartbeats of a worker that has these chunks, and syncs on request, until another worker finds them.
func (w *worker) lives(id string, asker *worker, keys ...uint64) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		if w.beat() {
			w.sync(id, keys...)
			asker.finds(w.instance, int64(len(keys)), keys...)
			return
		}
		if got, _, n := asker.holder(keys...); got == w.instance && n == int64(len(keys)) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%v are not found at %s", keys, w.instance)
		}
	}
}

// A worker reports to one directory, and all know it, even after that one, or the log, has died.
func TestDirectoriesShareALog(t *testing.T) {
	server := valkeytest.Start(t)
	files := []string{freePorts(t, 1), freePorts(t, 1)}
	first, second := shares(t, files[0], server), shares(t, files[1], server)
	a := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, second.Ports()[0], "b", 0)
	a.register()
	a.tell(a.operations("admit", 0, 1, 2, 3))
	b.finds("a", 3, 1, 2, 3)
	if told, down := second.Replicated(); told != 1 || down {
		t.Errorf("by the other one it knows %d workers, down: %v", told, down)
	}

	// One dies. The other one still knows what that told, and so does its next life, before the worker says anything.
	shut(t, first)
	b.finds("a", 3, 1, 2, 3)
	first = shares(t, files[0], server)
	c := newWorker(t, first.Ports()[0], "c", 0)
	c.finds("a", 3, 1, 2, 3)

	// The worker speaks to it again, and is asked for all, as nobody can say what was lost.
	a.tell(a.operations("evict", 3, 3))
	a.lives("first life is gone", b, 1, 2)
	b.finds("a", 2, 1, 2, 3)

	// The log dies with all that it kept, and what was told meanwhile comes when it is there again.
	server.Kill()
	a.tell(a.operations("admit", 4, 4, 5))
	c.finds("a", 2, 4, 5)
	b.finds("a", 2, 1, 2)
	server.Restart()
	a.lives("log is gone", b, 1, 2, 4, 5)

	a.tell(a.message("DeRegisterMsg", a.listens()[:4]...))
	b.finds("", 0, 1)
}
