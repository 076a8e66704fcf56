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

// leaseSeconds is the duration of a lease. A decode node leases the pages that a peer recalls, and on a leased plane
// also the pages that a peer may write. If the peer is killed, the pages stay pinned until the lease expires.
const leaseSeconds = 10

// leaseLines returns the lines below extra_config.kvferry of a node from which peers recall, or which receives over a
// leased plane.
func (o *Options) leaseLines() string {
	if !o.Recall && o.Plane != PlaneNIXL {
		return ""
	}
	return fmt.Sprintf("    lease: %d\n", leaseSeconds)
}

// recallLines returns the lines that recalls add to a node's configuration. The port is 0 for a node that only sends.
func (o *Options) recallLines(queryPort uint16) string {
	if !o.Recall {
		return ""
	}
	lines := "pd_bidirectional: true\n"
	if queryPort > 0 {
		lines += fmt.Sprintf("pd_peer_query_port: %d\n", queryPort)
	}
	return lines
}

// recallJob recalls the chunks of a job that the decode node still has. It returns a cause only if bytes were wrong or
// the context has ended. Any other failure is counted, and the chunks are computed.
func (p *player) recallJob(ctx context.Context, j *job, from *slot, peer agent.Peer, request string) (cause string) {
	if !p.options.Recall {
		return ""
	}
	batches := j.keyBatches(batchChunks)
	for i, keys := range batches {
		node, err := from.awaitProcess(ctx)
		if err != nil {
			return "interrupted"
		}
		r := node.callAgent(agent.Request{
			Op: "recall", Peer: &peer, Request: request, Keys: keys, LastTokens: j.batchLastTokens(i, len(batches)),
			WaitMS: int(getWait.Milliseconds()),
		})
		p.tally.recalled.Add(int64(r.Hits))
		p.tally.addVerified(&r)
		switch {
		case r.Wrong > 0:
			return "recall: wrong bytes"
		case r.Code != effects.OK.String():
			p.tally.addFailure("recall: " + r.Code)
			return ""
		}
		p.tally.recall.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
		if r.Hits < len(keys) {
			return "" // The decode node has no more of the chunks.
		}
	}
	return ""
}
