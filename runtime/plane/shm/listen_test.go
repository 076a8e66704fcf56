package shm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

func TestOnlySocketsOfPlanesAreDialed(t *testing.T) {
	for _, c := range []struct {
		name, dir string
		ok        bool
	}{
		{"@kvferry-X", "", true},
		{"@kvferry-X", "/shared", true},
		{"/shared/kvf1/shm", "/shared", true},
		{"/shared/kvf1/shm", "/shared/", true},
		{"/shared/kvf1/shm", "", false},
		{"/shared/kvf1/shm", "/other", false},
		{"/shared/../run/docker.sock", "/shared", false},
		{"/shared/kvf1/other", "/shared", false},
		{"@other", "", false},
		{"", "", false},
	} {
		if err := checkAddress(c.name, c.dir); (err == nil) != c.ok || err != nil && !errors.Is(err, link.ErrMalformed) {
			t.Errorf("%q with folder %q: %v", c.name, c.dir, err)
		}
	}
	m := &medium{boot: "this"}
	if _, err := m.Dial(context.Background(), "this /run/docker.sock"); !errors.Is(err, link.ErrMalformed) {
		t.Errorf("a foreign socket: %v", err)
	}
	if _, err := m.Dial(context.Background(), "that @kvferry-X"); err == nil || !strings.Contains(err.Error(),
		"another host") {
		t.Errorf("another host: %v", err)
	}
}

func TestAnAbstractSocketIsNoFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	listener, folder, err := listenForPeers(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 || folder != "" {
		t.Errorf("folder %q, %d files, %v", folder, len(left), err)
	}
}

// What a killed process left in a configured folder is removed when the next one starts; folders of running processes
// stay.
func TestFoldersOfKilledProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	alive, aliveFolder, err := listenForPeers(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if info, err := os.Stat(aliveFolder); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the socket's folder is open to others: %v, %v", info.Mode(), err)
	}
	killed, killedFolder, err := listenForPeers(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "kvfile", "data")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	young := filepath.Join(killedFolder, socketName)
	removeStale(dir, time.Unix(0, 0))
	if _, err := os.Stat(young); err != nil {
		t.Errorf("a folder that is not old enough: %v", err)
	}
	removeStale(dir, time.Now().Add(time.Hour))
	if _, err := os.Stat(killedFolder); !os.IsNotExist(err) {
		t.Errorf("the folder of the killed: %v", err)
	}
	for _, kept := range []string{aliveFolder, foreign} {
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
}

// Folders that only resemble those of a plane stay, with everything in them.
func TestForeignFoldersStay(t *testing.T) {
	dir := t.TempDir()
	dead := func(folder string, mode os.FileMode) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.Chmod(folder, mode)); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join(folder, socketName))
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	full, open := dead(filepath.Join(dir, "kvf-data"), 0o700), dead(filepath.Join(dir, "kvf-open"), 0o755)
	elsewhere, link := dead(filepath.Join(t.TempDir(), "mine"), 0o700), filepath.Join(dir, "kvf-link")
	kept := []string{filepath.Join(full, "work"), filepath.Join(full, socketName), filepath.Join(open, socketName), link,
		filepath.Join(elsewhere, socketName)}
	if err := errors.Join(os.WriteFile(kept[0], nil, 0o600), os.Symlink(elsewhere, link)); err != nil {
		t.Fatal(err)
	}
	removeStale(dir, time.Now().Add(time.Hour))
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
