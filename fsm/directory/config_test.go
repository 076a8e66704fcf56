package directory

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A bound that nothing can work with is refused by its value, and what is not a bound of a table by its name.
func TestConfigIsChecked(t *testing.T) {
	c := Default()
	if err := c.Check(); err != nil {
		t.Fatalf("the default: %v", err)
	}
	for name := range bounds(&c) {
		c := Default()
		*bounds(&c)[name] = 0
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), ": 0 is not within") {
			t.Errorf("%s of 0: %v", name, err)
		}
	}
	for name, change := range map[string]func(c *Config){
		"silence":  func(c *Config) { c.Silence = -effects.Second },
		"patience": func(c *Config) { c.SyncTimeout = 0 },
		"ends":     func(c *Config) { c.EndsPerStep = 0 },
		"holders":  func(c *Config) { c.Holders = 1 << 16 },
		"prefix":   func(c *Config) { c.HashesPerLookup = 1 << 16 },
	} {
		c := Default()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What workers are told of is never empty, and LMCache's word is LMCache's.
func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for r := UnknownWorker; r <= SyncLost; r++ {
		if text := r.String(); text == "" || seen[text] {
			t.Errorf("reason %d is %q", r, text)
		} else {
			seen[text] = true
		}
	}
	if NoSync.String() != "" || UnknownWorker.String() != "worker_re_registered" {
		t.Errorf("%q, %q", NoSync, UnknownWorker)
	}
}
