package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

const (
	batchChunks = 64
	attemptsMax = 6
	// retryPause is multiplied by the attempt's number: the peer's circuit breaker may be open, or the peer may be
	// starting.
	retryPause = 100 * time.Millisecond
	// getWait limits the wait for chunks of which the proxy was notified.
	getWait = 5 * time.Second
	// notificationMax limits the wait for the proxy's notification. It is a put's timeout and a little more.
	notificationMax = 20 * time.Second
	// lateNotificationMax limits the wait for the proxy's notification after the sender was killed, because a
	// notification may still be in flight.
	lateNotificationMax = time.Second
)

// playJob plays a request until an attempt succeeds, at most attemptsMax times, or chaosAttemptsMax times under strikes.
// As in a serving system, a request that failed is computed and pushed again.
func (p *player) playJob(ctx context.Context, j *job) {
	ok, most := false, attemptsMax
	if p.options.Chaos != nil {
		most = chaosAttemptsMax
	}
	for attempt := 1; attempt <= most && !ok && ctx.Err() == nil; attempt++ {
		begin := time.Now()
		cause := p.tryJob(ctx, j, attempt)
		if ok = cause == ""; ok {
			p.tally.request.record(time.Since(begin))
		} else {
			p.tally.addFailure(cause)
			sleepContext(ctx, time.Duration(min(attempt, attemptsMax))*retryPause)
		}
	}
	done, lost := p.tally.endRequest(ok)
	if p.options.Progress != nil {
		p.options.Progress(done, lost)
	}
}

// tryJob moves a request's chunks to a decode process, waits for the proxy's notification, and gets the chunks in the
// decode process. It returns the cause of a failure, which is the step and the code, or "".
func (p *player) tryJob(ctx context.Context, j *job, attempt int) (cause string) {
	from, d := p.cluster.routeJob(j.index)
	if _, err := d.awaitProcess(ctx); err != nil {
		return "interrupted"
	}
	d.admission.acquireChunks(len(j.keys))
	defer d.admission.releaseChunks(len(j.keys))
	decode, err := d.awaitProcess(ctx)
	if err != nil {
		return "interrupted"
	}
	request := fmt.Sprintf("%s/%d", j.id, attempt)
	notified := p.cluster.expectNotification(request)
	defer p.cluster.forgetNotification(request)
	defer func() {
		if cause == "" {
			return
		}
		// Some chunks of the request may have reached the successor of a crashed process.
		if now, err := d.awaitProcess(ctx); err == nil {
			now.callAgent(agent.Request{Op: "abandon", Request: request})
		}
	}()
	if cause := p.recallJob(ctx, j, from, d.peer, request); cause != "" {
		return cause
	}
	sendChunks := p.putJob
	if p.options.Mode == Layerwise {
		sendChunks = p.prefillJob
	}
	last, cause := sendChunks(ctx, j, from, d.peer, request)
	if cause != "" {
		return cause
	}
	if cause := awaitNotification(ctx, notified, last.ended); cause != "" {
		return cause
	}
	return p.getJob(j, decode, request)
}

// awaitNotification waits until the proxy is notified, at most notificationMax. If the sending process ends meanwhile,
// the rest of the wait is lateNotificationMax. It returns the cause of a failure, or "".
func awaitNotification(ctx context.Context, notified, senderEnded <-chan struct{}) (cause string) {
	limit := time.NewTimer(notificationMax)
	defer limit.Stop()
	for {
		select {
		case <-notified:
			return ""
		case <-senderEnded:
			senderEnded = nil
			limit.Reset(lateNotificationMax)
		case <-limit.C:
			return "proxy: not notified"
		case <-ctx.Done():
			return "interrupted"
		}
	}
}

// putJob puts the batches in order. After a failure it skips to the last batch, which ends the request, because every
// request must end once, so that the proxy is notified of each request. putJob returns the process that notifies the
// proxy.
func (p *player) putJob(
	ctx context.Context, j *job, from *slot, peer agent.Peer, request string,
) (last *process, cause string) {
	batches := j.keyBatches(batchChunks)
	for i, keys := range batches {
		isLast := i == len(batches)-1
		if cause != "" && !isLast {
			continue
		}
		prefill, err := from.awaitProcess(ctx)
		if err != nil {
			return nil, "interrupted"
		}
		last = prefill
		r := prefill.callAgent(agent.Request{Op: "put", Peer: &peer, Request: request, Keys: keys,
			LastTokens: j.batchLastTokens(i, len(batches)), Last: isLast})
		p.tally.sent.Add(int64(r.Sent))
		p.tally.skipped.Add(int64(r.Skipped))
		p.tally.bytesSent.Add(r.Bytes)
		if r.Code == effects.OK.String() {
			p.tally.put.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
		} else if cause == "" {
			cause = "put: " + r.Code
		}
	}
	return last, cause
}

// getJob makes the decode node's engine take the chunks, from the node's pool or with a fetch. It returns the cause of
// a failure, or "".
func (p *player) getJob(j *job, decode *process, request string) (cause string) {
	op := "get"
	if p.options.Mode.isDelayed() {
		op = "fetch"
	}
	batches := j.keyBatches(batchChunks)
	for i, keys := range batches {
		if layered := p.options.Mode == Layerwise; layered && i == 0 {
			keys = keys[j.skippedChunks():]
		}
		r := decode.callAgent(agent.Request{Op: op, Request: request, Keys: keys, LastTokens: j.batchLastTokens(i, len(batches)),
			Layered: p.options.Mode == Layerwise, WaitMS: int(getWait.Milliseconds())})
		p.tally.hits.Add(int64(r.Hits))
		p.tally.addVerified(&r)
		switch {
		case r.Wrong > 0:
			return op + ": wrong bytes"
		case r.Code != effects.OK.String():
			return op + ": " + r.Code
		}
		p.tally.get.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
	}
	return ""
}
