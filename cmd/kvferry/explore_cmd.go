package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvferry/kvferry/sim"
)

func newSimExploreCommand() *cobra.Command {
	var o sim.ExploreOptions
	var scope, path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explore",
		Short: "Try every order of events in a small scenario",
		Long: `Try every order of events in a small scenario, which is called a scope.

From each state, explore tries every delivery, completion, stored half page, deadline, engine
command and fault that can come next, and checks the same promises as sim run. A state that was
reached before is not explored again. In a state in which nothing more can happen, all commands
must have ended, no resource may be left, and a further transfer must succeed.

Scopes:
` + formatScopes(),
		Example: `  kvferry sim explore --scope push-crash-receiver
  kvferry sim explore --scope push-late --states 2000000 --json
  kvferry sim explore --scope push --path 0.0.0.1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case scope == "":
				return usagef("--scope is required; --scope list prints the scopes")
			case o.Depth < 0 || o.Depth > 100_000:
				return usagef("--depth is %d; give 1 to 100000, or 0 for no bound", o.Depth)
			case o.States < 1 || o.States > sim.StatesMax:
				return usagef("--states is %d; give 1 to %d", o.States, sim.StatesMax)
			}
			out := cmd.OutOrStdout()
			if scope == "list" {
				if asJSON {
					return printJSON(out, listScopes())
				}
				_, err := io.WriteString(out, formatScopes())
				return err
			}
			var err error
			if o.Scope, err = sim.FindScope(scope); err != nil {
				return usageError{err}
			}
			if cmd.Flags().Changed("path") {
				return replayPath(out, o.Scope, path, asJSON)
			}
			// Most objects are short-lived and the live heap is small, so rare garbage collections are cheaper.
			defer debug.SetGCPercent(debug.SetGCPercent(400))
			show, done := showExploreProgress(cmd.ErrOrStderr())
			o.Progress = func(e *sim.Exploration) bool {
				show(e)
				return cmd.Context().Err() == nil // After Ctrl-C, the report covers the states explored so far.
			}
			result, err := sim.Explore(o)
			done()
			if err != nil {
				return err
			}
			if i, interrupted := interruptedBy(cmd.Context()); interrupted && !result.Complete {
				result.CutReason = fmt.Sprintf("%d states, interrupted by %s", result.States, i.signalName())
			}
			if asJSON {
				err = printJSON(out, newExploreReport(&result))
			} else {
				err = printExploration(out, &result)
			}
			if err == nil && result.Violation != nil {
				return errFinding
			}
			return err
		},
	}
	cmd.Flags().StringVar(&scope, "scope", "", "the scope to explore; list prints all scopes")
	cmd.Flags().IntVar(&o.Depth, "depth", 0, "the maximum number of events in a path; 0: no limit")
	cmd.Flags().IntVar(&o.States, "states", 5_000_000, "the maximum number of states")
	cmd.Flags().StringVar(&path, "path", "", "replay the path that a violation has printed, and print its events")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func formatScopes() string {
	width := 0
	for _, s := range sim.Scopes() {
		width = max(width, len(s.Name))
	}
	var b strings.Builder
	for _, s := range sim.Scopes() {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, s.Name, s.Description)
	}
	return b.String()
}

type scopeRow struct {
	Scope string `json:"scope"`
	About string `json:"about"`
}

func listScopes() []scopeRow {
	var list []scopeRow
	for _, s := range sim.Scopes() {
		list = append(list, scopeRow{s.Name, s.Description})
	}
	return list
}

func replayPath(out io.Writer, s sim.Scope, text string, asJSON bool) error {
	p, err := sim.ParsePath(text)
	if err != nil {
		return usageError{err}
	}
	var events []string
	v, err := sim.RetracePath(s, p, func(line string) { events = append(events, line) })
	switch {
	case err != nil:
		return err
	case asJSON:
		err = printJSON(out, pathReport{Scope: s.Name, Path: p, Events: events, Violation: v})
	case v != nil:
		_, err = fmt.Fprint(out, v)
	default:
		_, err = fmt.Fprintf(out, "%s\nevery promise held\n", strings.Join(events, "\n"))
	}
	if err == nil && v != nil {
		return errFinding
	}
	return err
}

type pathReport struct {
	Scope     string         `json:"scope"`
	Path      sim.Path       `json:"path"`
	Events    []string       `json:"events"`
	Violation *sim.Violation `json:"violation,omitempty"`
}

// showExploreProgress returns a function that prints the progress to w if w is a terminal, and a function that clears
// the progress line.
func showExploreProgress(w io.Writer) (show func(*sim.Exploration), done func()) {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return func(*sim.Exploration) {}, func() {}
	}
	show = func(e *sim.Exploration) {
		if e.Transitions%(16*1024) == 0 {
			fmt.Fprintf(w, "\r\x1b[K%d states, %d transitions, depth %d", e.States, e.Transitions, e.Depth)
		}
	}
	return show, func() { fmt.Fprint(w, "\r\x1b[K") }
}

// An exploreReport is the report that sim explore --json prints.
type exploreReport struct {
	Scope                string            `json:"scope"`
	States               int               `json:"states"`
	Transitions          int               `json:"transitions"`
	Ends                 int               `json:"ends"`
	Depth                int               `json:"depth"`
	Complete             bool              `json:"complete"`
	Cut                  string            `json:"cut_at,omitempty"`
	Seconds              float64           `json:"seconds"`
	TransitionsPerSecond float64           `json:"transitions_per_second"`
	Marks                map[string]uint64 `json:"marks"`
	Facts                map[string]uint64 `json:"facts"`
	TransferCodes        map[string]uint64 `json:"transfer_codes"`
	Outcomes             map[string]uint64 `json:"outcomes"`
	Violation            *sim.Violation    `json:"violation,omitempty"`
	Retrace              string            `json:"retrace,omitempty"`
}

func newExploreReport(e *sim.Exploration) exploreReport {
	seconds := max(e.Elapsed.Seconds(), 1e-9)
	r := exploreReport{
		Scope: e.Scope, States: e.States, Transitions: e.Transitions, Ends: e.FinalStates, Depth: e.Depth, Complete: e.Complete,
		Cut:     e.CutReason,
		Seconds: seconds, TransitionsPerSecond: float64(e.Transitions) / seconds,
		Marks: e.Coverage.Counts("mark"), Facts: e.Coverage.Counts("fact"),
		TransferCodes: e.Coverage.Counts("transfer"), Outcomes: e.Coverage.Counts("outcome"), Violation: e.Violation,
	}
	if e.Violation != nil {
		r.Retrace = e.Violation.RetraceCommand()
	}
	return r
}

func printExploration(w io.Writer, e *sim.Exploration) error {
	r := newExploreReport(e)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d states, %d transitions, %d final states, depth %d in %.1f s (%.0f transitions/s)\n",
		r.Scope, r.States, r.Transitions, r.Ends, r.Depth, r.Seconds, r.TransitionsPerSecond)
	for _, part := range []struct {
		name   string
		counts map[string]uint64
	}{{"outcomes", r.Outcomes}, {"transfers", r.TransferCodes}, {"facts", r.Facts}, {"marks", r.Marks}} {
		printCounts(&b, part.name, part.counts)
	}
	switch {
	case e.Violation != nil:
		fmt.Fprintf(&b, "\n%s", e.Violation)
	case e.Complete:
		b.WriteString("complete: every promise held in every order of events\n")
	default:
		fmt.Fprintf(&b, "incomplete, stopped at %s: every promise held so far\n", e.CutReason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
