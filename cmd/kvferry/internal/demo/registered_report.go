package demo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// A RegisteredReport is the report of a replay with registered blocks. Times are in microseconds.
type RegisteredReport struct {
	Mode     Mode   `json:"mode"`
	Trace    string `json:"trace"`
	Plane    string `json:"transfer_channel"`
	Prefills int    `json:"prefill_tp"`
	Decodes  int    `json:"decode_tp"`
	Outcome
	// The numbers of attempts that an engine aborted on purpose. The requests were played again.
	AbortedByPrefill int `json:"aborted_by_prefill"`
	AbortedByDecode  int `json:"aborted_by_decode"`

	Pages int64 `json:"pages"` // number of pages that were written
}

// A registeredTally collects the counts of the workers during a replay.
type registeredTally struct {
	counted[RegisteredReport]
	register histogram
}

func newRegisteredTally() *registeredTally {
	t := &registeredTally{register: newHistogram()}
	t.begin(&t.r.Outcome)
	return t
}

// addReceived counts the pages and bytes that a decode rank has verified.
func (t *registeredTally) received(r *agent.Response) {
	if r.Hits > 0 {
		t.register.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
	}
	t.verified(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Pages += int64(r.Hits)
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

func (g *registrar) report(took time.Duration, pinned, unclean []string) *RegisteredReport {
	t, o := g.tally, g.options
	r := &t.r
	r.Mode, r.Trace, r.Plane, r.Prefills, r.Decodes = PushReg, o.Trace, o.Plane, o.Prefills, o.Decodes
	r.Latency = map[string]Latency{"register": t.register.percentiles(), "request": t.request.percentiles()}
	r.ended(len(o.Requests), took, pinned, unclean)
	r.OK = r.OK && r.Pages > 0
	return r
}

// Print writes the report as text tables. It returns the first error of writing.
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
		r.verified(),
	}
	rows = slices.Concat(rows, r.crashes(served), r.failed())
	return errors.Join(printRows(w, rows), printLatency(w, r.Latency, "register", "request"), printVerdict(w, r.OK))
}
