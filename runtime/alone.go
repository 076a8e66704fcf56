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

// FailAlone is how a rank fails alone; see WithFailAlone. Zero fields take the defaults.
type FailAlone struct {
	// Reports is the directory to which a failure is reported, made if it is not there; empty: no report is written.
	// Several ranks and processes may share it.
	Reports string
	Keep    int // the most reports in it: older ones are removed; 8
	Events  int // events and effects that are remembered for a report, 56 bytes each; 1024
}

// WithFailAlone contains an assertion that fails in this rank's machine, or in what its loop does for the machine.
// Without it that is a panic and ends the process: the engine, and every rank in it. That is the default, because an
// end of the process is what peers, hardware and whoever runs the process are sure to notice, and because what is
// contained keeps its memory.
//
// With it the rank does nothing any more, from the failed step on:
//
//   - every command in progress ends as Failed, and every later call at once;
//   - its sockets and planes are closed, so peers see a peer that is lost; nobody stores into its pages or reads them
//     any more;
//   - its pages are given to nobody and stay mapped until the process ends, whatever is closed: slices of Pages.Host
//     stay valid;
//   - a report is written, one line of the log names it, and Node.Failed and Node.Err tell it.
//
// Nothing else in the process is touched, other ranks and the engine among it. End the process when they can spare
// it, or call Close and open another node in the rank's place, for which there must be memory besides.
//
// Not contained are panics outside of the loop: those of threads that move pages and messages, which may be in the
// middle of a page or hold a lock, those of the engine's own code, and what Go itself cannot recover from, such as
// running out of memory or a fault in a mapping.
func WithFailAlone(f FailAlone) Option { return func(o *options) { o.alone = &f } }

// complete checks it and fills in the defaults.
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

// A Failure is how a rank failed.
type Failure struct {
	Node        string // as logs name it
	Said        string // by the assertion
	Where       string // function and line
	Report      string // the file; empty: there is none
	NotReported error  // why there is none, if one was wanted
}

func (f *Failure) Error() string {
	s := fmt.Sprintf("rank %s failed at %s: %s", f.Node, f.Where, f.Said)
	if f.Report != "" {
		s += "; report " + f.Report
	} else if f.NotReported != nil {
		s += fmt.Sprintf("; no report: %v", f.NotReported)
	}
	return s
}

// Unwrap returns why there is no report.
func (f *Failure) Unwrap() error { return f.NotReported }

// Failed is closed when the rank has failed alone (WithFailAlone) and its report was written, or could not be.
// Commands have ended by then.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err is the *Failure of a rank that has failed alone, once Failed is closed; nil before.
func (n *Node) Err() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
}

// reportPatience is how long a failure waits for its report to be written.
const reportPatience = 5 * time.Second

// fail ends a rank whose loop has panicked, on the loop's goroutine: nothing steps the machine any more.
func (n *Node) fail(said any, stack []string) {
	// Nobody is to wait, whatever takes long below.
	n.loop.mailbox.close()
	n.tickets.fall()
	go func() {
		n.beginning <- struct{}{} // A Close may have it; its drain has ended as well.
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

// report writes the report of a failure, in time. What hangs goes on by itself: the machine is nobody's any more.
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

// countsOf are the counts of a machine whose state is wrong; nil if it cannot count any more.
func (n *Node) countsOf() (counts any) {
	defer func() {
		if recover() != nil {
			counts = nil
		}
	}()
	return n.machine.Stats()
}

// whereOf is the place of an assertion, given the stack of who recovered from it: the first one outside of Go's own
// code below its panic.
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
