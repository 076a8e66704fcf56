package attach

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dead leaves a socket at a path, at which nobody listens.
func dead(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Nothing is removed but a dead socket of this user: the error says what is there, and it stays as it was.
func TestWhatIsAtTheSocketsPathStays(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	file, empty, full, link, dangling := at("file"), at("empty"), at("full"), at("link"), at("dangling")
	dead(t, at("dead"))
	linkToDead := at("link-to-dead")
	if err := errors.Join(os.WriteFile(file, []byte("a year of work"), 0o600), os.Mkdir(empty, 0o700),
		os.MkdirAll(filepath.Join(full, "x"), 0o700), os.Symlink(file, link), os.Symlink(at("nowhere"), dangling),
		os.Symlink(at("dead"), linkToDead)); err != nil {
		t.Fatal(err)
	}
	for path, what := range map[string]string{file: "a file of 14 bytes", empty: "a directory", full: "a directory",
		link: "a symbolic link", dangling: "a symbolic link", linkToDead: "a symbolic link"} {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := listenUnix(path, 0)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", path, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Lstat(path + LockSuffix); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s has a lock beside it: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "a year of work" {
		t.Errorf("%q, %v", text, err)
	}
	l, err := listenUnix(at("dead"), 0)
	if err != nil {
		t.Fatalf("a dead socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Another user's socket is not removed, not even by root, who could.
func TestASocketOfAnotherUserStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead(t, path)
	if err := os.Lchown(path, os.Geteuid()+1, -1); err != nil {
		t.Skip("it takes root to have files of two users:", err)
	}
	if _, err := listenUnix(path, 0); err == nil || !strings.Contains(err.Error(), "a socket of user") {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// An agent that ends removes the socket that it made, and not what has come in its place.
func TestWhatReplacedTheSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenUnix(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("new"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "new" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if l, err = listenUnix(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its own socket: %v", err)
	}
}

// What is wrong with a path is said with what to do about it.
func TestPathsThatCannotBeServed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, what := range map[string]string{
		filepath.Join(dir, strings.Repeat("x", pathMax)): "a Unix socket has at most 107",
		filepath.Join(dir, "no", "s"):                    "does not exist; create it",
		filepath.Join(file, "s"):                         "is not a directory",
	} {
		if _, err := listenUnix(path, 0); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", path, err)
		}
	}
	t.Chdir(dir)
	l, err := listenUnix("@s", 0) // A file of that name, as every other path.
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := os.Lstat(filepath.Join(dir, "@s")); err != nil {
		t.Error(err)
	}
}

// Connections of engines poll where the server is to.
func TestConnectionsPoll(t *testing.T) {
	for _, poll := range []time.Duration{0, time.Millisecond} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := listenUnix(path, poll)
		if err != nil {
			t.Fatal(err)
		}
		engine, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, plain := conn.(*acceptedConn).Conn.(*net.UnixConn); plain != (poll == 0) {
			t.Errorf("with %v it is a %T", poll, conn.(*acceptedConn).Conn)
		}
		_, _, _ = conn.Close(), engine.Close(), l.Close()
	}
}
