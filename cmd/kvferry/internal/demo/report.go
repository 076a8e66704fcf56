package demo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// A Report is the report of a replay in a push or pull mode. Times are in microseconds.
type Report struct {
	Mode      Mode   `json:"mode"`
	Ring      bool   `json:"ring"`          // each node had both roles
	Recall    bool   `json:"bidirectional"` // each sender first recalled the chunks that its peer still had
	Trace     string `json:"trace"`
	Plane     string `json:"transfer_channel"`
	Shape     string `json:"shape"`
	PageBytes int    `json:"page_bytes"`

	Outcome

	Sent         int64   `json:"chunks_sent"`
	Skipped      int64   `json:"chunks_skipped"` // chunks that the decode node already had
	Hits         int64   `json:"chunks_fetched"`
	Recalled     int64   `json:"chunks_recalled"`
	Saved        int64   `json:"layers_saved"` // layerwise: saved layers, over all steps
	Preempted    int64   `json:"preempted"`    // layerwise: prefills that were preempted and began again
	BytesSent    int64   `json:"bytes_sent"`
	MiBPerSecond float64 `json:"mib_per_second"` // sent bytes per time, which includes making and checking the content

	// LeasedMax is the largest number of pages that a prefill node had leased to peers at one time, out of PrefillPages.
	// In a ring, PrefillPages is the number of pages that a node's engine may have. LeasedMax is 0 if the mode leases no
	// pages.
	LeasedMax    int `json:"leased_pages_max"`
	PrefillPages int `json:"prefill_pages"`
	// StagedMax is the largest number of pages of its pool that a decode node used at one time for fetches. More than
	// StagingPages, which is two batches, would be a defect. Both are 0 if the mode has no fetches.
	StagedMax    int `json:"staged_pages_max"`
	StagingPages int `json:"staging_pages"`
	// Growth says of each node of a soak what it used early and late.
	Growth map[string]*Growth `json:"growth,omitempty"`
	// Strikes counts the strikes of Options.Chaos by name.
	Strikes map[string]int `json:"strikes,omitempty"`
	NPU     *NPUReport     `json:"npu,omitempty"`
}

// Latency holds the percentiles of the duration of one step.
type Latency struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50"`
	P95   int64 `json:"p95"`
	P99   int64 `json:"p99"`
	Max   int64 `json:"max"`
}

// latencyMax is the longest latency that a histogram distinguishes. Longer latencies count as latencyMax.
const latencyMax = 5 * time.Minute

type histogram struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newHistogram() histogram {
	return histogram{h: hdrhistogram.New(1, latencyMax.Microseconds(), 3)}
}

func (h *histogram) record(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.h.RecordValue(min(max(d.Microseconds(), 1), latencyMax.Microseconds())) // In range, so it cannot fail.
}

func (h *histogram) percentiles() Latency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Latency{h.h.TotalCount(), h.h.ValueAtQuantile(50), h.h.ValueAtQuantile(95), h.h.ValueAtQuantile(99), h.h.Max()}
}

// A tally collects the counts of the workers during a replay.
type tally struct {
	countedReport[Report]
	sent, skipped, hits, recalled   atomic.Int64
	saved, preempted, bytesSent     atomic.Int64
	put, get, recall, compute, save histogram // compute and save: only in mode layerwise

	// The maxima over all nodes.
	leasedMax, stagedMax int
	links                map[string]agent.Links // last counts of each incarnation
}

func newTally() *tally {
	t := &tally{put: newHistogram(), get: newHistogram(), recall: newHistogram(), compute: newHistogram(),
		save: newHistogram(), links: map[string]agent.Links{}}
	t.initReport(&t.r.Outcome)
	return t
}

func (t *tally) addStats(s *agent.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stagedMax = max(t.stagedMax, s.StagedMax)
	t.leasedMax = max(t.leasedMax, s.PagesLeasedMax)
	if s.Links != nil {
		t.links[s.Incarnation] = *s.Links
	}
}

func (p *player) finishReport(took time.Duration, pinned, unclean []string, npu *NPUReport) *Report {
	t, s := p.tally, p.options.shape
	r := t.r
	r.Mode, r.Ring, r.Recall = p.options.Mode, p.options.Ring, p.options.Recall
	r.Trace, r.Plane, r.PageBytes, r.NPU = p.options.Trace, p.options.Plane, s.pageBytes(), npu
	r.Shape = fmt.Sprintf("%d layers, %d KV heads of %d bfloat16, chunks of %d tokens", s.layers, s.kvHeads, s.headSize,
		s.chunkTokens)
	r.Sent, r.Skipped, r.Hits, r.Recalled = t.sent.Load(), t.skipped.Load(), t.hits.Load(), t.recalled.Load()
	r.Saved, r.Preempted, r.BytesSent = t.saved.Load(), t.preempted.Load(), t.bytesSent.Load()
	r.MiBPerSecond = float64(r.BytesSent) / (1 << 20) / took.Seconds()
	r.Latency = map[string]Latency{"put": t.put.percentiles(), "get": t.get.percentiles(),
		"request": t.request.percentiles(), "recall": t.recall.percentiles(),
		"compute": t.compute.percentiles(), "save": t.save.percentiles()}
	r.LeasedMax, r.PrefillPages, r.StagedMax = t.leasedMax, s.prefillPages, t.stagedMax
	if p.options.Mode.isDelayed() {
		r.StagingPages = stagingPages
	}
	r.complete(len(p.options.Requests), took, pinned, unclean)
	for _, g := range r.Growth {
		g.complete()
		r.OK = r.OK && g.OK
	}
	r.OK = r.OK && p.options.Soak == (len(r.Growth) > 0)
	r.OK = r.OK && r.Hits > 0 && (r.Recalled > 0) == r.Recall && (r.Saved > 0) == (r.Mode == Layerwise) &&
		r.StagedMax <= r.StagingPages && (npu == nil || npu.OK)
	return &r
}

// Print writes the report as text tables. It returns the first error of writing.
func (r *Report) Print(w io.Writer) error {
	rows := [][2]string{
		{"mode", string(r.Mode)},
		{"nodes", r.formatNodes()},
		{"trace", r.Trace},
		{"data plane", r.Plane},
		{"shape", fmt.Sprintf("%s (%s per chunk)", r.Shape, formatMiB(int64(r.PageBytes)))},
		{"requests", fmt.Sprintf("%d: %d completed, %d lost, %d shortened to fit the pool", r.Requests, r.Completed, r.Lost, r.Cut)},
		{"chunks", fmt.Sprintf("%d sent, %d skipped, %d fetched", r.Sent, r.Skipped, r.Hits)},
		{"bytes", fmt.Sprintf("%s sent in %.1f s: %.0f MiB/s", formatMiB(r.BytesSent), r.Seconds, r.MiBPerSecond)},
		r.verifiedRow(),
	}
	if r.Recall {
		rows = append(rows, [2]string{"recalled", fmt.Sprintf("%d chunks from decode nodes", r.Recalled)})
	}
	if r.Mode == Layerwise {
		rows = append(rows, [2]string{"computed", fmt.Sprintf("%d layers in steps of %d tokens; %d requests were preempted",
			r.Saved, stepTokens, r.Preempted)})
	}
	if r.LeasedMax > 0 {
		rows = append(rows, [2]string{"leased", fmt.Sprintf("at most %d of %d pages at a time", r.LeasedMax, r.PrefillPages)})
	}
	if r.StagingPages > 0 {
		rows = append(rows, [2]string{"staged", fmt.Sprintf("at most %d of %d pages at a time, two batches of %d",
			r.StagedMax, r.StagingPages, r.StagingPages/2)})
	}
	rows = append(rows, r.crashRows(restartText)...)
	rows = append(rows, r.growthRows()...)
	if len(r.Strikes) > 0 {
		rows = append(rows, [2]string{"strikes", FormatCounts(r.Strikes)})
	}
	if r.NPU != nil {
		rows = append(rows, r.NPU.tableRows()...)
	}
	rows = append(rows, r.failureRows()...)
	steps := []string{"put", "get", "request"}
	switch {
	case r.Mode == Layerwise:
		steps = []string{"compute", "save", "put", "get", "request"}
	case r.Recall:
		steps = []string{"put", "get", "recall", "request"}
	}
	return errors.Join(printRows(w, rows), printLatency(w, r.Latency, steps...), printVerdict(w, r.OK))
}

// formatNodes describes the nodes of the replay.
func (r *Report) formatNodes() string {
	if r.Ring {
		return fmt.Sprintf("%d, each is prefill and decode, in a ring", ringNodes)
	}
	return fmt.Sprintf("1 prefill node, %d decode nodes", decodeNodes)
}

func formatMiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func formatMS(micros int64) string { return fmt.Sprintf("%.2f", float64(micros)/1000) }

func joinList(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// FormatCounts returns counts as text, such as "2 × kill, 1 × stop".
func FormatCounts(failures map[string]int) string {
	var all []string
	for _, cause := range slices.Sorted(maps.Keys(failures)) {
		all = append(all, fmt.Sprintf("%d × %s", failures[cause], cause))
	}
	return joinList(all)
}
