package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// idleMax limits the time after the last request in which nodes must finish their work in progress.
const idleMax = 20 * time.Second

// awaitIdle waits until no node has work in progress, or idleMax has passed, and returns the resources that are still
// pinned.
func awaitIdle(ctx context.Context, nodes []*process, fetchStats func(*process) *agent.Stats) (pinned []string) {
	deadline := time.Now().Add(idleMax)
	for {
		pinned = nil
		for _, node := range nodes {
			if s := fetchStats(node); s != nil {
				pinned = append(pinned, listPinned(node.name, s)...)
			} else {
				pinned = append(pinned, node.name+": the process does not respond")
			}
		}
		if len(pinned) == 0 || time.Now().After(deadline) || !sleepContext(ctx, 50*time.Millisecond) {
			return pinned
		}
	}
}

// fetchStats requests the node's Stats. It returns nil if the process has ended.
func (p *player) fetchStats(node *process) *agent.Stats {
	s := node.callAgent(agent.Request{Op: "stats"}).Stats
	if s != nil {
		p.tally.addStats(s)
	}
	return s
}

// listPinned names each resource that a node without work must not hold. Pages of ready chunks are cached and do not
// count as pinned.
func listPinned(name string, s *agent.Stats) (pinned []string) {
	for _, c := range []struct {
		what  string
		count int
	}{
		{"pages granted", s.PagesGranted}, {"pages leased", s.PagesLent}, {"pages quarantined", s.PagesQuarantined},
		{"puts", s.Puts}, {"gets", s.Gets},
		{"grants", s.Grants}, {"pending requests", s.Waiters},
		{"reserves", s.Reserves}, {"claims", s.Claims}, {"fills", s.Fills},
		{"deferred offers", s.Offers}, {"fetches", s.Fetches}, {"pages staged", s.Staged}, {"chunks brought", s.Brings},
		{"prefills", s.Prefills}, {"chunks with missing layers", s.Bundles},
		{"pages of an arena", s.ArenaTotal - s.ArenaFree},
		{"pages pinned for peers", s.Pinned},
		{"receptions of blocks", s.Receptions}, {"finished requests", s.Lent}, {"registrations", s.Registrations},
		{"pages that are neither free nor of a ready chunk", s.PagesTotal - s.PagesFree + s.DeviceTotal - s.DeviceFree -
			s.Entries*max(1, s.ChunkPages)},
	} {
		if c.count != 0 {
			pinned = append(pinned, fmt.Sprintf("%s: %d %s", name, c.count, c.what))
		}
	}
	return pinned
}
