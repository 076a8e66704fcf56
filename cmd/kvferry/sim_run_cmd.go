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
	var span time.Duration
	var folder, html, book, rare, since string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run many seeds and report the first broken promise",
		Long: `Run many seeds and report the first broken promise.

A failure is made smaller as long as it breaks the same promise, and written into a
folder: as a plan that sim replay takes, and as an HTML page that explains it. Ctrl-C or SIGTERM ends the campaign:
it prints what it has run, and fails.
With --shard, every n-th seed is run; sim merge adds up what the shards print as JSON.
With --continue, a file says which seeds were run before, of each profile, and what came of them; the campaign goes on
from there and notes what it has run.`,
		Example: `  kvferry sim run --seeds 2000
  kvferry sim run --time 10m --profile leased
  kvferry sim run --seeds 2000 --since last.json
  kvferry sim run --time 10m --profile full --continue campaign.json --rare fail
  kvferry sim run --seeds 100000 --shard 3/8 --json > shard-3.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case span < 0:
				return usagef("--time is %v; give a positive time, such as 10m", span)
			case span > 0 && !cmd.Flags().Changed("seeds"):
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
			if err := checkRare(rare); err != nil {
				return err
			}
			if rare != "off" && o.Profile == sim.Mixed {
				return usagef("--rare %s: what never occurs is known of one profile; name it with --profile", rare)
			}
			if book != "" && o.Shards > 1 {
				return usagef("--continue goes on with every seed, --shard leaves some out; give one of them")
			}
			var before *campaignReport
			if since != "" {
				var err error
				if before, err = readSince(since, o.Profile); err != nil {
					return err
				}
			}
			r, err := runCampaign(cmd.Context(), o, span, book, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			r.interrupted(cmd.Context(), &o, span)
			if r.First != nil {
				// A failure is made smaller even if the campaign was interrupted.
				if err := keepFailure(context.WithoutCancel(cmd.Context()), &r, folder, html); err != nil {
					return err
				}
			}
			r.before = before
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				err = printCampaign(cmd.OutOrStdout(), &r, all)
			}
			if err == nil && since != "" && r.Interrupted == "" {
				err = keepSince(since, &r)
			}
			if err != nil {
				return err
			}
			return r.verdict(rare, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&book, "continue", "",
		"a file to go on from, and to note in which seeds were run (--start is for a profile that it does not have)")
	cmd.Flags().StringVar(&rare, "rare", "off",
		"what to do if a conjunction that the profile can meet never occurred: off, warn, fail")
	cmd.Flags().Uint64Var(&o.Seeds, "seeds", 1000, "how many seeds to run, of all shards together")
	cmd.Flags().DurationVar(&span, "time", 0, "run for so long, unless --seeds ends first")
	cmd.Flags().Uint64Var(&o.Start, "start", 0, "the first seed")
	cmd.Flags().Var(shardFlag{&o.Shard, &o.Shards}, "shard", "run every n-th seed, from the i-th on, counted from 0")
	cmd.Flags().IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "how many seeds to run at once")
	cmd.Flags().StringVar(&folder, "out", "sim-failures", "folder for the plan and the page of the first failure")
	cmd.Flags().StringVar(&html, "html", "", "the file for that page, if not in the folder")
	cmd.Flags().BoolVar(&all, "coverage", false,
		"print how often which fault, outcome, fact, effect and mark was met, and what machines were given in which state")
	cmd.Flags().StringVar(&since, "since", "",
		"say what was met and was not in the campaign that this file holds, and the other way round; then it holds this one")
	addProfileFlag(cmd, &o.Profile)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// runCampaign runs a campaign until all seeds have run, the time is over, or the context ends.
func runCampaign(ctx context.Context, o sim.CampaignOptions, span time.Duration, book string,
	w io.Writer) (campaignReport, error) {
	if span > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, span)
		defer cancel()
	}
	// The live heap is a few megabytes, so rare garbage collections cost little memory.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	start := time.Now()
	done := showCampaign(w, &o, span)
	defer done()
	if book != "" {
		s, before, err := goOn(ctx, o, book)
		r := newCampaignReport(s, o.Workers, time.Since(start))
		r.Continued = before
		return r, err
	}
	s, err := sim.Campaign(ctx, o)
	return newCampaignReport(s, o.Workers, time.Since(start)), err
}

// noteInterruption sets Interrupted and Requested if a signal ended the campaign before all seeds, or the whole time,
// had been run.
func (r *campaignReport) interrupted(ctx context.Context, o *sim.CampaignOptions, span time.Duration) {
	i, yes := interruptedBy(ctx)
	shards := max(o.Shards, 1)
	if mine := (o.Seeds + shards - 1 - o.Shard) / shards; !yes || o.Seeds > 0 && r.Seeds >= mine {
		return
	}
	r.Interrupted, r.Asked = i.name(), fmt.Sprintf("%d seeds", o.Seeds)
	switch {
	case o.Seeds == 0:
		r.Asked = span.String()
	case o.Shards > 1:
		r.Asked += fmt.Sprintf(", of which every %d. is this shard's", o.Shards)
	}
}

// writeFailure makes the plan of the first failure smaller, and writes the plan and an HTML page that explains the
// failure.
func keepFailure(ctx context.Context, r *campaignReport, folder, html string) error {
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
		return fmt.Errorf("seed %d broke %s, and did not when it was run again: a run is not determined by its seed",
			r.First.Seed, r.First.Property)
	}
	path := filepath.Join(folder, fmt.Sprintf("%s-seed%d.yaml", r.First.Property, r.First.Seed))
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
	r.First, r.Plan, r.Replay = f, path, f.Replay()
	if t == nil {
		return nil
	}
	if html == "" {
		html = strings.TrimSuffix(path, ".yaml") + ".html"
	}
	t.Title, f.Page = f.Replay(), html
	return report.WriteFile(html, t)
}

// showCampaignProgress draws a progress bar if w is a terminal. The returned function removes the bar.
func showCampaign(w io.Writer, o *sim.CampaignOptions, span time.Duration) func() {
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
	mine := o.Seeds / max(o.Shards, 1)
	p := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	head := []decor.Decorator{decor.Name("seeds "),
		decor.Any(func(decor.Statistics) string { return fmt.Sprint(seeds.Load()) })}
	total := int64(mine)
	left := decor.AverageETA(decor.ET_STYLE_GO)
	if span > 0 { // The bar shows the time, because the number of seeds may be unlimited.
		total = int64(span)
		left = decor.Any(func(decor.Statistics) string { return (span - time.Since(start)).Round(time.Second).String() })
	}
	bar := p.AddBar(total, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(head...),
		mpb.AppendDecorators(decor.Percentage(), decor.Any(rates), decor.Name(", left "), left))
	o.Progress = func(r *sim.Result) {
		seeds.Add(1)
		steps.Add(r.Steps)
		if r.Failure != nil {
			failed.Add(1)
		}
		if span > 0 {
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
