package protocol

import (
	"testing"

	"pgregory.net/rapid"
)

// A lease is read as long as it was stated, and never as longer: its reader counts from before it was given, but no
// rounding may add to that.
func TestLeaseIsReadAsNoLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(0, 1<<53).Draw(t, "lease")
		var m, read AscendBatchedLookupAndGetRetMsg
		m.SetLeaseNS(ns)
		if err := read.Decode(m.Append(nil), nil); err != nil {
			t.Fatal(err)
		}
		if got := read.LeaseNS(); got > ns || ns-got > max(1, ns>>50) {
			t.Fatalf("a lease of %d ns is read as one of %d", ns, got)
		}
	})
}
