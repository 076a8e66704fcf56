package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim"
)

func newSimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sim",
		Example: `  kvferry sim run --seeds 2000`,
		Short:   "Run the state machines in a simulated cluster, under faults",
		Long: `Run the state machines in a simulated cluster, under faults.

One seed decides everything: topology, sizes, timeouts, which faults happen and when.
A seed that breaks a promise breaks it every time.`,
	}
	cmd.AddCommand(newSimRunCommand(), newSimReplayCommand(), newSimExploreCommand())
	return cmd
}

func addProfileFlag(cmd *cobra.Command, profile *string) {
	cmd.Flags().StringVar(profile, "profile", sim.DefaultProfile, "what to draw: "+strings.Join(sim.Profiles(), ", "))
}

func checkProfile(profile string) error {
	if !slices.Contains(sim.Profiles(), profile) {
		return usagef("--profile %q is unknown; use one of %s", profile, strings.Join(sim.Profiles(), ", "))
	}
	return nil
}

func newSimRunCommand() *cobra.Command {
	var o sim.CampaignOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run many seeds and report the first broken promise",
		Example: `  kvferry sim run --seeds 2000
  kvferry sim run --seeds 500 --profile leased --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.Seeds == 0 || o.Seeds > 10_000_000:
				return usagef("--seeds is %d; give 1 to 10000000", o.Seeds)
			case o.Workers < 1 || o.Workers > 1024:
				return usagef("--workers is %d; give 1 to 1024", o.Workers)
			}
			if err := checkProfile(o.Profile); err != nil {
				return err
			}
			done := showSeeds(cmd.ErrOrStderr(), &o)
			start := time.Now()
			summary, err := sim.Campaign(o)
			took := time.Since(start)
			done()
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), campaignReport(&summary, took))
			} else {
				err = printCampaign(cmd.OutOrStdout(), &summary, took)
			}
			if err == nil && summary.Failed > 0 {
				return errFinding
			}
			return err
		},
	}
	cmd.Flags().Uint64Var(&o.Seeds, "seeds", 1000, "how many seeds to run")
	cmd.Flags().Uint64Var(&o.Start, "start", 0, "the first seed")
	cmd.Flags().IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "how many seeds to run at once")
	addProfileFlag(cmd, &o.Profile)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// showSeeds draws a bar if w is a terminal; the function it returns takes it away.
func showSeeds(w io.Writer, o *sim.CampaignOptions) func() {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	p := mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))
	bar := p.AddBar(int64(o.Seeds), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name("seeds "), decor.CountersNoUnit("%d / %d")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO)))
	o.Progress = bar.Increment
	return func() {
		bar.Abort(true)
		p.Wait()
	}
}

// A simReport is what sim run --json prints.
type simReport struct {
	Seeds              uint64            `json:"seeds"`
	Failed             uint64            `json:"failed"`
	LogHash            string            `json:"log_hash"` // over the event logs of all seeds, in order
	Seconds            float64           `json:"seconds"`
	SeedsPerSecond     float64           `json:"seeds_per_second"`
	Steps              uint64            `json:"steps"`
	StepsPerSecond     float64           `json:"steps_per_second"`
	SimulatedSeconds   float64           `json:"simulated_seconds"`
	Events             uint64            `json:"events"`
	Commands           uint64            `json:"commands"`
	Messages           uint64            `json:"messages"`
	Transfers          uint64            `json:"transfers"`
	ChunksVerified     uint64            `json:"chunks_verified"`
	Faults             map[string]uint64 `json:"faults"`
	Marks              map[string]uint64 `json:"marks"`
	Facts              map[string]uint64 `json:"facts"`
	TransferCodes      map[string]uint64 `json:"transfer_codes"`
	Outcomes           map[string]uint64 `json:"outcomes"`
	FailuresByProperty map[string]uint64 `json:"failures_by_property"`
	First              *sim.Failure      `json:"first_failure,omitempty"`
	Replay             string            `json:"replay,omitempty"`
}

func campaignReport(s *sim.Summary, took time.Duration) simReport {
	seconds := max(took.Seconds(), 1e-9)
	r := simReport{
		Seeds: s.Seeds, Failed: s.Failed, LogHash: fmt.Sprintf("%016x", s.Hash), Seconds: seconds,
		SeedsPerSecond: float64(s.Seeds) / seconds, Steps: s.Steps, StepsPerSecond: float64(s.Steps) / seconds,
		SimulatedSeconds: float64(s.Simulated) / 1e9, Events: s.Events, Commands: s.Commands, Messages: s.Messages,
		Transfers: s.Transfers, ChunksVerified: s.Chunks, Faults: s.Faults, Outcomes: s.Coverage.Outcomes,
		Marks: named(s.Coverage.Marks, markName), Facts: named(s.Coverage.Facts, effects.Fact.String),
		TransferCodes: named(s.Coverage.Codes, effects.Code.String), FailuresByProperty: s.Properties, First: s.First,
	}
	if s.First != nil {
		r.Replay = s.First.Replay()
	}
	return r
}

// markName is a coverage mark as room/name.
func markName(m effects.Mark) string {
	for _, n := range rank.MarkNames() {
		if n.Mark == m {
			return n.Name
		}
	}
	return fmt.Sprintf("mark %d", m)
}

func named[K comparable](counts map[K]uint64, name func(K) string) map[string]uint64 {
	out := make(map[string]uint64, len(counts))
	for k, n := range counts {
		out[name(k)] += n
	}
	return out
}

func printCampaign(w io.Writer, s *sim.Summary, took time.Duration) error {
	r := campaignReport(s, took)
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds in %.1f s: %.0f seeds/s, %.0f steps/s, %.0f s simulated (%.0f times real time)\n",
		r.Seeds, r.Seconds, r.SeedsPerSecond, r.StepsPerSecond, r.SimulatedSeconds, r.SimulatedSeconds/r.Seconds)
	fmt.Fprintf(&b, "%d steps, %d commands, %d messages, %d transfers, %d chunks verified; log hash %s\n",
		r.Steps, r.Commands, r.Messages, r.Transfers, r.ChunksVerified, r.LogHash)
	for _, part := range []struct {
		name   string
		counts map[string]uint64
	}{{"faults", r.Faults}, {"outcomes", r.Outcomes}, {"transfers", r.TransferCodes}, {"facts", r.Facts}, {"marks", r.Marks}} {
		printCounts(&b, part.name, part.counts)
	}
	if s.First == nil {
		b.WriteString("every promise held\n")
	} else {
		printCounts(&b, "broken", r.FailuresByProperty)
		fmt.Fprintf(&b, "%d of %d seeds failed; the first is seed %d:\n\n%s", s.Failed, s.Seeds, s.First.Seed, s.First)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printCounts(b *strings.Builder, name string, counts map[string]uint64) {
	keys := make([]string, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	fmt.Fprintf(b, "%-10s", name)
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s %d", k, counts[k])
	}
	b.WriteByte('\n')
}

func newSimReplayCommand() *cobra.Command {
	var o sim.Options
	var log bool
	cmd := &cobra.Command{
		Use:     "replay",
		Short:   "Run one seed again and tell its story",
		Example: `  kvferry sim replay --seed 17 --profile leased --log`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				return usagef("name the seed with --seed")
			}
			if err := checkProfile(o.Profile); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			var broken error
			if log {
				o.Log = func(line string) {
					if _, err := fmt.Fprintln(out, line); err != nil {
						broken = errors.Join(broken, err)
					}
				}
			}
			r, err := sim.Run(o)
			if err = errors.Join(err, broken); err != nil {
				return err
			}
			fmt.Fprintf(out, "seed %d: %d steps, %.3f s simulated, %d chunks verified, log hash %016x\n",
				r.Seed, r.Steps, float64(r.Simulated)/1e9, r.Chunks, r.Hash)
			if r.Failure != nil {
				fmt.Fprint(out, r.Failure)
				return errFinding
			}
			_, err = fmt.Fprintln(out, "every promise held")
			return err
		},
	}
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "the seed")
	cmd.Flags().BoolVar(&log, "log", false, "print the whole event log")
	addProfileFlag(cmd, &o.Profile)
	return cmd
}
