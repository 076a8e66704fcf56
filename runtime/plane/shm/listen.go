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
	// minSocketAge is the age at which a socket surely has a listener, unless its process has ended.
	minSocketAge = time.Minute
)

// listenForPeers opens the socket that peers on this host connect to. By default the name is abstract: there is no
// file, so that nothing outlives the process, however the process ends. Only if the configuration names a folder does
// the socket get a file, in a private folder. The private folders of processes that were killed are removed.
func listenForPeers(ctx context.Context, parent string) (listener net.Listener, folder string, err error) {
	var config net.ListenConfig
	if parent == "" {
		name := abstractPrefix + rand.Text()
		if listener, err = config.Listen(ctx, "unix", name); err != nil {
			return nil, "", fmt.Errorf("listen for peers on this host at %s: %w", name, err)
		}
		return listener, "", nil
	}
	removeStale(parent, time.Now().Add(-minSocketAge))
	folder, err = os.MkdirTemp(parent, folderPrefix) // Mode 0700: no other user can connect.
	if err != nil {
		return nil, "", fmt.Errorf("make a folder for the shm socket: %w", err)
	}
	path := filepath.Join(folder, socketName)
	if listener, err = config.Listen(ctx, "unix", path); err != nil {
		return nil, "", errors.Join(fmt.Errorf("listen on %s: %w; choose a folder with a shorter path", path, err),
			os.Remove(folder))
	}
	return listener, folder, nil
}

// removeStale removes the folders in dir with a socket that is older than before and has no listener any more. Only
// folders like those that this package makes are removed: a private folder of this user that contains a socket of this
// user and nothing else.
func removeStale(parent string, before time.Time) {
	paths, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*", socketName)) // The pattern is well formed.
	for _, path := range paths {
		folder := filepath.Dir(path)
		if mode, _, ok := ownFile(folder); !ok || mode != os.ModeDir|0o700 {
			continue
		}
		mode, changed, ok := ownFile(path)
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
			_ = os.Remove(path) // Another process may have removed it already.
			_ = os.Remove(folder)
		}
	}
}

// ownFile describes the file at a path, without following a link. The result is false for a file of another user.
func ownFile(path string) (mode os.FileMode, changed time.Time, ok bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, time.Time{}, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode(), info.ModTime(), ok && int(s.Uid) == os.Geteuid()
}

// checkAddress returns an error unless name has the form of a name that this package makes. A peer's address must not
// make us connect to other services of this host.
func checkAddress(name, dir string) error {
	if strings.HasPrefix(name, abstractPrefix) {
		return nil
	}
	if dir != "" && filepath.Dir(filepath.Dir(name)) == filepath.Clean(dir) && filepath.Base(name) == socketName {
		return nil
	}
	return fmt.Errorf("%w: %q is not the socket of a shm plane in folder %q; configure the same folder at both ends",
		link.ErrMalformed, name, dir)
}
