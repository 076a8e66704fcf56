//go:build cgo && linux

package gateway

import "testing"

// Complete is c with its defaults.
func Complete(tb testing.TB, c Config) Config {
	tb.Helper()
	c, err := c.complete()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
