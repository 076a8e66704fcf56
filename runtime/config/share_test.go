package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

// LMCache-Ascend's two examples of sharing load as they are, but for their address, and say what they get instead of
// what there is not.
func TestSharingExamplesLoad(t *testing.T) {
	for file, want := range map[string]struct {
		init, lookup []uint16
		feed, reply  uint16
		noted        string
	}{
		"example1.yaml": {[]uint16{9960, 9961}, []uint16{9962, 9963}, 9800, 9900,
			"p2p_use_npu"},
		"example2.yaml": {[]uint16{9964, 9965}, []uint16{9966, 9967}, 8600, 8700, ""},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "p2p", file))
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(file, []byte(strings.ReplaceAll(string(text), "<hostIP>", "10.0.0.9")), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &c.Share
		if !s.Enabled || !s.Only || c.Role != Both || c.PeerHost != "10.0.0.9" || c.BufferBytes != 5<<30 || !c.Push.Cache ||
			!slices.Equal(c.InitPorts, want.init) || !slices.Equal(s.LookupPorts, want.lookup) || c.Ranks() != 2 ||
			!slices.Equal(s.Feeds, []protocol.Endpoint{{Host: "10.0.0.9", Port: want.feed}}) ||
			!slices.Equal(s.Replies, []protocol.Endpoint{{Host: "10.0.0.9", Port: want.reply}}) ||
			s.TTL != time.Minute || s.LookupTimeout != 3*time.Second || s.GetTimeout != 11*time.Second ||
			s.Asking != 500*time.Millisecond {
			t.Errorf("%s: %+v", file, c)
		}
		noted := map[string]bool{}
		for _, p := range c.Notes {
			noted[p.Field] = true
		}
		for _, name := range strings.Fields(want.noted) {
			if !noted[name] {
				t.Errorf("%s: nothing is noted of %s: %v", file, name, c.Notes)
			}
		}
	}
}
