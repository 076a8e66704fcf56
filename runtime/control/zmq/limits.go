package zmq

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

// fitOpenFiles chooses the number of inbound connections, or returns an error if the process may not open as many files
// as the configuration asks for. Half of the files are left to outbound connections, data planes and the rest of the
// process.
func (c *Config) fitOpenFiles() error {
	limit, _, err := door.FileLimit()
	if err != nil {
		c.Log.Warn("cannot read the limit of open files; assuming 1024", "err", err)
		limit = 1024
	}
	inboundLimit := max(limit/2, 8)
	if c.MaxInbound == 0 {
		c.MaxInbound = min(8192, inboundLimit)
		if inboundLimit < 1024 {
			c.Log.Warn("this process may open few files: further peers are refused beyond this number", "files_max", limit,
				"connections_of_peers_max", inboundLimit,
				"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		}
	}
	if c.MaxInbound > inboundLimit {
		return &control.Error{Code: effects.TooMany,
			What: fmt.Sprintf("MaxInbound %d with %d files that this process may open", c.MaxInbound, limit),
			Remedy: fmt.Sprintf("raise the limit of open files (ulimit -n, LimitNOFILE) to %d, or set MaxInbound to at most %d",
				2*c.MaxInbound, inboundLimit)}
	}
	if c.InboundPerAddress == 0 || c.InboundPerAddress > c.MaxInbound {
		c.InboundPerAddress = max(c.MaxInbound*7/8, 1)
	}
	// A connection that has completed no handshake leaves room for connections of the same address that have.
	c.HandshakingPerAddress = min(c.HandshakingPerAddress, max(c.InboundPerAddress/2, 1))
	if c.MaxConns > limit-c.MaxInbound {
		connLimit := max((limit-c.MaxInbound)/2, 1)
		c.Log.Warn("this process may open too few files for its connections: their number is reduced",
			"files_max", limit,
			"connections_wanted", c.MaxConns, "connections_max", connLimit, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE), or lower tables.conns")
		c.MaxConns = connLimit
	}
	return nil
}
