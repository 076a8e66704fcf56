//go:build cgo && linux

package directory_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

// A log that is emptied, or whose server is replaced by a copy without its tail, is read on from what it has. Who
// starts then, and finds that its beginning or an entry in it is gone, has the worker asked for all.
func TestLogThatLosesEntries(t *testing.T) {
	server := valkeytest.Start(t)
	first, second := shares(t, freePorts(t, 1), server), shares(t, freePorts(t, 1), server)
	a := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, second.Ports()[0], "b", 0)
	a.register()
	a.tell(a.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)

	// It is emptied: who has read it goes on.
	server.Do("FLUSHALL")
	a.tell(a.operations("admit", 2, 3))
	b.finds("a", 3, 1, 2, 3)

	// A copy takes over that has not heard of the last entry.
	copied := valkeytest.Start(t)
	copied.Follow(server)
	copied.Lead()
	a.tell(a.operations("admit", 3, 4))
	b.finds("a", 4, 1, 2, 3, 4)
	server.Kill()
	server.Again()
	server.Follow(copied)
	server.Lead()
	a.tell(a.operations("admit", 4, 5))
	b.finds("a", 5, 1, 2, 3, 4, 5)

	// Who has read none of it learns all by a full sync: of 1 to 4 the log says nothing.
	third := shares(t, freePorts(t, 1), server)
	c := newWorker(t, third.Ports()[0], "c", 0)
	a.lives("tail", c, 1, 2, 3, 4, 5)

	// Likewise where all was trimmed away that was told before it started.
	server.Do("XTRIM", "kvferry:directory", "MAXLEN", "0")
	fourth := shares(t, freePorts(t, 1), server)
	d := newWorker(t, fourth.Ports()[0], "d", 0)
	a.lives("trimmed", d, 1, 2, 3, 4, 5)
}

// Lines are what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// says waits for a line with all of these words.
func (l *lines) says(t *testing.T, words ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		for line := range strings.Lines(text) {
			missing := false
			for _, w := range words {
				missing = missing || !strings.Contains(line, w)
			}
			if !missing {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no line says %q:\n%s", words, text)
		}
		time.Sleep(time.Millisecond)
	}
}

// A server that wants another password, or whose key is no stream, is told of with what to change; the directory serves
// by itself meanwhile.
func TestLogThatRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		key   string // that is a text
		words []string
	}{
		"no password": {args: []string{"--requirepass", "secret"}, words: []string{"NOAUTH", "directory.log_password"}},
		"a text":      {key: "kvferry:directory", words: []string{"WRONGTYPE", "directory.log_stream"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := valkeytest.Start(t, c.args...)
			if c.key != "" {
				server.Do("SET", c.key, "1")
			}
			cfg, err := config.ParseDirectory("directory.yaml",
				[]byte(freePorts(t, 1)+"extra_config: {kvferry: {directory: {log: '"+server.Addr()+"'}}}\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			said := new(lines)
			d, err := directory.Open(cfg, valkey.Beside(zmq.Config{}.Opener(), valkey.Config{Stream: cfg.Shared.Stream}),
				slog.New(slog.NewTextHandler(said, nil)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { shut(t, d) })
			said.says(t, append(c.words, server.Addr(), "remedy")...)
			a, b := newWorker(t, d.Ports()[0], "a", 0), newWorker(t, d.Ports()[0], "b", 0)
			a.register()
			a.tell(a.operations("admit", 0, 1, 2))
			b.finds("a", 2, 1, 2)
		})
	}
}
