//go:build cgo && linux

package directory_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
)

// A log that is emptied, or whose server is replaced by a copy without its tail, is read on from the position that it
// has. A directory that starts then, and finds the log's beginning or an entry missing, asks the worker for a full
// sync.
func TestLogThatLosesEntries(t *testing.T) {
	server := valkeytest.Start(t)
	first, second := shares(t, freePorts(t, 1), server), shares(t, freePorts(t, 1), server)
	a := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, second.Ports()[0], "b", 0)
	a.register()
	a.tell(a.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)

	// It is emptied: who has read it goes on.
	server.DoCommand("FLUSHALL")
	a.tell(a.operations("admit", 2, 3))
	b.finds("a", 3, 1, 2, 3)

	// A copy takes over that has not heard of the last entry.
	copied := valkeytest.Start(t)
	copied.ReplicateFrom(server)
	copied.BecomePrimary()
	a.tell(a.operations("admit", 3, 4))
	b.finds("a", 4, 1, 2, 3, 4)
	server.Kill()
	server.Restart()
	server.ReplicateFrom(copied)
	server.BecomePrimary()
	a.tell(a.operations("admit", 4, 5))
	b.finds("a", 5, 1, 2, 3, 4, 5)

	// Who has read none of it learns all by a full sync: of 1 to 4 the log says nothing.
	third := shares(t, freePorts(t, 1), server)
	c := newWorker(t, third.Ports()[0], "c", 0)
	a.lives("tail", c, 1, 2, 3, 4, 5)

	// Likewise where all was trimmed away that was told before it started.
	server.DoCommand("XTRIM", "kvferry:directory", "MAXLEN", "0")
	fourth := shares(t, freePorts(t, 1), server)
	d := newWorker(t, fourth.Ports()[0], "d", 0)
	a.lives("trimmed", d, 1, 2, 3, 4, 5)
}

// Lines collects log lines.
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

// file returns the TLS keys of a directory's file.
func file(ca, cert, key string) string {
	return fmt.Sprintf(", log_tls: true, log_ca: %q, log_cert: %q, log_key: %q", ca, cert, key)
}

// The log may be reached by TLS, with certificates of both ends.
func TestLogByTLS(t *testing.T) {
	ring := valkeytest.NewKeyFiles(t)
	server := valkeytest.StartEncrypted(t, ring)
	more := file(ring.CA, ring.Cert, ring.Key)
	first := sharesBy(t, freePorts(t, 1), server.Addr(), more, slog.DiscardHandler)
	second := sharesBy(t, freePorts(t, 1), server.Addr(), more, slog.DiscardHandler)
	a := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, second.Ports()[0], "b", 0)
	a.register()
	a.tell(a.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)
}

// A gate stands before a server: while it is held, nothing gets through.
type gate struct {
	sync.RWMutex
	net.Listener
}

func newGate(t *testing.T, server string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	pass := func(to, from net.Conn) {
		defer func() { _, _ = to.Close(), from.Close() }()
		for b := make([]byte, 64<<10); ; {
			n, err := from.Read(b)
			g.RLock()
			_, failed := to.Write(b[:n])
			g.RUnlock()
			if err != nil || failed != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			all.Go(func() { pass(out, in) })
			all.Go(func() { pass(in, out) })
		}
	})
	return g
}

// A directory that could not reach the log while it was trimmed finds that entries are gone which it had not read, and
// asks those workers for a full sync.
func TestLogTrimmedWhileDirectoryIsLate(t *testing.T) {
	server, said := valkeytest.Start(t), new(lines)
	late := newGate(t, server.Addr())
	first := shares(t, freePorts(t, 1), server)
	second := sharesBy(t, freePorts(t, 1), late.Addr().String(), "", slog.NewTextHandler(said, nil))
	a := newWorker(t, first.Ports()[0], "a", 0)
	b := newWorker(t, second.Ports()[0], "b", 0)
	a.register()
	a.tell(a.operations("admit", 0, 1, 2))
	b.finds("a", 2, 1, 2)

	late.Lock()
	before := server.DoCommand("XLEN", "kvferry:directory")
	a.tell(a.operations("admit", 2, 3))
	for end := time.Now().Add(patience); server.DoCommand("XLEN", "kvferry:directory") == before; {
		if time.Now().After(end) {
			t.Fatal("nothing is told")
		}
	}
	server.DoCommand("XTRIM", "kvferry:directory", "MAXLEN", "0")
	late.Unlock()
	a.tell(a.operations("admit", 3, 4))
	said.says(t, "log_bytes")
	a.lives("late", b, 1, 2, 3, 4)
}

// A server with another password, with a key that is no stream, or with a different use of TLS is logged with what to
// change; the directory serves on its own meanwhile.
func TestLogThatRefuses(t *testing.T) {
	ring, other := valkeytest.NewKeyFiles(t), valkeytest.NewKeyFiles(t)
	text := func(t *testing.T) *valkeytest.Server {
		s := valkeytest.Start(t)
		s.DoCommand("SET", "kvferry:directory", "1")
		return s
	}
	secret := func(t *testing.T) *valkeytest.Server { return valkeytest.Start(t, "--requirepass", "secret") }
	encrypted := func(t *testing.T) *valkeytest.Server { return valkeytest.StartEncrypted(t, ring) }
	for name, c := range map[string]struct {
		server func(t *testing.T) *valkeytest.Server
		more   string // in the file
		words  []string
	}{
		"no password":       {server: secret, words: []string{"NOAUTH", "directory.log_password"}},
		"another password":  {secret, ", log_password: wrong", []string{"WRONGPASS", "directory.log_password"}},
		"a text":            {server: text, words: []string{"WRONGTYPE", "directory.log_stream"}},
		"plain to TLS":      {server: encrypted, words: []string{"directory.log_tls"}},
		"TLS to plain":      {text, ", log_tls: true", []string{"directory.log_tls"}},
		"another authority": {encrypted, file(other.CA, ring.Cert, ring.Key), []string{"authority", "directory.log_tls"}},
		"another's client":  {encrypted, file(ring.CA, other.Cert, other.Key), []string{"directory.log_tls"}},
	} {
		t.Run(name, func(t *testing.T) {
			server, said := c.server(t), new(lines)
			d := sharesBy(t, freePorts(t, 1), server.Addr(), c.more, slog.NewTextHandler(said, nil))
			said.says(t, append(c.words, server.Addr(), "remedy")...)
			a, b := newWorker(t, d.Ports()[0], "a", 0), newWorker(t, d.Ports()[0], "b", 0)
			a.register()
			a.tell(a.operations("admit", 0, 1, 2))
			b.finds("a", 2, 1, 2)
		})
	}
}
