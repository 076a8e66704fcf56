package proxy

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/kvferry/kvferry/runtime/internal/door"
)

const (
	connectionsDefault = 4096
	requestsDefault    = 2048

	// A request in flight uses two files besides the client's connection: the connection to the engine, and a
	// connection that stays open for a moment after use.
	filesPerRequest = 2
	// Files for logs, name lookups and the rest of the process, and two for the health check of each engine.
	filesReserved  = 32
	filesPerEngine = 2
	// The limit that is assumed if the system does not report a limit.
	assumedFiles = 1024
)

// fitFiles chooses the limits of connections and requests that were not given, so that they need fewer files than this
// process may open (RLIMIT_NOFILE). If given limits need more files, the result is an error.
func (c *Config) fitFiles() error {
	limit, open, err := door.FileLimit()
	if err != nil {
		c.Log.Warn("the limit of open files is not known", "err", err, "assumed", assumedFiles)
		limit, open = assumedFiles, 0
	}
	return c.fitToLimit(limit, open)
}

// fitToLimit is fitFiles for a process that may open limit files, of which open are open already.
func (c *Config) fitToLimit(limit, open int) error {
	reserved := open + filesReserved + filesPerEngine*(len(c.Prefills)+len(c.Decodes))
	free := limit - reserved
	requests, connections := c.MaxRequests, c.MaxConnections
	switch {
	case requests == 0 && connections == 0:
		requests = min(requestsDefault, free/(2*filesPerRequest))
		connections = min(connectionsDefault, free-filesPerRequest*requests)
	case requests == 0:
		requests = min(requestsDefault, connections, (free-connections)/filesPerRequest)
	case connections == 0:
		connections = min(connectionsDefault, free-filesPerRequest*requests)
	}
	if requests < 1 || connections < 1 || connections+filesPerRequest*requests > free {
		given := func(n int) string {
			if n == 0 {
				return "not given"
			}
			return fmt.Sprint(n)
		}
		return fmt.Errorf("connections (--connections) %s and requests (--requests) %s: this process may open %d files, "+
			"and each connection takes one file, each request %d, and everything else %d: raise the limit of open files (ulimit -n, "+
			"LimitNOFILE) to %d, or give lower limits", given(c.MaxConnections), given(c.MaxRequests), limit, filesPerRequest, reserved,
			reserved+max(c.MaxConnections, 1)+filesPerRequest*max(c.MaxRequests, 1))
	}
	if connections < connectionsDefault && c.MaxConnections == 0 || requests < requestsDefault && c.MaxRequests == 0 {
		c.Log.Warn("this process may open few files, so the proxy serves fewer clients than by default", "files_max", limit,
			"connections", connections, "requests", requests, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE)")
	}
	c.MaxRequests, c.MaxConnections = requests, connections
	return nil
}

// isLocalShortage reports whether a connection to an engine failed because this process or host lacked a resource. An
// error of this kind says nothing about the engine.
func isLocalShortage(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
