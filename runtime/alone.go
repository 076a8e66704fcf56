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

// FailAlone configures how the failure of a rank is contained, so that the process continues; see WithFailAlone. Zero
// fields take the defaults.
type FailAlone struct {
	// Reports is the directory into which the report of a failure is written. The directory is created if it does not
	// exist. If the name is empty, no report is written. Several ranks and processes may share a directory.
	Reports string
	// Keep is the maximum number of reports in the directory; older reports are removed. The default is 8.
	Keep int
	// Events is the number of events and effects that are recorded for a report, at 56 bytes each. The default is
	// 1024.
	Events int
}

// WithFailAlone contains an assertion that fails in this rank's machine, or in the work that the rank's loop does for
// the machine. Without this option a failed assertion is a panic that ends the process, with the engine and every
// rank. A panic is the default because peers, hardware and the supervisor of the process are sure to notice the end of
// a process, and because a contained rank keeps the memory.
//
// With this option, the rank does nothing any more from the failed step on:
//
//   - Every command in progress ends as Failed, and every later call fails at once.
//   - The rank's sockets and planes are closed, so peers see a lost peer. From then on no peer stores into the rank's
//     pages or reads the pages.
//   - The rank's pages are granted to no peer or caller, and stay mapped until the process ends, even if the node is
//     closed. Slices of Pages.Host stay valid.
//   - A report is written, a line of the log names the report, and Node.Failed and Node.Err report the failure.
//
// Nothing else in the process is affected; the remaining ranks and the engine continue. End the process when the
// engine can be interrupted, or call Close and open another node in the rank's place, which needs additional memory
// for a pool.
//
// Panics outside of the loop are not contained: panics of goroutines that move pages and messages (which may be in the
// middle of a page or hold a lock), panics of the engine's own code, and failures from which Go itself cannot recover,
// for example running out of memory or a fault in a mapping.
func WithFailAlone(f FailAlone) Option { return func(o *options) { o.alone = &f } }

// complete checks the options, creates the directory of the reports, and fills in the defaults.
func (f FailAlone) complete() (FailAlone, error) {
	if f.Keep < 0 || f.Events < 0 || f.Events > 1<<20 {
		return f, invalid("open", "WithFailAlone keeps %d reports of %d events; give positive numbers, events to %d",
			f.Keep, f.Events, 1<<20)
	}
	f.Keep, f.Events = cmp.Or(f.Keep, 8), cmp.Or(f.Events, 1024)
	if f.Reports == "" {
		return f, nil
	}
	if err := os.MkdirAll(f.Reports, 0o700); err != nil {
		return f, &Error{Op: "open", Code: effects.Invalid, Cause: err,
			Remedy: "reports of a rank that fails alone find no directory; name one that can be made"}
	}
	return f, nil
}

// A Failure describes how a rank failed. Node.Err returns a Failure as its error.
type Failure struct {
	Node   string // the node's name in logs
	Said   string // the text of the assertion
	Where  string // the function and line of the assertion
	Report string // the path of the report; empty if there is none
	// NotReported is the reason why the report could not be written, or nil if the report was written or not wanted.
	NotReported error
}

// Error returns the failure and the place of the report in one line.
func (f *Failure) Error() string {
	s := fmt.Sprintf("rank %s failed at %s: %s", f.Node, f.Where, f.Said)
	if f.Report != "" {
		s += "; report " + f.Report
	} else if f.NotReported != nil {
		s += fmt.Sprintf("; no report: %v", f.NotReported)
	}
	return s
}

// Unwrap returns the error that prevented the report from being written, or nil.
func (f *Failure) Unwrap() error { return f.NotReported }

// Failed returns a channel that is closed when the rank has failed alone (see WithFailAlone) and its report has been
// written or could not be written. All commands have ended by then.
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

// reportPatience is the time that a failing rank waits for the report to be written.
const reportPatience = 5 * time.Second

// fail ends a rank after a panic of the loop. The function runs on the loop's goroutine; nothing steps the machine any
// more.
func (n *Node) fail(said any, stack []string) {
	// End all waiting first, because the work below may take a long time.
	n.loop.mailbox.close()
	n.tickets.fall()
	go func() {
		// A Close may hold the token; the drain of that Close has ended as well.
		n.beginning <- struct{}{}
		defer func() { <-n.beginning }()
		if n.closing == nil {
			n.closing = n.take()
		}
	}()
	id := n.machine.Incarnation()
	f := &Failure{Node: fmt.Sprintf("%x", id[:4]), Said: fmt.Sprint(said), Where: whereOf(stack)}
	if n.alone.Reports != "" {
		f.Report, f.NotReported = n.report(f, stack)
	}
	n.log.Error("this rank has failed and does nothing any more; other ranks go on. Its pages are given to nobody "+
		"until the process ends: end it when it can be spared",
		"said", f.Said, "at", f.Where, "report", f.Report, "not_reported", f.NotReported)
	n.failure = f
	close(n.failed)
}

// report writes the report of a failure and waits for at most reportPatience. A write that hangs continues in the
// background, which is safe because nothing else uses the machine any more.
func (n *Node) report(f *Failure, stack []string) (name string, err error) {
	type end struct {
		name string
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		c := postmortem.Case{
			Node: n.machine.Incarnation(), Said: f.Said, Stack: stack,
			Event: n.loop.event, Effects: &n.loop.out, Carried: n.loop.carried,
			Stats: n.countsOf(), Machine: n.machine, Trace: n.loop.trace,
		}
		name, err := postmortem.Write(n.alone.Reports, n.alone.Keep, time.Now(), &c)
		ended <- end{name, err}
	}()
	late := time.NewTimer(reportPatience)
	defer late.Stop()
	select {
	case e := <-ended:
		return e.name, e.err
	case <-late.C:
		return "", fmt.Errorf("%s took longer than %v", n.alone.Reports, reportPatience)
	}
}

// countsOf returns the counters of a machine in a wrong state, or nil if the machine panics again.
func (n *Node) countsOf() (counts any) {
	defer func() {
		if recover() != nil {
			counts = nil
		}
	}()
	return n.machine.Stats()
}

// whereOf returns the location of an assertion, given the stack of the goroutine that recovered from the panic: the
// first frame below the panic that is not in Go's own runtime.
func whereOf(stack []string) string {
	panicked := false
	for _, at := range stack {
		goes := strings.HasPrefix(at, "runtime.")
		if panicked && !goes {
			return at
		}
		panicked = panicked || strings.HasPrefix(at, "runtime.gopanic ") || strings.HasPrefix(at, "runtime.panic")
	}
	return "an unknown place"
}
