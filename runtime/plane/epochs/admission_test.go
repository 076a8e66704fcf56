package epochs

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane"
)

// However many links are configured, initiators and strangers take no more than their part of the files of the
// process.
func TestAdmissionFollowsTheLimitOfFiles(t *testing.T) {
	for _, c := range []struct{ links, limit, total, strangers, lines int }{
		{64, 1024, 128, 64, 0},
		{64, 256, 64, 32, 1},
		{64, 4, 2, 1, 1},
		{2, 1024, 4, 2, 0},
	} {
		var log logtest.Lines
		a := IncomingConfig{MaxLinks: c.links, FilesPerLink: 8, Env: plane.Env{Bounds: plane.Bounds{Strangers: 256}}, Log: log.Logger()}
		if got := a.doorConfigFor(c.limit); got.MaxTotal != c.total || got.MaxStrangers != c.strangers {
			t.Errorf("%+v: %d in all, %d strangers", c, got.MaxTotal, got.MaxStrangers)
		}
		if n := log.CountText("links_max"); n != c.lines {
			t.Errorf("%+v: %d lines", c, n)
		}
	}
}
