package demo

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// In mode layerwise, a prefill node computes in steps of stepTokens tokens. Each layer of a step takes a fixed time per
// token and is pushed when it is computed. Some requests have a prefix that the decode node does not want, and some
// requests are preempted in the middle of a step.

const (
	stepTokens = 640 // two chunks and a half
	// tokenNanos is the time in nanoseconds to compute one layer of one token, as in a model of 80 layers that prefills
	// 10,000 tokens per second.
	tokenNanos = 1250
)

// skippedChunks returns the number of chunks at the start of a job's prompt that the decode node does not want.
func (j *job) skippedChunks() int {
	if j.index%4 == 1 && len(j.keys) > 1 {
		return 1
	}
	return 0
}

// preemptAfter returns the number of layers after which the job is preempted, or 0 if the job is not preempted.
func (j *job) preemptAfter(layers int) int {
	if j.index%3 == 1 {
		return layers + 1 // The job is preempted in its second step. A job of one step is not preempted.
	}
	return 0
}

// prefillJob makes one process compute the whole request. The same process notifies the proxy.
func (p *player) prefillJob(
	ctx context.Context, j *job, from *slot, peer agent.Peer, request string,
) (last *process, cause string) {
	node, err := from.awaitProcess(ctx)
	if err != nil {
		return nil, "interrupted"
	}
	s := p.options.shape
	r := node.callAgent(agent.Request{
		Op: "prefill", Peer: &peer, Request: request, Keys: j.keys, LastTokens: j.lastTokens,
		Prefill: &agent.Prefill{
			Skip: j.skippedChunks() * s.chunkTokens, StepTokens: stepTokens, TokenNanos: tokenNanos,
			PreemptAfter: j.preemptAfter(s.layers),
		},
	})
	p.tally.sent.Add(int64(r.Sent))
	p.tally.bytesSent.Add(r.Bytes)
	p.tally.saved.Add(int64(r.Saved))
	p.tally.preempted.Add(int64(r.Preempted))
	if r.Code != effects.OK.String() {
		return node, "prefill: " + r.Code
	}
	p.tally.put.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
	p.tally.compute.record(time.Duration(r.MicrosSpun) * time.Microsecond)
	if r.Saved > 0 {
		p.tally.save.record(time.Duration(r.MicrosSaving/int64(r.Saved)) * time.Microsecond)
	}
	return node, ""
}
