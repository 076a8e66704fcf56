package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// With --bidirectional, decode nodes keep the chunks that their engines have read. Before a node computes a request's
// chunks, it recalls the chunks that the decode node still has, and every recalled byte is verified. Chunks that do not
// arrive are computed, so that a failed recall costs time and never fails a request.

// RecallModes lists the modes in which a decode node keeps chunks to recall. In the other modes, chunks bypass the
// decode node's pool on the way to its engine, and the node keeps none of them.
func RecallModes() []Mode { return []Mode{Push, Pull} }

// leasesStand is how long what a decode was asked for stays as it is, in seconds, if nobody says that it was read, and
// on a leased plane what it was to be written: so long the pages stay pinned that a node was killed over.
const leasesStand = 10

// leases are the lines below extra_config.kvferry of who is recalled from, or receives over a leased plane.
func (o *Options) leases() string {
	if !o.Recall && o.Plane != PlaneNIXL {
		return ""
	}
	return fmt.Sprintf("    lease: %d\n", leasesStand)
}

// recalls are the lines that recalls add to the configuration of who receives, or only sends.
func (o *Options) recalls(queryPort uint16) string {
	if !o.Recall {
		return ""
	}
	lines := "pd_bidirectional: true\n"
	if queryPort > 0 {
		lines += fmt.Sprintf("pd_peer_query_port: %d\n", queryPort)
	}
	return lines
}

// recall reads back what the decode has of a job, and says with what wrong bytes it failed; else nothing fails by it.
func (p *player) recall(ctx context.Context, j *job, from *seat, peer agent.Peer, request string) (cause string) {
	if !p.options.Recall {
		return ""
	}
	batches := j.batches(batchChunks)
	for i, keys := range batches {
		node, err := from.current(ctx)
		if err != nil {
			return "interrupted"
		}
		r := node.call(agent.Request{
			Op: "recall", Peer: &peer, Request: request, Keys: keys, LastTokens: j.lastTokensOf(i, len(batches)),
			WaitMS: int(getWait.Milliseconds()),
		})
		p.tally.recalled.Add(int64(r.Hits))
		p.tally.verified(&r)
		switch {
		case r.Wrong > 0:
			return "recall: wrong bytes"
		case r.Code != effects.OK.String():
			p.tally.fail("recall: " + r.Code)
			return ""
		}
		p.tally.recall.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
		if r.Hits < len(keys) {
			return "" // The rest is not there.
		}
	}
	return ""
}
