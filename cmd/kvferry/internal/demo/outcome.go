package demo

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// An Outcome is the part of a report that all kinds of replay have in common. Times are in microseconds.
type Outcome struct {
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Lost      int `json:"lost"` // failed at every attempt
	Cut       int `json:"cut"`  // too long for the pools, and shortened to fit

	BytesVerified int64 `json:"bytes_verified"`
	BytesWrong    int64 `json:"bytes_wrong"`

	Seconds  float64            `json:"seconds"`
	Latency  map[string]Latency `json:"latency_us"`
	Failures map[string]int     `json:"failed_attempts"` // number of failed attempts by cause
	// RestartMillis is the time from a process's kill -9 until its successor served; empty without a crash.
	RestartMillis map[string]int64 `json:"restart_ms"`
	Pinned        []string         `json:"pinned"`  // resources that nodes did not release
	Unclean       []string         `json:"unclean"` // processes that did not end well
	// Renewals is how many times all certificates were renewed during a replay with --secure.
	Renewals int `json:"certificates_renewed,omitempty"`
	// OtherRelease is how many processes were started with another release of kvferry.
	OtherRelease int  `json:"processes_of_other_release,omitempty"`
	OK           bool `json:"ok"`
}

// complete sets the fields that are known at the end of a replay: the duration, the resources that were not released,
// and OK.
func (o *Outcome) complete(requests int, took time.Duration, pinned, unclean []string) {
	o.Requests, o.Seconds = requests, took.Seconds()
	o.Pinned, o.Unclean = append(o.Pinned, pinned...), append(o.Unclean, unclean...)
	o.OK = o.BytesWrong == 0 && o.Lost == 0 && len(o.Pinned) == 0 && len(o.Unclean) == 0
}

// Summary returns the outcome, so that callers can read the common part of any report. The outcome is a part of the
// report and not a copy.
func (o *Outcome) Summary() *Outcome { return o }

// ok reports whether the replay played what it is for and found no defect.
func (o *Outcome) ok() bool { return o.OK }

func (o *Outcome) verifiedRow() [2]string {
	return [2]string{"verified", fmt.Sprintf("%s, of which %d bytes were wrong", formatMiB(o.BytesVerified), o.BytesWrong)}
}

// crashRows returns a row for each killed process. The function text gives the value of a row.
func (o *Outcome) crashRows(text func(name string, millis int64) string) (rows [][2]string) {
	for _, name := range slices.Sorted(maps.Keys(o.RestartMillis)) {
		rows = append(rows, [2]string{"crash", text(name, o.RestartMillis[name])})
	}
	return rows
}

func restartText(name string, millis int64) string {
	return fmt.Sprintf("%s was killed, and its successor served after %d ms", name, millis)
}

// failureRows returns the rows for failed attempts, pinned resources and processes that did not end well.
func (o *Outcome) failureRows() [][2]string {
	rows := [][2]string{{"failed attempts", FormatCounts(o.Failures)}, {"still pinned", joinList(o.Pinned)}}
	if o.Renewals > 0 {
		rows = append(rows, [2]string{"security", fmt.Sprintf("strict; all certificates were renewed %d times", o.Renewals)})
	}
	if o.OtherRelease > 0 {
		rows = append(rows, [2]string{"other release", fmt.Sprintf("run by %d processes", o.OtherRelease)})
	}
	if len(o.Unclean) > 0 {
		rows = append(rows, [2]string{"processes", joinList(o.Unclean)})
	}
	return rows
}

// A Summary is the list of the reports of all modes that were played.
type Summary[R interface{ ok() bool }] struct {
	Modes []R  `json:"modes"`
	OK    bool `json:"ok"` // true if all reports are OK
}

// Add appends a report.
func (s *Summary[R]) Add(r R) {
	s.OK = r.ok() && (s.OK || len(s.Modes) == 0)
	s.Modes = append(s.Modes, r)
}

// A countedReport is a report that workers fill while they play. The field outcome points to the Outcome in r.
type countedReport[R any] struct {
	request histogram

	mu      sync.Mutex
	r       R
	outcome *Outcome // of r
}

// addVerified adds the verified and the wrong bytes of a response.
func (c *countedReport[R]) addVerified(r *agent.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.BytesVerified += r.Bytes
	c.outcome.BytesWrong += r.Wrong
}

// initReport prepares the report for counting. The outcome o must be the Outcome in r.
func (c *countedReport[R]) initReport(o *Outcome) {
	c.request, c.outcome = newHistogram(), o
	// [] in JSON, not null.
	*o = Outcome{Failures: map[string]int{}, RestartMillis: map[string]int64{}, Pinned: []string{}, Unclean: []string{}}
}

func (c *countedReport[R]) addFailure(cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.Failures[cause]++
}

// endRequest counts a request as completed or lost. It returns the number of requests that have ended and the number of
// lost requests.
func (c *countedReport[R]) endRequest(ok bool) (all, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.outcome.Completed++
	} else {
		c.outcome.Lost++
	}
	return c.outcome.Completed + c.outcome.Lost, c.outcome.Lost
}

// addCrash records that a process was killed, and the result of the process's restart.
func (c *countedReport[R]) addCrash(name string, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.RestartMillis[name] = max(1, took.Milliseconds())
	if err != nil {
		c.outcome.Unclean = append(c.outcome.Unclean, err.Error())
	}
}
