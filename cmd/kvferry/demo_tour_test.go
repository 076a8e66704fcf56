package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// playRuns plays some runs as the tour does and returns the output.
func playRuns(t *testing.T, runs []tourRun, asJSON bool) (string, error) {
	t.Helper()
	o := demo.Options{Concurrency: 4, Layers: 1}
	var err error
	if o.Trace, o.Requests, err = readTrace("", 16); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	cmd := newDemoCommand()
	cmd.SetContext(context.Background())
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	o.Log = &stderr
	err = playTour(cmd, runs, o, asJSON)
	if err != nil && !errors.Is(err, errFinding) {
		t.Fatalf("%v\n%s%s", err, &out, &stderr)
	}
	return out.String(), err
}

// pick returns the runs of the tour with these names.
func pick(t *testing.T, names ...string) []tourRun {
	t.Helper()
	runs := slices.DeleteFunc(tourRuns(), func(r tourRun) bool { return !slices.Contains(names, r.name) })
	if len(runs) != len(names) {
		t.Fatalf("the tour has %d runs of %v", len(runs), names)
	}
	return runs
}

// The tour prints a line for each run, and a last line with the verdict.
func TestTour(t *testing.T) {
	out, err := playRuns(t, pick(t, "push, ring, recalled", "push-reg, tcp, 1 to 2 ranks", "p2p-push"), false)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 6 { // a head, a line for each run, an empty line and the verdict
		t.Errorf("%v, and %d lines, want 6:\n%s", err, len(lines), out)
	}
	for _, want := range []string{"push, ring, recalled            16 of 16", "\n3 runs in ",
		"every byte is correct, and no page is pinned or leased"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// With --json the tour prints one document, with a report for each run.
func TestTourInJSON(t *testing.T) {
	out, err := playRuns(t, pick(t, "push-reg, auto, 2 to 1 ranks"), true)
	var all struct {
		OK   bool                    `json:"ok"`
		Runs map[string]demo.Outcome `json:"runs"`
	}
	if bad := json.Unmarshal([]byte(out), &all); bad != nil || err != nil || !all.OK ||
		all.Runs["push-reg, auto, 2 to 1 ranks"].Completed != 16 {
		t.Errorf("%v, %v:\n%s", err, bad, out)
	}
}

type wrongReport struct{ demo.Outcome }

func (*wrongReport) Print(w io.Writer) error {
	_, err := fmt.Fprintln(w, "the whole report")
	return err
}

// If a run fails, its full report is printed, and the tour fails.
func TestTourWithFailedRun(t *testing.T) {
	wrong := tourRun{name: "wrong", play: func(context.Context, *demo.Options) (tourReport, error) {
		return &wrongReport{demo.Outcome{BytesWrong: 7}}, nil
	}}
	out, err := playRuns(t, append([]tourRun{wrong}, pick(t, "push-reg, auto, 2 to 1 ranks")...), false)
	if !errors.Is(err, errFinding) || !strings.Contains(out, "the whole report") ||
		!strings.Contains(out, "THE REPLAY FAILED") {
		t.Errorf("%v, want %v, the whole report and a verdict:\n%s", err, errFinding, out)
	}
}

// The runs of the tour have different names.
func TestRunsOfTheTour(t *testing.T) {
	names := map[string]bool{}
	for _, r := range tourRuns() {
		if names[r.name] {
			t.Errorf("two runs are called %q", r.name)
		}
		names[r.name] = true
	}
	modes, _, err := demo.ParseModes("all")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modes {
		if !names[string(m)] {
			t.Errorf("the tour does not play %s", m)
		}
	}
}

// A flag whose value the tour varies is refused by name.
func TestTourRefusesFlags(t *testing.T) {
	for _, args := range [][]string{{"--mode", "push"}, {"--plane", "tcp"}, {"--decode-tp", "4"}, {"--bidirectional"}} {
		var out, stderr bytes.Buffer
		code := run(context.Background(), append([]string{"demo", "--tour"}, args...), strings.NewReader(""), &out, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), args[0]+" is ") {
			t.Errorf("%v: exit code %d, want %d and the flag's name:\n%s", args, code, exitUsage, &stderr)
		}
	}
}
