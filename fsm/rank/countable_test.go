package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Counts at the edge of their width are refused by name, or make tables as large as they say: none comes out small
// because a product of 32 bits had come round.
func TestCountsDoNotWrap(t *testing.T) {
	base := Config{
		Role: RoleReceiver, Planes: []Plane{{Name: "sim"}},
		Common: Common{Layout: layout},
		Memory: Memory{Pages: 8},
	}
	for name, c := range map[string]struct {
		change func(c *Config)
		want   string // in the error; empty: none
	}{
		"puts": {func(c *Config) { c.PutsMax = 1<<32/5 + 1 }, "PutsMax"},
		"all of them": {func(c *Config) {
			c.PutsMax, c.PeersMax, c.FetchesMax, c.GetsMax = kernel.CountMax, kernel.CountMax, kernel.CountMax, kernel.CountMax
		}, "deadlines"},
		"peers":  {func(c *Config) { c.PeersMax = 1 << 28 }, "outstanding"},
		"batch":  {func(c *Config) { c.BatchMax = 1<<28 + 1 }, "BatchMax"},
		"places": {func(c *Config) { c.BatchMax, c.Delay = 1<<28, true }, ""},
	} {
		cfg := base
		c.change(&cfg)
		err := cfg.fillDefaults()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "":
			if cfg.LocationsMax != kernel.CountMax || cfg.entriesMax() < cfg.BatchMax {
				t.Errorf("%s: %d places, %d entries", name, cfg.LocationsMax, cfg.entriesMax())
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v; want %s named", name, err, c.want)
		}
	}
}
