package span

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// Headers are read as W3C Trace Context says, and what is not valid is no parent.
func TestParseParent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := ParseParent(good)
	if FormatParent(c) != good || !IsSampled(c) {
		t.Fatalf("%s was read as %s", good, FormatParent(c))
	}
	for header, want := range map[string]bool{
		" " + good + " ": true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00":      true,
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more": true,
		"":                       false,
		"00":                     false,
		good + "-more":           false,
		good + "x":               false,
		"01" + good[2:] + "more": false,
		"ff" + good[2:]:          false,
		"0x" + good[2:]:          false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01": false,
	} {
		if got := ParseParent(header) != (effects.TraceContext{}); got != want {
			t.Errorf("%q is valid: %v, want %v", header, got, want)
		}
	}
}
