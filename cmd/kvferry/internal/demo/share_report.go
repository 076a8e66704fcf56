package demo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// A SharingReport is the report of a replay by nodes that share. Times are in microseconds.
type SharingReport struct {
	Mode        Mode   `json:"mode"`
	Both        bool   `json:"both"` // each instance also put its chunks to the next instance
	Trace       string `json:"trace"`
	Plane       string `json:"transfer_channel"`
	Instances   int    `json:"instances"`
	Directories int    `json:"directories"`
	Log         string `json:"log"`   // the server of the directories' log, or the reason that there is no server
	Pages       int    `json:"pages"` // of each instance's cache
	PageBytes   int    `json:"page_bytes"`
	Outcome

	// Wanted is the number of chunks of all requests. Each chunk is counted in exactly one of LocalHits (the instance
	// had the chunk), PeerHits (the chunk came from a peer, or was computed for another request meanwhile), and
	// Computed.
	Wanted    int64   `json:"chunks_wanted"`
	LocalHits int64   `json:"chunks_local"`
	PeerHits  int64   `json:"chunks_from_peers"`
	Computed  int64   `json:"chunks_computed"`
	HitRate   float64 `json:"hit_rate"`
	// Misses counts the computed chunks by the reason that no peer delivered them.
	Misses map[string]int64 `json:"misses"`
	Passed int64            `json:"chunks_passed"` // put to the next instance
	// BytesSaved is the size of the chunks that came from peers and so did not have to be computed.
	BytesSaved int64 `json:"bytes_saved"`
	// PeerRequests counts the requests to peers for chunks, by the code with which the request ended. For a killed
	// incarnation, the count is that of its last statistics.
	PeerRequests map[string]uint64 `json:"peers_asked"`
	// WithoutLog is the number of chunks that came from a peer or from the local cache while the log's server was down.
	WithoutLog int `json:"chunks_without_log"`
	// UnderWayAtDeath is the number of pages that peers were reading from the killed instance, or that the killed
	// instance was writing, when the instance was killed.
	UnderWayAtDeath int `json:"pages_under_way_at_death"`
}

// A sharingTally collects the counts of the workers during a replay.
type sharingTally struct {
	countedReport[SharingReport]
	lookup, bring histogram

	requests       int                          // number of requests of the replay
	strikesAllowed bool                         // strikesReady is closed
	strikesReady   chan struct{}                // closed when a peer has delivered chunks, or all requests have ended
	peerRequests   map[string]map[string]uint64 // requests to peers by code, for each incarnation
}

func newSharingTally(all int) *sharingTally {
	t := &sharingTally{requests: all, strikesReady: make(chan struct{}), lookup: newHistogram(), bring: newHistogram(),
		peerRequests: map[string]map[string]uint64{}}
	t.initReport(&t.r.Outcome)
	t.r.Misses, t.r.PeerRequests = map[string]int64{}, map[string]uint64{}
	return t
}

// addServed counts the chunks of a completed request: local hits, peer hits, and computed chunks with the reason.
func (t *sharingTally) addServed(j *job, lookupResp, bringResp *agent.Response, lookup time.Duration) {
	t.lookup.record(lookup)
	t.bring.record(time.Duration(bringResp.MicrosTransfer) * time.Microsecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	local, missing := min(lookupResp.Hits, bringResp.Hits), len(j.keys)-bringResp.Hits
	t.r.Wanted += int64(len(j.keys))
	t.r.LocalHits += int64(local)
	t.r.PeerHits += int64(bringResp.Hits - local)
	t.allowStrikes(t.r.PeerHits > 0)
	if t.r.Computed += int64(missing); missing > 0 {
		t.r.Misses[missReason(lookupResp, bringResp)] += int64(missing)
	}
}

// allowStrikes lets the strikes begin if ready is true. Further calls have no effect.
func (t *sharingTally) allowStrikes(now bool) {
	if now && !t.strikesAllowed {
		t.strikesAllowed = true
		close(t.strikesReady)
	}
}

// missReason returns the reason that chunks had to be computed, given the responses of the lookup and the bring.
func missReason(lookupResp, bringResp *agent.Response) string {
	switch {
	case bringResp.Code != effects.NotFound.String():
		return "bring: " + bringResp.Code
	case lookupResp.Code != effects.OK.String():
		return "lookup: " + lookupResp.Code
	case lookupResp.Elsewhere > bringResp.Hits:
		return "the chunk was evicted after the directory learned of it"
	}
	return "no instance has the chunk"
}

func (t *sharingTally) addPassed(chunks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Passed += int64(chunks)
}

// endRequest counts a request as countedReport does, and allows strikes when the last request has ended.
func (t *sharingTally) endRequest(ok bool) (all, lost int) {
	all, lost = t.countedReport.endRequest(ok)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.allowStrikes(all == t.requests)
	return all, lost
}

// recordPeerRequests records an incarnation's count of requests to peers, which replaces the incarnation's previous
// count.
func (t *sharingTally) recordPeerRequests(s *agent.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peerRequests[s.Incarnation] = s.Brought
}

// recordUnderWay records the number of pages that are in use by transfers at the instance that is about to be killed.
func (t *sharingTally) recordUnderWay(pages int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.UnderWayAtDeath = pages
}

// addWithoutLog adds the chunks of a bring that was made while the log's server was down.
func (t *sharingTally) addWithoutLog(r *agent.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.WithoutLog += r.Hits
}

func (s *sharingPlayer) finishReport(took time.Duration, pinned, unclean []string) *SharingReport {
	t, o := s.tally, s.options
	r := &t.r
	r.Mode, r.Both, r.Trace, r.Plane, r.Instances = o.Mode, o.Ring, o.Trace, o.Plane, instances
	r.Directories, r.Pages, r.PageBytes = o.Directories, o.Pages, o.shape.pageBytes()
	if s.cluster != nil {
		r.Log = s.cluster.logName
	}
	r.BytesSaved = r.PeerHits * int64(r.PageBytes)
	if r.Wanted > 0 {
		r.HitRate = float64(r.LocalHits+r.PeerHits) / float64(r.Wanted)
	}
	for _, life := range t.peerRequests {
		for code, n := range life {
			r.PeerRequests[code] += n
		}
	}
	r.Latency = map[string]Latency{"lookup": t.lookup.percentiles(), "bring": t.bring.percentiles(),
		"request": t.request.percentiles()}
	r.complete(len(o.Requests), took, pinned, unclean)
	r.OK = r.OK && r.PeerHits > 0 && (r.Passed > 0) == r.Both
	return r
}

// Print writes the report as text tables. It returns the first error of writing.
func (r *SharingReport) Print(w io.Writer) error {
	rows := [][2]string{
		{"mode", string(r.Mode)},
		{"nodes", fmt.Sprintf("%d instances, %d directories", r.Instances, r.Directories)},
		{"log of the directories", r.Log},
		{"trace", r.Trace},
		{"data plane", r.Plane},
		{"cache", fmt.Sprintf("%d chunks of %s in each instance", r.Pages, formatMiB(int64(r.PageBytes)))},
		{"requests", fmt.Sprintf("%d: %d completed, %d lost, %d shortened to a quarter of a cache", r.Requests, r.Completed, r.Lost,
			r.Cut)},
		{"chunks wanted", fmt.Sprint(r.Wanted)},
		{"  in the own cache", r.formatPart(r.LocalHits)},
		{"  from peers", r.formatPart(r.PeerHits)},
		{"  computed", r.formatPart(r.Computed)},
		{"hit rate", fmt.Sprintf("%.1f %%", 100*r.HitRate)},
		{"bytes saved", fmt.Sprintf("%s came from peers instead of being computed", formatMiB(r.BytesSaved))},
	}
	for _, why := range slices.Sorted(maps.Keys(r.Misses)) {
		rows = append(rows, [2]string{"computed because", fmt.Sprintf("%d: %s", r.Misses[why], why)})
	}
	if r.Both {
		rows = append(rows, [2]string{"passed", fmt.Sprintf("%d chunks put to the next instance", r.Passed)})
	}
	var asked []string
	for _, code := range slices.Sorted(maps.Keys(r.PeerRequests)) {
		asked = append(asked, fmt.Sprintf("%d × %s", r.PeerRequests[code], code))
	}
	rows = append(rows, [2]string{"requests to peers", joinList(asked)}, r.verifiedRow())
	rows = slices.Concat(rows, r.crashRows(r.formatCrash), r.failureRows())
	return errors.Join(printRows(w, rows), printLatency(w, r.Latency, "lookup", "bring", "request"), printVerdict(w, r.OK))
}

// formatPart returns a count of chunks with its percentage of all wanted chunks.
func (r *SharingReport) formatPart(n int64) string {
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(r.Wanted, 1)))
}

func (r *SharingReport) formatCrash(name string, millis int64) string {
	switch {
	case name == "log":
		return fmt.Sprintf("the log was killed with its data; %d chunks were brought while it was down, and the directories "+
			"had the same content again after %d ms", r.WithoutLog, millis)
	case strings.HasPrefix(name, "instance"):
		return fmt.Sprintf("%s was killed with %d pages in transfer, and its successor served after %d ms", name, r.UnderWayAtDeath, millis)
	}
	return fmt.Sprintf("%s was killed, and its successor knew all instances after %d ms", name, millis)
}
