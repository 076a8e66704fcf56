// Package server finds the program of a Valkey or Redis server on this machine. The demo and tests start a server for
// themselves; nothing else needs a server here, since directories connect to a log that somebody operates.
package server

import (
	"errors"
	"os/exec"
)

// ErrNotInstalled says that no server is on this machine, and how to get a server without a system daemon: Debian's
// package redis-server starts a daemon, while the package redis-tools has the same program and starts nothing.
var ErrNotInstalled = errors.New("neither valkey-server nor redis-server is installed; apt-get install redis-tools")

// FindProgram returns the path of a server's program and the name to start the program by, which is the first argument.
// The program redis-check-rdb of Debian's and Ubuntu's package redis-tools is the server itself when started as
// redis-server. The error is ErrNotInstalled if there is none.
func FindProgram() (path, name string, err error) {
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, name, nil
		}
	}
	if path, err := exec.LookPath("redis-check-rdb"); err == nil {
		return path, "redis-server", nil
	}
	return "", "", ErrNotInstalled
}
