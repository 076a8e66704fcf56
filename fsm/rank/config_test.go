package rank

import (
	"strings"
	"testing"
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
