package demo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// A RegisteredReport is what a replay with registered blocks did. Times are microseconds.
type RegisteredReport struct {
	Mode     Mode   `json:"mode"`
	Trace    string `json:"trace"`
	Plane    string `json:"transfer_channel"`
	Prefills int    `json:"prefill_tp"`
	Decodes  int    `json:"decode_tp"`

	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Lost      int `json:"lost"` // failed at every attempt
	Cut       int `json:"cut"`  // longer than a quarter of the blocks, played as far as that
	// Attempts that either engine aborted, which were begun again.
	AbortedByPrefill int `json:"aborted_by_prefill"`
	AbortedByDecode  int `json:"aborted_by_decode"`

	Pages         int64 `json:"pages"` // that were written
	BytesVerified int64 `json:"bytes_verified"`
	BytesWrong    int64 `json:"bytes_wrong"`

	Seconds       float64            `json:"seconds"`
	Latency       map[string]Latency `json:"latency_us"`
	Failures      map[string]int     `json:"failed_attempts"`
	RestartMillis map[string]int64   `json:"restart_ms"`
	Pinned        []string           `json:"pinned"`
	Unclean       []string           `json:"unclean"`
	OK            bool               `json:"ok"`
}

// A RegisteredSummary is that report as other modes have theirs.
type RegisteredSummary struct {
	Modes []*RegisteredReport `json:"modes"`
	OK    bool                `json:"ok"`
}

// A registeredTally is what workers count while they play.
type registeredTally struct {
	register, request histogram

	mu sync.Mutex
	r  RegisteredReport
}

func newRegisteredTally() *registeredTally {
	return &registeredTally{register: newHistogram(), request: newHistogram(),
		r: RegisteredReport{Failures: map[string]int{}, RestartMillis: map[string]int64{}, Pinned: []string{},
			Unclean: []string{}}}
}

// received counts what a decode rank says came.
func (t *registeredTally) received(r *agent.Response) {
	if r.Hits > 0 {
		t.register.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Pages += int64(r.Hits)
	t.r.BytesVerified += r.Bytes
	t.r.BytesWrong += r.Wrong
}

func (t *registeredTally) aborted(byPrefill bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if byPrefill {
		t.r.AbortedByPrefill++
	} else {
		t.r.AbortedByDecode++
	}
}

func (t *registeredTally) fail(cause string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Failures[cause]++
}

func (t *registeredTally) ended(ok bool, took time.Duration) {
	t.request.record(took)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok {
		t.r.Completed++
	} else {
		t.r.Lost++
	}
}

// done is how many requests have ended, and how many of them are lost.
func (t *registeredTally) done() (all, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.r.Completed + t.r.Lost, t.r.Lost
}

// crashed notes that a process was killed, and how it came back.
func (t *registeredTally) crashed(name string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.RestartMillis[name] = max(1, took.Milliseconds())
	if err != nil {
		t.r.Unclean = append(t.r.Unclean, err.Error())
	}
}

func (g *registrar) report(took time.Duration, pinned, unclean []string) *RegisteredReport {
	t, o := g.tally, g.options
	r := &t.r
	r.Mode, r.Trace, r.Plane, r.Prefills, r.Decodes = PushReg, o.Trace, o.Plane, o.Prefills, o.Decodes
	r.Requests, r.Seconds = len(o.Requests), took.Seconds()
	r.Latency = map[string]Latency{"register": t.register.percentiles(), "request": t.request.percentiles()}
	r.Pinned, r.Unclean = append(r.Pinned, pinned...), append(r.Unclean, unclean...)
	r.OK = r.BytesWrong == 0 && r.Lost == 0 && r.Pages > 0 && len(r.Pinned) == 0 && len(r.Unclean) == 0
	return r
}

// Print writes the report as tables for people.
func (r *RegisteredReport) Print(w io.Writer) error {
	rows := [][2]string{
		{"mode", string(r.Mode)},
		{"nodes", fmt.Sprintf("prefill: %d ranks, decode: %d; each a process", r.Prefills, r.Decodes)},
		{"trace", r.Trace},
		{"data plane", r.Plane},
		{"requests", fmt.Sprintf("%d: %d completed, %d lost, %d cut to a quarter of the blocks", r.Requests, r.Completed,
			r.Lost, r.Cut)},
		{"aborted and begun again", fmt.Sprintf("%d by the prefill, %d by the decode", r.AbortedByPrefill,
			r.AbortedByDecode)},
		{"written", fmt.Sprintf("%d pages", r.Pages)},
		{"verified", fmt.Sprintf("%s, of which %d bytes were wrong", mib(r.BytesVerified), r.BytesWrong)},
	}
	for _, name := range slices.Sorted(maps.Keys(r.RestartMillis)) {
		rows = append(rows, [2]string{"crash", fmt.Sprintf("%s killed, serving again after %d ms", name,
			r.RestartMillis[name])})
	}
	rows = append(rows, [2]string{"failed attempts", failuresText(r.Failures)},
		[2]string{"still pinned", listText(r.Pinned)})
	if len(r.Unclean) > 0 {
		rows = append(rows, [2]string{"processes", listText(r.Unclean)})
	}
	return errors.Join(printRows(w, rows), printLatency(w, r.Latency, "register", "request"), printVerdict(w, r.OK))
}
