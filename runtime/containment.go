package runtime

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
)

// FailureContainment configures how the failure of a rank is contained, so that the process continues; see
// WithFailureContainment. Zero fields take the defaults.
type FailureContainment struct {
	// ReportDir is the directory into which the report of a failure is written. The directory is created if it does not
	// exist. If the name is empty, no report is written. Several ranks and processes may share a directory.
	ReportDir string
	// ReportsMax is the maximum number of reports in the directory; older reports are removed. The default is 8.
	ReportsMax int
	// TraceEvents is the number of events and effects that are recorded for a report, at 56 bytes each. The default is
	// 1024.
	TraceEvents int
}

// WithFailureContainment contains an assertion that fails in this rank's machine, or in the work that the rank's loop
// does for the machine. Without this option a failed assertion is a panic that ends the process, with the engine and
// every rank. A panic is the default because peers, hardware and the supervisor of the process are sure to notice the
// end of a process, and because a contained rank keeps the memory.
//
// With this option, the rank does nothing any more from the failed step on:
//
//   - Every command in progress ends as Failed, and every later call fails at once.
//   - The rank's sockets and planes are closed, so peers see a lost peer. From then on no peer stores into the rank's
//     pages or reads the pages.
//   - The rank's pages are granted to no peer or caller, and stay mapped until the process ends, even if the node is
//     closed. Slices of Pages.Bytes stay valid.
//   - A report is written, a line of the log names the report, and Node.Failed and Node.Err report the failure.
//
// Nothing else in the process is affected; the remaining ranks and the engine continue. End the process when the
// engine can be interrupted, or call Close and open another node in the rank's place, which needs additional memory
// for a pool.
//
// Panics outside of the loop are not contained: panics of goroutines that move pages and messages (which may be in the
// middle of a page or hold a lock), panics of the engine's own code, and failures from which Go itself cannot recover,
// for example running out of memory or a fault in a mapping.
func WithFailureContainment(f FailureContainment) Option {
	return func(o *options) { o.containment = &f }
}

// withDefaults checks the options, creates the directory of the reports, and fills in the defaults.
func (f FailureContainment) withDefaults() (FailureContainment, error) {
	if f.ReportsMax < 0 || f.TraceEvents < 0 || f.TraceEvents > 1<<20 {
		return f, invalidError("open", "WithFailureContainment has ReportsMax %d and TraceEvents %d; use positive numbers, "+
			"and at most %d events",
			f.ReportsMax, f.TraceEvents, 1<<20)
	}
	f.ReportsMax, f.TraceEvents = cmp.Or(f.ReportsMax, 8), cmp.Or(f.TraceEvents, 1024)
	if f.ReportDir == "" {
		return f, nil
	}
	if err := os.MkdirAll(f.ReportDir, 0o700); err != nil {
		return f, &Error{Op: "open", Code: effects.Invalid, Cause: err,
			Remedy: "the directory for failure reports cannot be created; give a path that can be created"}
	}
	return f, nil
}

// A Failure describes how a rank failed. Node.Err returns a Failure as its error.
type Failure struct {
	Node     string // the node's name in logs
	Message  string // the text of the assertion
	Location string // the function and line of the assertion
	Report   string // the path of the report; empty if there is none
	// ReportErr is the reason why the report could not be written, or nil if the report was written or not wanted.
	ReportErr error
}

// Error returns the failure and the place of the report in one line.
func (f *Failure) Error() string {
	s := fmt.Sprintf("rank %s failed at %s: %s", f.Node, f.Location, f.Message)
	if f.Report != "" {
		s += "; report " + f.Report
	} else if f.ReportErr != nil {
		s += fmt.Sprintf("; no report: %v", f.ReportErr)
	}
	return s
}

// Unwrap returns the error that prevented the report from being written, or nil.
func (f *Failure) Unwrap() error { return f.ReportErr }

// Failed returns a channel that is closed when the rank has failed alone (see WithFailureContainment) and its report
// has been written or could not be written. All commands have ended by then.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err returns the *Failure of a rank that has failed alone, once the channel of Failed is closed, and nil before.
func (n *Node) Err() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
}

// reportTimeout is the time that a failing rank waits for the report to be written.
const reportTimeout = 5 * time.Second

// containFailure ends a rank after a panic of the loop. The function runs on the loop's goroutine; nothing steps the
// machine any more.
func (n *Node) containFailure(value any, stack []string) {
	// End all waiting first, because the work below may take a long time.
	n.loop.mailbox.close()
	n.tickets.failAll()
	go func() {
		// A Close may hold the token; the drain of that Close has ended as well.
		n.closeToken <- struct{}{}
		defer func() { <-n.closeToken }()
		if n.shutdown == nil {
			n.shutdown = n.startShutdown()
		}
	}()
	id := n.machine.Incarnation()
	f := &Failure{Node: fmt.Sprintf("%x", id[:4]), Message: fmt.Sprint(value), Location: panicLocation(stack)}
	if n.containment.ReportDir != "" {
		f.Report, f.ReportErr = n.writeReport(f, stack)
	}
	n.log.Error("this rank has failed and has stopped; other ranks continue. Its pages stay reserved until the process ends: "+
		"restart the process when possible",
		"message", f.Message, "at", f.Location, "report", f.Report, "not_reported", f.ReportErr)
	n.failure = f
	close(n.failed)
}

// writeReport writes the report of a failure and waits for at most reportTimeout. A write that hangs continues in the
// background, which is safe because nothing else uses the machine any more.
func (n *Node) writeReport(f *Failure, stack []string) (name string, err error) {
	type end struct {
		name string
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		c := postmortem.Failure{
			Node: n.machine.Incarnation(), Message: f.Message, Stack: stack,
			Event: n.loop.event, Effects: &n.loop.out, CarriedOut: n.loop.carriedOut,
			Stats: n.tryStats(), Machine: n.machine, Trace: n.loop.trace,
		}
		name, err := postmortem.WriteReport(n.containment.ReportDir, n.containment.ReportsMax, time.Now(), &c)
		ended <- end{name, err}
	}()
	late := time.NewTimer(reportTimeout)
	defer late.Stop()
	select {
	case e := <-ended:
		return e.name, e.err
	case <-late.C:
		return "", fmt.Errorf("%s took longer than %v", n.containment.ReportDir, reportTimeout)
	}
}

// tryStats returns the counters of a machine in a wrong state, or nil if the machine panics again.
func (n *Node) tryStats() (counts any) {
	defer func() {
		if recover() != nil {
			counts = nil
		}
	}()
	return n.machine.Stats()
}

// panicLocation returns the location of an assertion, given the stack of the goroutine that recovered from the panic:
// the first frame below the panic that is not in Go's own runtime.
func panicLocation(stack []string) string {
	panicked := false
	for _, at := range stack {
		inRuntime := strings.HasPrefix(at, "runtime.")
		if panicked && !inRuntime {
			return at
		}
		panicked = panicked || strings.HasPrefix(at, "runtime.gopanic ") || strings.HasPrefix(at, "runtime.panic")
	}
	return "an unknown location"
}
