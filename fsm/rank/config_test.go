package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// What no plane can carry is refused as the rank is made, whatever read the configuration.
func TestBearerIsAPropertyOfThePlanes(t *testing.T) {
	planes := []Plane{{Name: "p"}}
	base := Config{
		Role: RoleReceiver, Planes: planes,
		Common: Common{Layout: layout},
		Memory: Memory{Pages: 8},
	}
	for _, c := range []struct {
		change func(*Config)
		field  string
	}{
		{func(c *Config) { c.TrustUncommitted = true }, "TrustUncommitted"},
		{func(c *Config) { c.TrustUncommitted, c.Leased = true, true }, "TrustUncommitted"},
		{func(c *Config) { c.Bearer = true }, "Bearer"},
		{func(c *Config) { c.Bearer, c.Leased, c.TrustUncommitted = true, true, true }, ""},
	} {
		cfg := base
		c.change(&cfg)
		_, err := New(cfg, 1, 0)
		if (err == nil) != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("leased %v, bearer %v, trust %v: %v; want an error about %q", cfg.Leased, cfg.Bearer, cfg.TrustUncommitted,
				err, c.field)
		}
	}
}

// A rank that registers has a grant for each part of what it may have open, and may hear of as many producer ranks as
// one request may have, however few requests there may be.
func TestRegisteringRanksHaveGrants(t *testing.T) {
	for _, c := range []struct{ receptions, producers, grants uint32 }{
		{0, 0, 4096}, {1, 64, 4096}, {1, 6000, 6000}, {1000, 4, 4096}, {1000, 64, 8000}, {1 << 14, 8, memory.GrantsMax},
	} {
		cfg := Config{Common: Common{Layout: layout}, Planes: []Plane{{Name: "p"}}}
		registerBlocks(&cfg, nil, nil, nil, "p")
		cfg.ReceptionsMax, cfg.ProducersMax = c.receptions, c.producers
		if err := cfg.fillDefaults(); err != nil || cfg.GrantsMax != c.grants {
			t.Errorf("%d requests of %d ranks: %d grants, %v; want %d", c.receptions, c.producers, cfg.GrantsMax, err, c.grants)
		}
	}
}
