package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/report"
)

// shrinkTime limits the time for making a failing plan smaller. Most plans take seconds.
const shrinkTime = 40 * time.Second

func newSimRunCommand() *cobra.Command {
	var o sim.CampaignOptions
	var duration time.Duration
	var folder, html, campaignFile, rare, sinceFile string
	var asJSON, withCoverage bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run many seeds and report the first broken promise",
		Long: `Run many seeds and report the first broken promise.

The plan of the first failure is minimised, so that it still breaks the same promise, and written
into the folder --out, together with an HTML page that explains the failure. sim replay --plan runs
the plan again. Ctrl-C or SIGTERM ends the campaign: it prints the result so far, and fails.

With --shard, only every n-th seed is run; sim merge adds up the JSON reports of the shards.
With --continue, a file records for each profile the seeds that have been run and their failures;
the campaign continues with the next seed and adds its result to the file.`,
		Example: `  kvferry sim run --seeds 2000
  kvferry sim run --time 10m --profile leased
  kvferry sim run --seeds 2000 --since last.json
  kvferry sim run --time 10m --profile full --continue campaign.json --rare fail
  kvferry sim run --seeds 100000 --shard 3/8 --json > shard-3.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case duration < 0:
				return usagef("--time is %v; give a positive time, such as 10m", duration)
			case duration > 0 && !cmd.Flags().Changed("seeds"):
				o.Seeds = 0 // As many as there is time for.
			case o.Seeds == 0 || o.Seeds > 1e12:
				return usagef("--seeds is %d; give 1 to 1000000000000", o.Seeds)
			}
			if o.Workers < 1 || o.Workers > 1024 {
				return usagef("--workers is %d; give 1 to 1024", o.Workers)
			}
			if o.Profile == "list" {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(sim.Profiles(), "\n"))
				return err
			}
			if err := checkProfile(o.Profile); err != nil {
				return err
			}
			if err := checkRareFlag(rare); err != nil {
				return err
			}
			if rare != "off" && o.Profile == sim.MixedProfile {
				return usagef("--rare %s needs a single profile; choose it with --profile", rare)
			}
			if campaignFile != "" && o.Shards > 1 {
				return usagef("--continue runs every seed and --shard only some seeds; give one of the two flags")
			}
			var previous *campaignReport
			if sinceFile != "" {
				var err error
				if previous, err = readPrevious(sinceFile, o.Profile); err != nil {
					return err
				}
			}
			r, err := runCampaign(cmd.Context(), o, duration, campaignFile, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			r.noteInterruption(cmd.Context(), &o, duration)
			if r.First != nil {
				// A failure is made smaller even if the campaign was interrupted.
				if err := writeFailure(context.WithoutCancel(cmd.Context()), &r, folder, html); err != nil {
					return err
				}
			}
			r.previous = previous
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				err = printCampaign(cmd.OutOrStdout(), &r, withCoverage)
			}
			if err == nil && sinceFile != "" && r.Interrupted == "" {
				err = savePrevious(sinceFile, &r)
			}
			if err != nil {
				return err
			}
			return r.exitError(rare, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&campaignFile, "continue", "",
		"a file that records the seeds that were run; the campaign continues after them (--start applies only to a new profile)")
	cmd.Flags().StringVar(&rare, "rare", "off",
		"what to do about rare conjunctions of the profile that never occurred: off, warn, fail")
	cmd.Flags().Uint64Var(&o.Seeds, "seeds", 1000, "the number of seeds to run, for all shards together")
	cmd.Flags().DurationVar(&duration, "time", 0, "the time to run, unless --seeds ends first")
	cmd.Flags().Uint64Var(&o.FirstSeed, "start", 0, "the first seed")
	cmd.Flags().Var(shardFlag{&o.Shard, &o.Shards}, "shard", "run only every n-th seed, beginning with seed i, counted from 0")
	cmd.Flags().IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "the number of seeds to run concurrently")
	cmd.Flags().StringVar(&folder, "out", "sim-failures", "folder for the plan and the page of the first failure")
	cmd.Flags().StringVar(&html, "html", "", "the file for the HTML page (default: in the folder --out)")
	cmd.Flags().BoolVar(&withCoverage, "coverage", false,
		"print the counts of faults, outcomes, facts, effects and code marks, and of the events in each state of the machines")
	cmd.Flags().StringVar(&sinceFile, "since", "",
		"print the differences in coverage to the campaign in this file, and then replace the file by this campaign")
	addProfileFlag(cmd, &o.Profile)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// runCampaign runs a campaign until all seeds have run, the time is over, or the context ends.
func runCampaign(ctx context.Context, o sim.CampaignOptions, duration time.Duration, campaignFile string,
	w io.Writer) (campaignReport, error) {
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	// The live heap is a few megabytes, so rare garbage collections cost little memory.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	start := time.Now()
	done := showCampaignProgress(w, &o, duration)
	defer done()
	if campaignFile != "" {
		s, profile, err := continueCampaign(ctx, o, campaignFile)
		r := newCampaignReport(s, o.Workers, time.Since(start))
		r.Continued = profile
		return r, err
	}
	s, err := sim.Campaign(ctx, o)
	return newCampaignReport(s, o.Workers, time.Since(start)), err
}

// noteInterruption sets Interrupted and Requested if a signal ended the campaign before all seeds, or the whole time,
// had been run.
func (r *campaignReport) noteInterruption(ctx context.Context, o *sim.CampaignOptions, duration time.Duration) {
	i, isInterrupted := interruptedBy(ctx)
	shards := max(o.Shards, 1)
	if ownSeeds := (o.Seeds + shards - 1 - o.Shard) / shards; !isInterrupted || o.Seeds > 0 && r.Seeds >= ownSeeds {
		return
	}
	r.Interrupted, r.Requested = i.signalName(), fmt.Sprintf("%d seeds", o.Seeds)
	switch {
	case o.Seeds == 0:
		r.Requested = duration.String()
	case o.Shards > 1:
		r.Requested += fmt.Sprintf(", of which this shard has one in %d", o.Shards)
	}
}

// writeFailure makes the plan of the first failure smaller, and writes the plan and an HTML page that explains the
// failure.
func writeFailure(ctx context.Context, r *campaignReport, folder, html string) error {
	p, err := sim.Expand(r.First.Seed, r.First.Profile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkTime)
	defer cancel()
	s, err := sim.Shrink(ctx, p, sim.ShrinkOptions{})
	if err != nil {
		return err
	}
	if s.Failure == nil {
		return fmt.Errorf("seed %d broke %s, but not when it was run again: the run is not deterministic",
			r.First.Seed, r.First.Property)
	}
	path := filepath.Join(folder, fmt.Sprintf("%s-seed%d.yaml", strings.ReplaceAll(r.First.Property, " ", "-"), r.First.Seed))
	if err := s.Plan.Write(path); err != nil {
		return err
	}
	text, err := s.Plan.Text()
	if err != nil {
		return err
	}
	r.PlanText = string(text)
	f, t := sim.Explain(s.Failure, sim.Options{Plan: &s.Plan})
	f.Seed, f.Profile, f.Plan = r.First.Seed, r.First.Profile, path
	r.First, r.Plan, r.Replay = f, path, f.ReplayCommand()
	if t == nil {
		return nil
	}
	if html == "" {
		html = strings.TrimSuffix(path, ".yaml") + ".html"
	}
	t.Title, f.Page = f.ReplayCommand(), html
	return report.WriteFile(html, t)
}

// showCampaignProgress draws a progress bar if w is a terminal. The returned function removes the bar.
func showCampaignProgress(w io.Writer, o *sim.CampaignOptions, duration time.Duration) func() {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	var seeds, steps, failed atomic.Uint64
	start := time.Now()
	rates := func(decor.Statistics) string {
		s := max(time.Since(start).Seconds(), 1e-3)
		text := fmt.Sprintf("  %.0f seeds/s, %.2f M steps/s", float64(seeds.Load())/s, float64(steps.Load())/s/1e6)
		if n := failed.Load(); n > 0 {
			text += fmt.Sprintf(", %d FAILED", n)
		}
		return text
	}
	ownSeeds := o.Seeds / max(o.Shards, 1)
	p := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	head := []decor.Decorator{decor.Name("seeds "),
		decor.Any(func(decor.Statistics) string { return fmt.Sprint(seeds.Load()) })}
	total := int64(ownSeeds)
	remaining := decor.AverageETA(decor.ET_STYLE_GO)
	if duration > 0 { // The bar shows the time, because the number of seeds may be unlimited.
		total = int64(duration)
		remaining = decor.Any(func(decor.Statistics) string { return (duration - time.Since(start)).Round(time.Second).String() })
	}
	bar := p.AddBar(total, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(head...),
		mpb.AppendDecorators(decor.Percentage(), decor.Any(rates), decor.Name(", left "), remaining))
	o.Progress = func(r *sim.Result) {
		seeds.Add(1)
		steps.Add(r.Steps)
		if r.Failure != nil {
			failed.Add(1)
		}
		if duration > 0 {
			bar.SetCurrent(min(int64(time.Since(start)), total-1))
		} else {
			bar.Increment()
		}
	}
	return func() {
		bar.Abort(true)
		p.Wait()
	}
}
