package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// What a rank of both sides must be able to do is what each side must, at the same time.
func TestBothSidesTogether(t *testing.T) {
	limits := func(role Role) effects.Limits {
		cfg := Config{
			Role: role, Planes: []Plane{{Name: "p"}},
			Common:   Common{Layout: layout},
			Memory:   Memory{Pages: 64, GrantsMax: 50},
			Engine:   Engine{PutsMax: 100},
			Pipeline: Pipeline{StagingPages: 8},
		}
		r, err := New(cfg, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r.Limits()
	}
	for _, role := range []Role{RoleSender, RoleReceiver} {
		if got := limits(role).Transfers; got != 100 {
			t.Errorf("%v: %d transfers at a time, want 100", role, got)
		}
	}
	if got := limits(RoleBoth).Transfers; got != 100+50+8 {
		t.Errorf("both: %d transfers at a time, want 158", got)
	}
}

// What does not go together is refused by name.
func TestBothRefused(t *testing.T) {
	base := Config{
		Role: RoleBoth, Planes: []Plane{{Name: "p"}},
		Common:   Common{Layout: layout},
		Memory:   Memory{Pages: 8},
		Offering: Offering{Pull: true, DoneAddr: effects.Addr{Host: "h", Port: 1}},
	}
	for _, c := range []struct {
		change func(*Config)
		want   string // in the error; empty: none
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.DoneAddr = effects.Addr{} }, "DoneAddr"},
		{func(c *Config) { c.ReplyTimeout, c.AllocTimeout = 1, 1 }, "ReplyTimeout"},
		{func(c *Config) { c.Role = RoleBoth + 1 }, "RoleBoth"},
	} {
		cfg := base
		c.change(&cfg)
		_, err := New(cfg, 1, 0)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want an error about %q", err, c.want)
		}
	}
}
