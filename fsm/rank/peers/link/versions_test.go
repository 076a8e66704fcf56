package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// Two ends fit if their ranges have a version in common, whichever end is newer. Otherwise both ends refuse, and the
// reason names both ranges.
func TestVersionsInCommon(t *testing.T) {
	cfg := config(key1)
	for _, c := range []struct {
		least, most uint32
		want        effects.Code
	}{
		{VersionMin, VersionMax, effects.OK},
		{1, VersionMin, effects.OK},
		{VersionMax, VersionMax + 4, effects.OK},
		{0, 1 << 31, effects.OK},
		{0, VersionMin - 1, effects.Unsupported},
		{VersionMax + 1, VersionMax + 4, effects.Unsupported},
	} {
		ext := protocol.HelloExt{ProtoMin: c.least, ProtoMax: c.most, Incarnation: protocol.UUID{1}, PageBytes: cfg.PageBytes, Layout: layout}
		for _, called := range []bool{false, true} {
			code, why := cfg.checkPeer(&ext, called)
			if code != c.want {
				t.Errorf("versions %d to %d, called %v: %v, want %v", c.least, c.most, called, code, c.want)
			}
			if code != effects.OK && (why.Field != "kvf_proto" || why.Ours != formatVersions(VersionMin, VersionMax) ||
				why.Theirs != formatVersions(c.least, c.most)) {
				t.Errorf("versions %d to %d: the reason is %q", c.least, c.most, why.Text(code))
			}
		}
	}
}
