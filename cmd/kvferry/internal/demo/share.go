package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// In the sharing modes, the requests of a trace are assigned to the instances in turn, so that each instance wants
// prefixes that its peers have computed. For each request, an instance takes the chunks in its own cache, queries a
// directory for peers that have more chunks, brings the longest prefix from the peers, computes the rest, and stores
// the computed chunks. The demo kills the last instance while its peers read chunks, then a directory, and then the log
// that the directories share.

// The modes of nodes that share: either the node that has the chunks writes the pages, or the node that wants the
// chunks reads the pages.
const (
	P2PPush Mode = "p2p-push"
	P2PPull Mode = "p2p-pull"
	// P2PArena makes nodes read copies of the chunks, which the chunks' holder lends from an arena of copies.
	P2PArena Mode = "p2p-pull+arena"
	// P2PDelay leaves the chunks with the peer until the engine fetches the chunks.
	P2PDelay Mode = "p2p-delay"
)

// sharingModes lists the sharing modes in the order in which they are played. sharingLines gives the lines that each
// mode adds to a node's configuration.
var (
	sharingModes = []Mode{P2PPush, P2PPull, P2PArena, P2PDelay}
	sharingLines = map[Mode]string{
		P2PPush: "p2p_pull_mode: false\n", P2PPull: "p2p_pull_mode: true\n", P2PArena: "p2p_pull_mode: true\n",
		P2PDelay: "p2p_pull_mode: true\np2p_delay_pull: true\n",
	}
)

const (
	instances = 3
	// bringWait limits the wait for chunks from peers; after the limit, the request's chunks are computed.
	bringWait = 30 * time.Second
	// directoryMax limits the wait until directories have received the reports of stored chunks.
	directoryMax = 60 * time.Second
)

// SharingOptions describes a replay by nodes that share. With Ring, the nodes also push chunks to each other.
type SharingOptions struct {
	Options
	Directories int
	Pages       int // of each instance's cache
}

// A sharingPlayer replays one trace.
type sharingPlayer struct {
	options *SharingOptions
	cluster *sharingCluster
	tally   *sharingTally
}

// RunSharing replays the trace with nodes that share, and returns the report. RunSharing fails as Run does.
func RunSharing(ctx context.Context, o SharingOptions) (*SharingReport, error) {
	o.shape = shape{chunkTokens: 256, layers: 1, kvHeads: 1, headSize: 128}
	o.Concurrency = max(o.Concurrency, 1)
	t, err := startSharing(ctx, &o)
	if err != nil {
		return nil, err
	}
	s := &sharingPlayer{options: &o, cluster: t, tally: newSharingTally(len(o.Requests))}
	begin := time.Now()
	err = s.playJobs(ctx)
	took := time.Since(begin)
	var unclean []string
	if err == nil {
		if disagreement := t.awaitAgreement(ctx); disagreement != nil {
			unclean = append(unclean, disagreement.Error())
		}
		err = ctx.Err()
	}
	if err != nil {
		t.killAll()
		return nil, err
	}
	pinned := awaitIdle(ctx, t.instanceProcesses(), s.fetchStats)
	unclean = append(unclean, t.stopAll()...)
	defer t.cleanUp()
	report := s.finishReport(took, pinned, unclean)
	t.report(&report.Outcome)
	return report, nil
}

// playJobs replays the requests. The first request is played alone, and the rest begins when the directories know the
// chunks that the first request has left in its instance's cache. playJobs fails if the directories do not learn them.
func (s *sharingPlayer) playJobs(ctx context.Context) error {
	jobs := newJobs(s.options.Requests, s.options.shape.chunkTokens)
	for i := range jobs {
		j := &jobs[i]
		if j.lastTokens > 0 { // Caches store only full chunks.
			j.keys, j.lastTokens = j.keys[:len(j.keys)-1], 0
		}
		if maxChunks := s.options.Pages / 4; len(j.keys) > maxChunks {
			j.keys = j.keys[:maxChunks]
			s.tally.r.Cut++
		}
	}
	first := &jobs[0]
	if s.playJob(ctx, first); len(first.keys) > 0 {
		if err := s.awaitLookup(ctx, first.keys[:min(len(first.keys), batchChunks)]); err != nil {
			return err
		}
	}
	var strikes []func(context.Context)
	if s.options.Crash {
		strikes = append(strikes, s.killInstance, s.killDirectory, s.killLogServer)
	}
	s.options.replayJobs(ctx, jobs[1:], s.playJob, strikes)
	return nil
}

// awaitLookup waits until a lookup by the second instance finds all keys at another instance. It fails after
// directoryMax, or if the context ends.
func (s *sharingPlayer) awaitLookup(ctx context.Context, keys []string) error {
	querier := s.cluster.slots[1].currentProcess()
	for deadline := time.Now().Add(directoryMax); ; {
		r := querier.callAgent(agent.Request{Op: "lookup", Keys: keys})
		switch {
		case r.Elsewhere == len(keys):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("after %v, a directory knows only %d of %d chunks of an instance: %s", directoryMax, r.Elsewhere,
				len(keys), r.Error)
		case !sleepContext(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}

// playJob plays a request until an attempt succeeds, at most attemptsMax times. If the instance is killed during an
// attempt, the work of the attempt is lost.
func (s *sharingPlayer) playJob(ctx context.Context, j *job) {
	begin, ok := time.Now(), len(j.keys) == 0
	for attempt := 1; attempt <= attemptsMax && !ok && ctx.Err() == nil; attempt++ {
		cause := s.tryJob(ctx, j, attempt)
		if ok = cause == ""; !ok {
			s.tally.addFailure(cause)
			sleepContext(ctx, time.Duration(attempt)*retryPause)
		}
	}
	s.tally.request.record(time.Since(begin))
	done, lost := s.tally.endRequest(ok)
	if s.options.Progress != nil {
		s.options.Progress(done, lost)
	}
}

// tryJob makes an instance serve a request once, and returns the cause of a failure, or "".
func (s *sharingPlayer) tryJob(ctx context.Context, j *job, attempt int) (cause string) {
	at := j.index % instances
	limit := s.cluster.admissions[at]
	limit.acquireChunks(len(j.keys))
	defer limit.releaseChunks(len(j.keys))
	node, err := s.cluster.slots[at].awaitProcess(ctx)
	if err != nil {
		return "interrupted"
	}
	request := fmt.Sprintf("%s/%d", j.id, attempt)
	begin := time.Now()
	lookupResp := node.callAgent(agent.Request{Op: "lookup", Keys: j.keys})
	lookupTime := time.Since(begin)
	bringResp := node.callAgent(agent.Request{Op: "bring", Request: request + "/bring", Keys: j.keys,
		Fetch: s.options.Mode == P2PDelay, WaitMS: int(bringWait.Milliseconds())})
	s.tally.addVerified(&bringResp)
	switch {
	case bringResp.Wrong > 0:
		return "bring: wrong bytes"
	case bringResp.Code != effects.OK.String():
		if r := node.callAgent(agent.Request{Op: "store", Keys: j.keys[bringResp.Hits:]}); r.Code != effects.OK.String() {
			return "store: " + r.Code
		}
	}
	if s.options.Ring {
		if cause := s.passToNext(ctx, j, node, at, request); cause != "" {
			return cause
		}
	}
	s.tally.addServed(j, &lookupResp, &bringResp, lookupTime)
	return ""
}

// passToNext makes an instance put a request's chunks to the next instance, as a prefill node does, and makes the
// engine of the next instance get the chunks. It returns the cause of a failure, or "".
func (s *sharingPlayer) passToNext(ctx context.Context, j *job, from *process, at int, request string) (cause string) {
	next := (at + 1) % instances
	to, err := s.cluster.slots[next].awaitProcess(ctx)
	if err != nil {
		return "interrupted"
	}
	batches := j.keyBatches(batchChunks)
	for i, keys := range batches {
		r := from.callAgent(agent.Request{Op: "put", Peer: &s.cluster.peers[next], Request: request, Keys: keys,
			Last: i == len(batches)-1})
		if r.Code == effects.OK.String() {
			if r = to.callAgent(agent.Request{Op: "get", Request: request, Keys: keys,
				WaitMS: int(getWait.Milliseconds())}); r.Wrong > 0 {
				r.Code = "wrong bytes"
			}
			s.tally.addVerified(&r)
		}
		if r.Code != effects.OK.String() {
			// Some chunks of the request may have reached the successor of a crashed process.
			if now, err := s.cluster.slots[next].awaitProcess(ctx); err == nil {
				now.callAgent(agent.Request{Op: "abandon", Request: request})
			}
			return "pass: " + r.Code
		}
		s.tally.addPassed(len(keys))
	}
	return ""
}

// fetchStats requests the node's Stats. It returns nil if the process has ended.
func (s *sharingPlayer) fetchStats(node *process) *agent.Stats {
	stats := node.callAgent(agent.Request{Op: "stats"}).Stats
	if stats != nil {
		s.tally.recordPeerRequests(stats)
	}
	return stats
}
