package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// settleMax bounds how long nodes may need to have nothing in progress after the last request.
const settleMax = 20 * time.Second

// settle waits until no node has anything in progress, and says what is still pinned after that.
func settle(ctx context.Context, nodes []*process, look func(*process) *agent.Stats) (pinned []string) {
	deadline := time.Now().Add(settleMax)
	for {
		pinned = nil
		for _, node := range nodes {
			if s := look(node); s != nil {
				pinned = append(pinned, pinnedAt(node.name, s)...)
			} else {
				pinned = append(pinned, node.name+": does not answer")
			}
		}
		if len(pinned) == 0 || time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return pinned
		}
	}
}

// look asks a node what it holds; nil if it is gone.
func (p *player) look(node *process) *agent.Stats {
	s := node.call(agent.Request{Op: "stats"}).Stats
	if s != nil {
		p.tally.marks(s)
	}
	return s
}

// pinnedAt names everything that a node without work must not have. Pages of ready chunks are a cache,
// and no pin.
func pinnedAt(name string, s *agent.Stats) (pinned []string) {
	for _, c := range []struct {
		what  string
		count int
	}{
		{"pages granted", s.PagesGranted}, {"pages leased", s.PagesLent}, {"pages quarantined", s.PagesQuarantined},
		{"puts", s.Puts}, {"gets", s.Gets},
		{"grants", s.Grants}, {"pending requests", s.Waiters},
		{"reserves", s.Reserves}, {"claims", s.Claims}, {"fills", s.Fills},
		{"deferred offers", s.Offers}, {"fetches", s.Fetches}, {"pages staged", s.Staged}, {"chunks brought", s.Brings},
		{"prefills", s.Prefills}, {"chunks of which layers are missing", s.Bundles},
		{"pages of an arena", s.ArenaTotal - s.ArenaFree},
		{"pages pinned for peers", s.Pinned},
		{"receptions of blocks", s.Receptions}, {"finished requests", s.Lent}, {"registrations", s.Registrations},
		{"pages neither free nor of a ready chunk", s.PagesTotal - s.PagesFree + s.DeviceTotal - s.DeviceFree -
			s.Entries*max(1, s.ChunkPages)},
	} {
		if c.count != 0 {
			pinned = append(pinned, fmt.Sprintf("%s: %d %s", name, c.count, c.what))
		}
	}
	return pinned
}
