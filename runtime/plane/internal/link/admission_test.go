package link

import (
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane"
)

// However many links are configured, peers take no more than a quarter of the files of the process, and strangers
// half of those.
func TestAdmissionFollowsTheLimitOfFiles(t *testing.T) {
	limit, _, err := door.FileLimit()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ links, streams, strangers, total, unknown int }{
		{1 << 16, 16, 1 << 16, max(limit/4, 8), max(limit/8, 4)},
		{2, 1, 256, 4, 2},
		{1, 0, 256, 1, 1},
		{2, 1, 1, 4, 1},
	} {
		got := doorConfig(Config{MaxStreams: c.streams,
			Env: plane.Env{Bounds: plane.Bounds{Links: c.links, Strangers: c.strangers}, Log: slog.New(slog.DiscardHandler)}})
		if got.MaxTotal != c.total || got.MaxStrangers != c.unknown {
			t.Errorf("%+v: %d in all, %d strangers", c, got.MaxTotal, got.MaxStrangers)
		}
		if left := got.MaxTotal - got.MaxPerAddress; left != c.total/8 && c.streams > 0 {
			t.Errorf("%+v: one address leaves %d of %d to others", c, left, got.MaxTotal)
		}
	}
}
