//go:build cgo && linux

package gateway

import (
	"log/slog"
	"testing"
)

// Complete returns c with the defaults filled in.
func Complete(tb testing.TB, c Config) Config {
	tb.Helper()
	c, err := c.withDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// ShareOf returns how many connections each side channel of c may have in a process that may open limit files.
func ShareOf(c *Config, limit int) int { return c.shareOf(limit, slog.New(slog.DiscardHandler)) }
