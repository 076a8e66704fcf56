package link

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// Of a host that is named, the name is what is looked at first; of an address it is nothing.
func TestANameIsBlamedBeforeItsPort(t *testing.T) {
	for host, named := range map[string]bool{"decode-1.exmaple": true, "localhost": true, "10.0.0.2": false, "fd00::2": false} {
		w := notOpenedReason(host, effects.Unreachable)
		if text := w.Text(effects.Unreachable); strings.Contains(text, "spelling of the host") != named ||
			strings.Contains(text, "no address") != named {
			t.Errorf("of %s: %s", host, text)
		}
	}
	if w := notOpenedReason("localhost", effects.TooMany); w.Ours != "too_many" || w.Remedy != "" {
		t.Errorf("got %+v", w)
	}
}
