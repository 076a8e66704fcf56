package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/nodestory"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/plain"
	"github.com/kvferry/kvferry/runtime/recording"
	"github.com/kvferry/kvferry/sim/report"
)

// recordingFlags are the flags of sim replay that are for recordings of nodes.
type recordingFlags struct {
	file     string
	anyBuild bool
	last     int
	asJSON   bool
	html     string // the file for a page; empty: none
}

// replayRecording replays the recording of a node, prints what it found, and returns errFinding if the machine did not do
// the same again, or if an assertion failed.
func (f *recordingFlags) replayRecording(out io.Writer) error {
	o := recording.ReplayOptions{AnyBuild: f.anyBuild, TraceMax: f.last}
	story := nodestory.New()
	if f.html != "" {
		o.OnStep = story.AddStep
	}
	r, err := recording.Replay(f.file, o)
	if err != nil {
		return usageError{err}
	}
	if f.html != "" {
		if err := report.WriteFile(f.html, story.Finish(r)); err != nil {
			return err
		}
	}
	if f.asJSON {
		err = printJSON(out, r)
	} else {
		_, err = io.WriteString(out, recordingText(r))
	}
	if err == nil && (r.Diverged != nil || r.Broken != "" || r.Failed != "") {
		err = errFinding
	}
	return err
}

// recordingText returns what a replay found, for people.
func recordingText(r *recording.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "node   %s, %s\n", r.Node, r.Role)
	fmt.Fprintf(&b, "build  %v\n", plain.Text(r.Build.String()))
	if len(r.Servers) > 0 {
		fmt.Fprintf(&b, "serves %s\n", strings.Join(r.Servers, ", "))
	}
	if r.Before > 0 {
		fmt.Fprintf(&b, "begins with a checkpoint, after step %d of the node\n", r.Before)
	}
	fmt.Fprintf(&b, "last events and effects:\n")
	for _, line := range r.Trace {
		indent := "  "
		if strings.HasPrefix(line, `{"effect"`) {
			indent = "    "
		}
		fmt.Fprintf(&b, "%s%s\n", indent, line)
	}
	switch d := r.Diverged; {
	case d != nil && d.State != "":
		fmt.Fprintf(&b, "before step %d, %.6f s after the first: %s\n", d.Step, d.Seconds, d.State)
	case r.Broken != "":
		fmt.Fprintf(&b, "an invariant is broken %s\n", r.Broken)
	case d != nil:
		fmt.Fprintf(&b, "step %d, %.6f s after the first, has other effects than the recording:\n", d.Step, d.Seconds)
		fmt.Fprintf(&b, "  event     %s\n", d.Event)
		fmt.Fprintf(&b, "  recorded  %d effects: %s\n", len(d.Recorded), strings.Join(d.Recorded, ", "))
		fmt.Fprintf(&b, "  replayed  %d effects:\n", len(d.Replayed))
		for _, line := range d.Replayed {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		if d.Panicked != "" {
			fmt.Fprintf(&b, "    and an assertion failed: %s\n", d.Panicked)
		}
		fmt.Fprintf(&b, "the %d steps before had the same effects\n", r.Steps)
	case r.Failed != "":
		fmt.Fprintf(&b, "%d steps, %d effects, %.6f seconds: the same effects, and then an assertion failed in the last step: %s\n",
			r.Steps, r.Effects, r.Seconds, r.Failed)
	default:
		fmt.Fprintf(&b, "the recording ends: %s\n", r.End)
		fmt.Fprintf(&b, "%d steps, %d effects, %.6f seconds: the same effects\n", r.Steps, r.Effects, r.Seconds)
	}
	return b.String()
}
