//go:build cgo && linux

package hccl

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane"
)

// However many links are configured, initiators and strangers get no more than a quarter of the files of the process.
func TestAdmissionFollowsTheLimitOfFiles(t *testing.T) {
	for _, c := range []struct{ links, limit, total, strangers, lines int }{
		{64, 1024, 128, 64, 0},
		{64, 256, 64, 32, 1},
		{64, 4, 2, 1, 1},
		{2, 1024, 4, 2, 0},
	} {
		var log logtest.Lines
		p := &Plane{cfg: Config{Links: c.links}, env: plane.Env{Bounds: plane.Bounds{Strangers: 256}}, log: log.Logger()}
		if got := p.doorFor(c.limit); got.Total != c.total || got.Strangers != c.strangers {
			t.Errorf("%+v: %d in all, %d strangers", c, got.Total, got.Strangers)
		}
		if n := log.Count("links_max"); n != c.lines {
			t.Errorf("%+v: %d lines", c, n)
		}
	}
}
