package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/report"
)

type replayFlags struct {
	seed    uint64
	profile string
	plan    string
	write   string
	shrink  bool
	defect  string
	log     bool
	html    string
}

func newSimReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Run one seed or one plan again and tell its story",
		Example: `  kvferry sim replay --seed 17 --profile leased --log
  kvferry sim replay --seed 17 --shrink --write-plan small.yaml
  kvferry sim replay --plan sim-failures/S4-seed17.yaml --html run.html`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			seeded := cmd.Flags().Changed("seed")
			switch {
			case seeded == (f.plan != ""):
				return usagef("name either the seed with --seed or the file with --plan")
			case f.write == "" && (f.shrink || f.defect != ""):
				return usagef("--shrink and --defect need --write-plan, the file for what they make")
			}
			if err := checkProfile(f.profile); err != nil {
				return err
			}
			p, err := f.load()
			if err != nil {
				return err
			}
			return f.replay(cmd.Context(), &p, cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint64Var(&f.seed, "seed", 0, "the seed")
	cmd.Flags().StringVar(&f.plan, "plan", "", "the file of a plan")
	cmd.Flags().StringVar(&f.write, "write-plan", "", "write the plan into this file")
	cmd.Flags().BoolVar(&f.shrink, "shrink", false,
		"make the plan smaller, as long as it breaks the same promise, before it is written")
	cmd.Flags().StringVar(&f.html, "html", "", "write the run as one HTML page into this file")
	cmd.Flags().StringVar(&f.defect, "defect", "",
		"say in the written plan which defect it is of, and which marks it reaches without that")
	cmd.Flags().BoolVar(&f.log, "log", false, "print the whole event log")
	addProfileFlag(cmd, &f.profile)
	return cmd
}

func (f *replayFlags) load() (sim.Plan, error) {
	if f.plan == "" {
		return sim.Expand(f.seed, sim.ProfileOf(f.seed, f.profile))
	}
	p, err := sim.ReadPlan(f.plan)
	if err != nil {
		return p, usageError{err}
	}
	return p, nil
}

func (f *replayFlags) replay(ctx context.Context, p *sim.Plan, out io.Writer) error {
	o := sim.Options{Plan: p, Record: true}
	var broken error
	if f.log {
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
	if f.plan != "" {
		for _, line := range sim.Stale(p, &r) {
			fmt.Fprintf(out, "stale: %s\n", line)
		}
	}
	if err := f.keep(ctx, p, &r, out); err != nil {
		return err
	}
	if r.Failure != nil {
		r.Failure.Plan = f.plan
	}
	if err := f.draw(&r, out); err != nil {
		return err
	}
	if r.Failure != nil {
		fmt.Fprint(out, r.Failure)
		return errFinding
	}
	if p.Property != "" {
		fmt.Fprintf(out, "%s, which this plan broke when it was kept, holds: its defect is not there, or the plan is stale\n",
			p.Property)
	}
	_, err = fmt.Fprintln(out, "every promise held")
	return err
}

// writePage writes the HTML page of the run, if --html names a file.
func (f *replayFlags) draw(r *sim.Result, out io.Writer) error {
	if f.html == "" {
		return nil
	}
	if f.plan != "" {
		r.Trace.Title = "kvferry sim replay --plan " + f.plan
	}
	if err := report.WriteFile(f.html, r.Trace); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "page written to %s\n", f.html)
	return err
}

// writePlan writes the plan, if --write-plan names a file. With --shrink, it makes the plan smaller first.
func (f *replayFlags) keep(ctx context.Context, p *sim.Plan, r *sim.Result, out io.Writer) error {
	if f.write == "" {
		return nil
	}
	kept := *p
	if f.defect != "" {
		if r.Failure != nil {
			return usagef("--defect: the plan breaks %s here; a plan is kept with the marks that it reaches where nothing is "+
				"broken", r.Failure.Property)
		}
		kept.Defect, kept.Reaches = f.defect, slices.Sorted(maps.Keys(r.Coverage.Counts("mark")))
	}
	if f.shrink {
		if r.Failure == nil {
			return usagef("--shrink: the plan breaks nothing, so there is nothing to keep while it is made smaller")
		}
		s, err := sim.Shrink(ctx, *p, sim.ShrinkOptions{})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "made smaller in %d runs: %d of %d jobs, %d faults and %d strikes are left\n",
			s.Runs, len(s.Plan.Jobs), len(p.Jobs), len(s.Plan.Faults), len(s.Plan.Strikes))
		kept = s.Plan
	}
	if err := kept.Write(f.write); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "plan written to %s\n", f.write)
	return err
}
