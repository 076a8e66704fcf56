package explore_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage wait: walking small worlds makes much of it and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
