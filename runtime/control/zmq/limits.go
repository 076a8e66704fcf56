package zmq

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

// fit chooses how many connections of peers there may be, or says that the process may not open as many files as the
// configuration wants. Half of them are left to our own connections, planes, and whatever else the process does.
func (c *Config) fit() error {
	limit, _, err := door.FileLimit()
	if err != nil {
		c.Log.Warn("the limit of open files is not known", "err", err)
		limit = 1024
	}
	may := max(limit/2, 8)
	if c.MaxGuests == 0 {
		c.MaxGuests = min(8192, may)
		if may < 1024 {
			c.Log.Warn("this process may open few files: more peers than that find no place", "files_max", limit,
				"connections_of_peers_max", may,
				"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		}
	}
	if c.MaxGuests > may {
		return &control.Error{Code: effects.TooMany,
			What: fmt.Sprintf("MaxGuests %d with %d files that this process may open", c.MaxGuests, limit),
			Remedy: fmt.Sprintf("raise the limit of open files (ulimit -n, LimitNOFILE) to %d, or set MaxGuests to at most %d",
				2*c.MaxGuests, may)}
	}
	if c.GuestsPerAddress == 0 || c.GuestsPerAddress > c.MaxGuests {
		c.GuestsPerAddress = max(c.MaxGuests*7/8, 1)
	}
	// Who said nothing leaves room for those of its address that did.
	c.StrangersPerAddress = min(c.StrangersPerAddress, max(c.GuestsPerAddress/2, 1))
	if c.MaxConns > limit-c.MaxGuests {
		less := max((limit-c.MaxGuests)/2, 1)
		c.Log.Warn("this process may open fewer files than its connections would need: there are fewer connections",
			"files_max", limit,
			"connections_wanted", c.MaxConns, "connections_max", less, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE), or lower tables.conns")
		c.MaxConns = less
	}
	return nil
}
