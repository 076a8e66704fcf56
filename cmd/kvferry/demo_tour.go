package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// A tourRun is a replay of the tour: a mode with options that differ from the demo's defaults.
type tourRun struct {
	name string
	play func(context.Context, *demo.Options) (tourReport, error)
}

// A tourReport is the report of any kind of demo.
type tourReport interface {
	Print(w io.Writer) error
	Summary() *demo.Outcome
}

// tourRuns returns the runs of the tour: every kind of demo that needs no NPU and no library.
func tourRuns() []tourRun {
	var runs []tourRun
	addPushPull := func(name string, modes []demo.Mode, set func(*demo.Options)) {
		for _, mode := range modes {
			runs = append(runs, tourRun{name: string(mode) + name,
				play: func(ctx context.Context, o *demo.Options) (tourReport, error) {
					o.Mode = mode
					set(o)
					return demo.Run(ctx, *o)
				}})
		}
	}
	addRegistered := func(plane string, prefills, decodes int) {
		runs = append(runs, tourRun{name: fmt.Sprintf("push-reg, %s, %d to %d ranks", plane, prefills, decodes),
			play: func(ctx context.Context, o *demo.Options) (tourReport, error) {
				o.Mode, o.Plane = demo.PushReg, plane
				return demo.RunRegistered(ctx, demo.RegisteredOptions{Options: *o, Prefills: prefills, Decodes: decodes})
			}})
	}
	modes, _, _ := demo.ParseModes("all") // The demo always has these names.
	sharingModes, _, _ := demo.ParseModes("p2p")
	addPushPull("", modes, func(*demo.Options) {})
	addPushPull(", recalled", demo.RecallModes(), func(o *demo.Options) { o.Recall = true })
	addPushPull(", ring, recalled", demo.RecallModes(), func(o *demo.Options) { o.Ring, o.Recall = true, true })
	addPushPull(", ring", []demo.Mode{demo.Layerwise}, func(o *demo.Options) { o.Ring = true })
	addPushPull(", tcp, secured", demo.RecallModes(), func(o *demo.Options) { o.Plane, o.Secure = "tcp", true })
	addRegistered("auto", 2, 1)
	addRegistered("tcp", 1, 2)
	for _, mode := range sharingModes {
		runs = append(runs, tourRun{name: string(mode),
			play: func(ctx context.Context, o *demo.Options) (tourReport, error) {
				o.Mode = mode
				return demo.RunSharing(ctx, demo.SharingOptions{Options: *o, Directories: 2, Pages: 1024})
			}})
	}
	runs = append(runs, tourRun{name: string(sharingModes[0]) + ", tcp, secured",
		play: func(ctx context.Context, o *demo.Options) (tourReport, error) {
			o.Mode, o.Plane, o.Secure = sharingModes[0], "tcp", true
			return demo.RunSharing(ctx, demo.SharingOptions{Options: *o, Directories: 2, Pages: 1024})
		}})
	return runs
}

// checkTour returns a usage error if a flag was set whose value the tour varies.
func checkTour(cmd *cobra.Command) error {
	for _, name := range []string{"mode", "role", "bidirectional", "plane", "device", "library", "faults", "directories",
		"pages", "prefill-tp", "decode-tp", "secure"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is %s, but --tour plays every kind; leave out one of the two flags", name,
				cmd.Flags().Lookup(name).Value)
		}
	}
	return nil
}

const tourLineFormat = "%-30s %9s  %14s  %6s  %-44s %s\n"

// playTour plays every run with the options and prints a line for each run. If a run fails, playTour also prints the
// full report of the run.
func playTour(cmd *cobra.Command, runs []tourRun, o demo.Options, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		out = io.Discard
	}
	fmt.Fprintf(out, tourLineFormat, "run", "requests", "verified", "wrong", "killed and started again", "time")
	reports, ok, verified, tourStart := map[string]tourReport{}, true, int64(0), time.Now()
	var failed []string // runs that could not be played
	for _, r := range runs {
		o := o
		finish := showReplayProgress(cmd.ErrOrStderr(), r.name, &o)
		runStart := time.Now()
		report, err := r.play(cmd.Context(), &o)
		finish()
		if err != nil {
			if o.Other == nil || cmd.Context().Err() != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			// The other release may lack what this run is for, and the other runs are still of interest.
			failed = append(failed, r.name)
			fmt.Fprintf(out, "%-30s could not be played: %v\n", r.name, err)
			continue
		}
		reports[r.name] = report
		s := report.Summary()
		ok, verified = ok && s.OK, verified+s.BytesVerified
		killed := strings.Join(slices.Sorted(maps.Keys(s.RestartMillis)), ", ")
		fmt.Fprintf(out, tourLineFormat, r.name, fmt.Sprintf("%d of %d", s.Completed, s.Requests),
			fmt.Sprintf("%.1f MiB", float64(s.BytesVerified)/(1<<20)), fmt.Sprint(s.BytesWrong), killed,
			fmt.Sprintf("%.1f s", time.Since(runStart).Seconds()))
		if !s.OK {
			fmt.Fprintf(out, "\n%s failed:\n\n", r.name)
			if err := report.Print(out); err != nil {
				return err
			}
		}
	}
	ok = ok && len(failed) == 0
	verdict := "every byte is correct, and no page is pinned or leased"
	if !ok {
		verdict = "THE REPLAY FAILED, see above"
	}
	fmt.Fprintf(out, "\n%d runs in %.0f s, %.1f GiB verified: %s\n", len(runs), time.Since(tourStart).Seconds(),
		float64(verified)/(1<<30), verdict)
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), map[string]any{"runs": reports, "not_played": failed, "ok": ok}); err != nil {
			return err
		}
	}
	if !ok {
		return errFinding
	}
	return nil
}
