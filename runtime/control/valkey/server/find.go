// Package server finds the program of a Valkey or Redis server on this machine. The demo and tests start such a server
// for themselves; nothing else needs one here, since directories connect to a log that somebody operates.
package server

import (
	"errors"
	"os/exec"
)

// ErrNotInstalled says that no server is on this machine, and how to get one without a system daemon: Debian's package
// redis-server starts one, while its package redis-tools has the same program and starts nothing.
var ErrNotInstalled = errors.New("neither valkey-server nor redis-server is installed; apt-get install redis-tools")

// Find returns the path of a server's program and the name to start it by, which is its first argument. The program
// redis-check-rdb of Debian's and Ubuntu's package redis-tools is the server itself when it is started as redis-server.
// The error is ErrNotInstalled if there is none.
func Find() (path, name string, err error) {
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
