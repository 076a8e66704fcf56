package demo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// A SharedReport is what a replay by nodes that share did. Times are microseconds.
type SharedReport struct {
	Mode        Mode   `json:"mode"`
	Both        bool   `json:"both"` // each instance put what it had to the next one as well
	Trace       string `json:"trace"`
	Plane       string `json:"transfer_channel"`
	Instances   int    `json:"instances"`
	Directories int    `json:"directories"`
	Log         string `json:"log"`   // the server that keeps the directories' log, or why there is none
	Pages       int    `json:"pages"` // of each instance's cache
	PageBytes   int    `json:"page_bytes"`

	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Lost      int `json:"lost"` // failed at every attempt
	Cut       int `json:"cut"`  // longer than a quarter of a cache, played as far as that

	// Chunks that requests wanted, each counted as one of three: its instance had it, it came from a peer (or was computed
	// for another request meanwhile), or it was computed.
	Wanted    int64   `json:"chunks_wanted"`
	LocalHits int64   `json:"chunks_local"`
	PeerHits  int64   `json:"chunks_from_peers"`
	Computed  int64   `json:"chunks_computed"`
	HitRate   float64 `json:"hit_rate"`
	// Misses are the chunks that were computed, by why they did not come from a peer.
	Misses map[string]int64 `json:"misses"`
	Passed int64            `json:"chunks_passed"` // put to the next instance
	// BytesSaved were brought, and would have been computed.
	BytesSaved    int64 `json:"bytes_saved"`
	BytesVerified int64 `json:"bytes_verified"`
	BytesWrong    int64 `json:"bytes_wrong"`

	Seconds float64            `json:"seconds"`
	Latency map[string]Latency `json:"latency_us"`
	// Asked is how often one peer was asked for chunks, by how that ended; of those that were killed, as far as they told.
	Asked         map[string]uint64 `json:"peers_asked"`
	Failures      map[string]int    `json:"failed_attempts"`
	RestartMillis map[string]int64  `json:"restart_ms"`
	// WithoutLog is how many chunks came from a peer or the own cache while the log was dead.
	WithoutLog int `json:"chunks_without_log"`
	// UnderWayAtDeath is how many pages of the instance that was killed others were reading, or it was writing, then.
	UnderWayAtDeath int      `json:"pages_under_way_at_death"`
	Pinned          []string `json:"pinned"`
	Unclean         []string `json:"unclean"`
	OK              bool     `json:"ok"`
}

// A SharedSummary is the reports of all modes that were played.
type SharedSummary struct {
	Modes []*SharedReport `json:"modes"`
	OK    bool            `json:"ok"` // of all of them
}

// Add takes one more report.
func (s *SharedSummary) Add(r *SharedReport) {
	s.OK = r.OK && (s.OK || len(s.Modes) == 0)
	s.Modes = append(s.Modes, r)
}

// A sharedTally is what workers count while they play.
type sharedTally struct {
	lookup, bring, request histogram

	mu    sync.Mutex
	r     SharedReport
	cut   int
	all   int                          // requests
	begun bool                         // may is closed
	may   chan struct{}                // closed when a peer's chunks have come, or all requests have ended
	lives map[string]map[string]uint64 // how peers were asked, by incarnation
}

func newSharedTally(all int) *sharedTally {
	return &sharedTally{all: all, may: make(chan struct{}), lookup: newHistogram(), bring: newHistogram(),
		request: newHistogram(),
		r: SharedReport{Misses: map[string]int64{}, Asked: map[string]uint64{}, Failures: map[string]int{},
			RestartMillis: map[string]int64{}, Pinned: []string{}, Unclean: []string{}},
		lives: map[string]map[string]uint64{}}
}

// verified counts what an answer says was looked at.
func (t *sharedTally) verified(r *agent.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.BytesVerified += r.Bytes
	t.r.BytesWrong += r.Wrong
}

// served counts what became of a request's chunks.
func (t *sharedTally) served(j *job, looked, got *agent.Response, lookup time.Duration) {
	t.lookup.record(lookup)
	t.bring.record(time.Duration(got.MicrosTransfer) * time.Microsecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	local, missing := min(looked.Hits, got.Hits), len(j.keys)-got.Hits
	t.r.Wanted += int64(len(j.keys))
	t.r.LocalHits += int64(local)
	t.r.PeerHits += int64(got.Hits - local)
	t.begin(t.r.PeerHits > 0)
	if t.r.Computed += int64(missing); missing > 0 {
		t.r.Misses[whyMissing(looked, got)] += int64(missing)
	}
}

// begin lets strikes begin.
func (t *sharedTally) begin(now bool) {
	if now && !t.begun {
		t.begun = true
		close(t.may)
	}
}

// whyMissing says why chunks had to be computed.
func whyMissing(looked, got *agent.Response) string {
	switch {
	case got.Code != effects.NotFound.String():
		return "bring: " + got.Code
	case looked.Code != effects.OK.String():
		return "lookup: " + looked.Code
	case looked.Elsewhere > got.Hits:
		return "gone since a directory heard of it"
	}
	return "nobody has it"
}

func (t *sharedTally) passed(chunks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Passed += int64(chunks)
}

func (t *sharedTally) fail(cause string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Failures[cause]++
}

func (t *sharedTally) ended(ok bool, took time.Duration) {
	t.request.record(took)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok {
		t.r.Completed++
	} else {
		t.r.Lost++
	}
	t.begin(t.r.Completed+t.r.Lost == t.all)
}

// done is how many requests have ended, and how many of them are lost.
func (t *sharedTally) done() (all, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.r.Completed + t.r.Lost, t.r.Lost
}

// asked notes what a life of an instance says of how peers were asked.
func (t *sharedTally) asked(s *agent.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lives[s.Incarnation] = s.Brought
}

// crashing notes how much is lent of who will be killed.
func (t *sharedTally) crashing(pages int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.UnderWayAtDeath = pages
}

// alone counts what came while there was no log.
func (t *sharedTally) alone(r *agent.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.WithoutLog += r.Hits
}

// crashed notes that a process was killed, and how it came back.
func (t *sharedTally) crashed(name string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.RestartMillis[name] = max(1, took.Milliseconds())
	if err != nil {
		t.r.Unclean = append(t.r.Unclean, err.Error())
	}
}

func (s *sharer) report(took time.Duration, pinned, unclean []string) *SharedReport {
	t, o := s.tally, s.options
	r := &t.r
	r.Mode, r.Both, r.Trace, r.Plane, r.Instances = o.Mode, o.Ring, o.Trace, o.Plane, instances
	r.Directories, r.Pages, r.PageBytes = o.Directories, o.Pages, o.shape.pageBytes()
	if s.town != nil {
		r.Log = s.town.logBy
	}
	r.Requests, r.Cut, r.Seconds = len(o.Requests), t.cut, took.Seconds()
	r.BytesSaved = r.PeerHits * int64(r.PageBytes)
	if r.Wanted > 0 {
		r.HitRate = float64(r.LocalHits+r.PeerHits) / float64(r.Wanted)
	}
	for _, life := range t.lives {
		for code, n := range life {
			r.Asked[code] += n
		}
	}
	r.Latency = map[string]Latency{"lookup": t.lookup.percentiles(), "bring": t.bring.percentiles(),
		"request": t.request.percentiles()}
	r.Pinned, r.Unclean = append(r.Pinned, pinned...), append(r.Unclean, unclean...)
	r.OK = r.BytesWrong == 0 && r.Lost == 0 && r.PeerHits > 0 && (r.Passed > 0) == r.Both && len(r.Pinned) == 0 &&
		len(r.Unclean) == 0
	return r
}

// Print writes the report as tables for people.
func (r *SharedReport) Print(w io.Writer) error {
	rows := [][2]string{
		{"mode", string(r.Mode)},
		{"nodes", fmt.Sprintf("%d instances; directories: %d", r.Instances, r.Directories)},
		{"their log", r.Log},
		{"trace", r.Trace},
		{"data plane", r.Plane},
		{"cache", fmt.Sprintf("%d chunks of %s at each instance", r.Pages, mib(int64(r.PageBytes)))},
		{"requests", fmt.Sprintf("%d: %d completed, %d lost, %d cut to a quarter of a cache", r.Requests, r.Completed, r.Lost,
			r.Cut)},
		{"chunks wanted", fmt.Sprint(r.Wanted)},
		{"  local hits", r.part(r.LocalHits)},
		{"  peer hits", r.part(r.PeerHits)},
		{"  computed", r.part(r.Computed)},
		{"hit rate", fmt.Sprintf("%.1f %%", 100*r.HitRate)},
		{"bytes saved", fmt.Sprintf("%s came from peers and were not computed", mib(r.BytesSaved))},
	}
	for _, why := range slices.Sorted(maps.Keys(r.Misses)) {
		rows = append(rows, [2]string{"computed, for", fmt.Sprintf("%d: %s", r.Misses[why], why)})
	}
	if r.Both {
		rows = append(rows, [2]string{"passed", fmt.Sprintf("%d chunks put to the next instance", r.Passed)})
	}
	var asked []string
	for _, code := range slices.Sorted(maps.Keys(r.Asked)) {
		asked = append(asked, fmt.Sprintf("%d × %s", r.Asked[code], code))
	}
	rows = append(rows, [2]string{"peers asked", listText(asked)},
		[2]string{"verified", fmt.Sprintf("%s, of which %d bytes were wrong", mib(r.BytesVerified), r.BytesWrong)})
	for _, name := range slices.Sorted(maps.Keys(r.RestartMillis)) {
		text := fmt.Sprintf("%s killed, told again of all instances after %d ms", name, r.RestartMillis[name])
		if strings.HasPrefix(name, "instance") {
			text = fmt.Sprintf("%s killed with %d pages under way, serving again after %d ms", name, r.UnderWayAtDeath,
				r.RestartMillis[name])
		}
		if name == "log" {
			text = fmt.Sprintf("the log killed with all that it kept; %d chunks came while it was dead, and directories told "+
				"each other again after %d ms", r.WithoutLog, r.RestartMillis[name])
		}
		rows = append(rows, [2]string{"crash", text})
	}
	rows = append(rows, [2]string{"failed attempts", failuresText(r.Failures)},
		[2]string{"still pinned", listText(r.Pinned)})
	if len(r.Unclean) > 0 {
		rows = append(rows, [2]string{"processes", listText(r.Unclean)})
	}
	return errors.Join(printRows(w, rows), printLatency(w, r.Latency, "lookup", "bring", "request"), printVerdict(w, r.OK))
}

// part is a count of chunks, and its part of those that were wanted.
func (r *SharedReport) part(n int64) string {
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(r.Wanted, 1)))
}
