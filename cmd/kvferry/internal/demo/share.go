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

// sharedModes lists the sharing modes in the order in which they are played. shareLines gives the lines that each mode
// adds to a node's configuration.
var (
	sharedModes = []Mode{P2PPush, P2PPull, P2PArena, P2PDelay}
	shareLines  = map[Mode]string{
		P2PPush: "p2p_pull_mode: false\n", P2PPull: "p2p_pull_mode: true\n", P2PArena: "p2p_pull_mode: true\n",
		P2PDelay: "p2p_pull_mode: true\np2p_delay_pull: true\n",
	}
)

const (
	instances = 3
	// bringWait limits the wait for chunks from peers; after the limit, the request's chunks are computed.
	bringWait = 30 * time.Second
	// knownMax limits the wait until directories have received the reports of stored chunks.
	knownMax = 60 * time.Second
)

// SharingOptions describes a replay by nodes that share. With Ring, the nodes also push chunks to each other.
type SharedOptions struct {
	Options
	Directories int
	Pages       int // of each instance's cache
}

// A sharer replays one trace.
type sharer struct {
	options *SharedOptions
	town    *town
	tally   *sharedTally
}

// RunSharing replays the trace with nodes that share, and returns the report. RunSharing fails as Run does.
func RunShared(ctx context.Context, o SharedOptions) (*SharedReport, error) {
	o.shape = shape{chunkTokens: 256, layers: 1, kvHeads: 1, headSize: 128}
	o.Concurrency = max(o.Concurrency, 1)
	t, err := startTown(ctx, &o)
	if err != nil {
		return nil, err
	}
	s := &sharer{options: &o, town: t, tally: newSharedTally(len(o.Requests))}
	begin := time.Now()
	err = s.play(ctx)
	took := time.Since(begin)
	var unclean []string
	if err == nil {
		if apart := t.agree(ctx); apart != nil {
			unclean = append(unclean, apart.Error())
		}
		err = ctx.Err()
	}
	if err != nil {
		t.abort()
		return nil, err
	}
	pinned := settle(ctx, t.nodes(), s.look)
	unclean = append(unclean, t.stop()...)
	defer t.leaveNothing()
	return s.report(took, pinned, unclean), nil
}

// playJobs replays the requests. The first request is played alone, and the rest begins when the directories know the
// chunks that the first request has left in its instance's cache. playJobs fails if the directories do not learn them.
func (s *sharer) play(ctx context.Context) error {
	jobs := jobsOf(s.options.Requests, s.options.shape.chunkTokens)
	for i := range jobs {
		j := &jobs[i]
		if j.lastTokens > 0 { // Caches store only full chunks.
			j.keys, j.lastTokens = j.keys[:len(j.keys)-1], 0
		}
		if most := s.options.Pages / 4; len(j.keys) > most {
			j.keys = j.keys[:most]
			s.tally.r.Cut++
		}
	}
	first := &jobs[0]
	if s.playJob(ctx, first); len(first.keys) > 0 {
		if err := s.known(ctx, first.keys[:min(len(first.keys), batchChunks)]); err != nil {
			return err
		}
	}
	var strikes []func(context.Context)
	if s.options.Crash {
		strikes = append(strikes, s.killOwner, s.killDirectory, s.killLog)
	}
	s.options.replay(ctx, jobs[1:], s.playJob, strikes)
	return nil
}

// awaitLookup waits until a lookup by the second instance finds all keys at another instance. It fails after
// directoryMax, or if the context ends.
func (s *sharer) known(ctx context.Context, keys []string) error {
	asks := s.town.seats[1].now()
	for until := time.Now().Add(knownMax); ; {
		r := asks.call(agent.Request{Op: "lookup", Keys: keys})
		switch {
		case r.Elsewhere == len(keys):
			return nil
		case time.Now().After(until):
			return fmt.Errorf("after %v a directory knows %d of %d chunks that an instance has: %s", knownMax, r.Elsewhere,
				len(keys), r.Error)
		case !pause(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}

// playJob plays a request until an attempt succeeds, at most attemptsMax times. If the instance is killed during an
// attempt, the work of the attempt is lost.
func (s *sharer) playJob(ctx context.Context, j *job) {
	begin, ok := time.Now(), len(j.keys) == 0
	for attempt := 1; attempt <= attemptsMax && !ok && ctx.Err() == nil; attempt++ {
		cause := s.attempt(ctx, j, attempt)
		if ok = cause == ""; !ok {
			s.tally.fail(cause)
			pause(ctx, time.Duration(attempt)*retryPause)
		}
	}
	s.tally.request.record(time.Since(begin))
	done, lost := s.tally.ended(ok)
	if s.options.Progress != nil {
		s.options.Progress(done, lost)
	}
}

// tryJob makes an instance serve a request once, and returns the cause of a failure, or "".
func (s *sharer) attempt(ctx context.Context, j *job, attempt int) (cause string) {
	at := j.index % instances
	room := s.town.rooms[at]
	room.enter(len(j.keys))
	defer room.leave(len(j.keys))
	node, err := s.town.seats[at].current(ctx)
	if err != nil {
		return "interrupted"
	}
	request := fmt.Sprintf("%s/%d", j.id, attempt)
	begin := time.Now()
	looked := node.call(agent.Request{Op: "lookup", Keys: j.keys})
	lookup := time.Since(begin)
	got := node.call(agent.Request{Op: "bring", Request: request + "/bring", Keys: j.keys,
		Fetch: s.options.Mode == P2PDelay, WaitMS: int(bringWait.Milliseconds())})
	s.tally.verified(&got)
	switch {
	case got.Wrong > 0:
		return "bring: wrong bytes"
	case got.Code != effects.OK.String():
		if r := node.call(agent.Request{Op: "store", Keys: j.keys[got.Hits:]}); r.Code != effects.OK.String() {
			return "store: " + r.Code
		}
	}
	if s.options.Ring {
		if cause := s.pass(ctx, j, node, at, request); cause != "" {
			return cause
		}
	}
	s.tally.served(j, &looked, &got, lookup)
	return ""
}

// passToNext makes an instance put a request's chunks to the next instance, as a prefill node does, and makes the
// engine of the next instance get the chunks. It returns the cause of a failure, or "".
func (s *sharer) pass(ctx context.Context, j *job, from *process, at int, request string) (cause string) {
	next := (at + 1) % instances
	to, err := s.town.seats[next].current(ctx)
	if err != nil {
		return "interrupted"
	}
	batches := j.batches(batchChunks)
	for i, keys := range batches {
		r := from.call(agent.Request{Op: "put", Peer: &s.town.peers[next], Request: request, Keys: keys,
			Last: i == len(batches)-1})
		if r.Code == effects.OK.String() {
			if r = to.call(agent.Request{Op: "get", Request: request, Keys: keys,
				WaitMS: int(getWait.Milliseconds())}); r.Wrong > 0 {
				r.Code = "wrong bytes"
			}
			s.tally.verified(&r)
		}
		if r.Code != effects.OK.String() {
			// Some chunks of the request may have reached the successor of a crashed process.
			if now, err := s.town.seats[next].current(ctx); err == nil {
				now.call(agent.Request{Op: "abandon", Request: request})
			}
			return "pass: " + r.Code
		}
		s.tally.passed(len(keys))
	}
	return ""
}

// fetchStats requests the node's Stats. It returns nil if the process has ended.
func (s *sharer) look(node *process) *agent.Stats {
	stats := node.call(agent.Request{Op: "stats"}).Stats
	if stats != nil {
		s.tally.asked(stats)
	}
	return stats
}
