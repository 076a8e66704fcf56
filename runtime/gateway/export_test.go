//go:build cgo && linux

package gateway

import (
	"log/slog"
	"testing"
)

// WithDefaults returns c with the defaults filled in.
func WithDefaults(tb testing.TB, c Config) Config {
	tb.Helper()
	c, err := c.withDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// SideConnLimitFor returns how many connections each side channel of c may have in a process that may open limit files.
func SideConnLimitFor(c *Config, limit int) int {
	return c.sideConnLimitFor(limit, slog.New(slog.DiscardHandler))
}
