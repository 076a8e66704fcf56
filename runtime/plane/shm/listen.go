package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

const (
	// abstractPrefix begins the abstract name of every plane's socket.
	abstractPrefix = "@kvferry-"
	folderPrefix   = "kvf"
	socketName     = "shm"
	// settled is the age from which a folder's socket surely listens, if its process lives.
	settled = time.Minute
)

// listen makes the socket that peers of this host connect to. Its name is abstract: that is no file, so nothing of it
// outlives the process, however that ends. Only a dir that the configuration names gets a file, in a
// private folder of its own; folders there whose processes were killed are removed.
func listen(ctx context.Context, dir string) (listener net.Listener, folder string, err error) {
	var config net.ListenConfig
	if dir == "" {
		name := abstractPrefix + rand.Text()
		if listener, err = config.Listen(ctx, "unix", name); err != nil {
			return nil, "", fmt.Errorf("listen for peers on this host at %s: %w", name, err)
		}
		return listener, "", nil
	}
	clean(dir, time.Now().Add(-settled))
	folder, err = os.MkdirTemp(dir, folderPrefix) // Mode 0700: no other user can connect.
	if err != nil {
		return nil, "", fmt.Errorf("folder for the shm socket: %w", err)
	}
	path := filepath.Join(folder, socketName)
	if listener, err = config.Listen(ctx, "unix", path); err != nil {
		return nil, "", errors.Join(fmt.Errorf("listen on %s: %w; choose a folder with a shorter path", path, err),
			os.Remove(folder))
	}
	return listener, folder, nil
}

// clean removes the folders in dir that are older than before and at whose sockets nobody listens any more. Only a
// private folder of this user with a socket of this user, and nothing else in it, is one that listen made: everything
// else stays.
func clean(dir string, before time.Time) {
	paths, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*", socketName)) // The pattern is well formed.
	for _, path := range paths {
		folder := filepath.Dir(path)
		if mode, _, ok := own(folder); !ok || mode != os.ModeDir|0o700 {
			continue
		}
		mode, changed, ok := own(path)
		if !ok || mode.Type() != os.ModeSocket || changed.After(before) {
			continue
		}
		if inside, err := os.ReadDir(folder); err != nil || len(inside) != 1 {
			continue
		}
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path) // Another process may be faster.
			_ = os.Remove(folder)
		}
	}
}

// own returns what is at a path, without following a link there. It reports false for what another user has.
func own(path string) (mode os.FileMode, changed time.Time, ok bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, time.Time{}, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode(), info.ModTime(), ok && int(s.Uid) == os.Geteuid()
}

// dialable says whether name is one that listen makes. A peer's word must not make us connect to other
// services of this host.
func dialable(name, dir string) error {
	if strings.HasPrefix(name, abstractPrefix) {
		return nil
	}
	if dir != "" && filepath.Dir(filepath.Dir(name)) == filepath.Clean(dir) && filepath.Base(name) == socketName {
		return nil
	}
	return fmt.Errorf("%w: %q is no socket of a shm plane in folder %q; configure the same folder at both ends",
		link.ErrMalformed, name, dir)
}
