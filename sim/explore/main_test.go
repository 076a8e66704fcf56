package explore_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes the garbage collector run rarely, because exploring small worlds produces much garbage and keeps
// little memory.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
