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
	countedReport[RegisteredReport]
	register histogram
}

func newRegisteredTally() *registeredTally {
	t := &registeredTally{register: newHistogram()}
	t.initReport(&t.r.Outcome)
	return t
}

// addReceived counts the pages and bytes that a decode rank has verified.
func (t *registeredTally) addReceived(r *agent.Response) {
	if r.Hits > 0 {
		t.register.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
	}
	t.addVerified(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Pages += int64(r.Hits)
}

func (t *registeredTally) addAborted(byPrefill bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if byPrefill {
		t.r.AbortedByPrefill++
	} else {
		t.r.AbortedByDecode++
	}
}

func (g *registeredPlayer) finishReport(took time.Duration, pinned, unclean []string) *RegisteredReport {
	t, o := g.tally, g.options
	r := &t.r
	r.Mode, r.Trace, r.Plane, r.Prefills, r.Decodes = PushReg, o.Trace, o.Plane, o.Prefills, o.Decodes
	r.Latency = map[string]Latency{"register": t.register.percentiles(), "request": t.request.percentiles()}
	r.complete(len(o.Requests), took, pinned, unclean)
	r.OK = r.OK && r.Pages > 0
	return r
}

// Print writes the report as text tables. It returns the first error of writing.
func (r *RegisteredReport) Print(w io.Writer) error {
	rows := [][2]string{
		{"mode", string(r.Mode)},
		{"nodes", fmt.Sprintf("prefill: %d ranks, decode: %d ranks; each rank is a process", r.Prefills, r.Decodes)},
		{"trace", r.Trace},
		{"data plane", r.Plane},
		{"requests", fmt.Sprintf("%d: %d completed, %d lost, %d shortened to a quarter of the blocks", r.Requests, r.Completed,
			r.Lost, r.Cut)},
		{"aborted and played again", fmt.Sprintf("%d by the prefill engine, %d by the decode engine", r.AbortedByPrefill,
			r.AbortedByDecode)},
		{"written", fmt.Sprintf("%d pages", r.Pages)},
		r.verifiedRow(),
	}
	rows = slices.Concat(rows, r.crashRows(restartText), r.failureRows())
	return errors.Join(printRows(w, rows), printLatency(w, r.Latency, "register", "request"), printVerdict(w, r.OK))
}
