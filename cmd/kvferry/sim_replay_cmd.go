package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/report"
)

type replayFlags struct {
	seed    uint64
	profile string
	plan    string
	planOut string
	shrink  bool
	defect  string
	log     bool
	html    string

	recording recordingFlags
}

func newSimReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Run one seed, one plan or the recording of a node again and explain the run",
		Example: `  kvferry sim replay --seed 17 --profile leased --log
  kvferry sim replay --seed 17 --shrink --write-plan small.yaml
  kvferry sim replay --plan sim-failures/S4-seed17.yaml --html run.html
  kvferry sim replay --recording /var/lib/kvferry/recordings/kvferry-20261130T171500.000000000-5f10660f.kvrec`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.recording.file != "" {
				if name := changedOther(cmd.Flags(), "recording", "any-build", "last", "json", "html"); name != "" {
					return usagef("--%s is not for recordings: a recording has the events of one node, and no plan", name)
				}
				if n := f.recording.last; n < 1 || n > 1<<20 {
					return usagef("--last is %d: use a number from 1 to %d", n, 1<<20)
				}
				f.recording.html = f.html
				return f.recording.replayRecording(cmd.OutOrStdout())
			}
			hasSeed := cmd.Flags().Changed("seed")
			switch {
			case cmd.Flags().Changed("any-build"), cmd.Flags().Changed("last"), cmd.Flags().Changed("json"):
				return usagef("--any-build, --last and --json need --recording, the recording of a node")
			case hasSeed == (f.plan != ""):
				return usagef("give either --seed, --plan or --recording")
			case f.planOut == "" && (f.shrink || f.defect != ""):
				return usagef("--shrink and --defect need --write-plan, the file for the new plan")
			}
			if err := checkProfile(f.profile); err != nil {
				return err
			}
			p, err := f.loadPlan()
			if err != nil {
				return err
			}
			return f.replayPlan(cmd.Context(), &p, cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint64Var(&f.seed, "seed", 0, "the seed to run")
	cmd.Flags().StringVar(&f.plan, "plan", "", "the plan file to run")
	cmd.Flags().StringVar(&f.planOut, "write-plan", "", "write the plan of the run into this file")
	cmd.Flags().BoolVar(&f.shrink, "shrink", false,
		"minimise the plan, so that it still breaks the same promise, before it is written")
	cmd.Flags().StringVar(&f.html, "html", "", "write an HTML page that shows the run into this file")
	cmd.Flags().StringVar(&f.defect, "defect", "",
		"record in the written plan the defect that it finds, and the code marks that it reaches without the defect")
	cmd.Flags().BoolVar(&f.log, "log", false, "print the whole event log")
	addProfileFlag(cmd, &f.profile)
	cmd.Flags().StringVar(&f.recording.file, "recording", "",
		"the recording of a node (recorder.dir): give its machine the same events, and compare the effects of each step")
	cmd.Flags().BoolVar(&f.recording.anyBuild, "any-build", false,
		"replay a recording of another build, to see at which step this build has other effects")
	cmd.Flags().IntVar(&f.recording.last, "last", 32, "with --recording, the number of the last events and effects to print")
	addJSONFlag(cmd, &f.recording.asJSON)
	return cmd
}

// changedOther returns the name of a flag that was given and is not one of those named, or an empty text.
func changedOther(flags *pflag.FlagSet, names ...string) (other string) {
	flags.Visit(func(flag *pflag.Flag) {
		if other == "" && !slices.Contains(names, flag.Name) {
			other = flag.Name
		}
	})
	return other
}

func (f *replayFlags) loadPlan() (sim.Plan, error) {
	if f.plan == "" {
		return sim.Expand(f.seed, sim.ProfileOfSeed(f.seed, f.profile))
	}
	p, err := sim.ReadPlan(f.plan)
	if err != nil {
		return p, usageError{err}
	}
	return p, nil
}

func (f *replayFlags) replayPlan(ctx context.Context, p *sim.Plan, out io.Writer) error {
	o := sim.Options{Plan: p, RecordTrace: true}
	var writeErr error
	if f.log {
		o.Log = func(line string) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				writeErr = errors.Join(writeErr, err)
			}
		}
	}
	r, err := sim.Run(o)
	if err = errors.Join(err, writeErr); err != nil {
		return err
	}
	fmt.Fprintf(out, "seed %d: %d steps, %.3f s simulated, %d chunks verified, log hash %016x\n",
		r.Seed, r.Steps, float64(r.Simulated)/1e9, r.Chunks, r.Hash)
	if f.plan != "" {
		for _, line := range sim.StaleReasons(p, &r) {
			fmt.Fprintf(out, "stale: %s\n", line)
		}
	}
	if err := f.writePlan(ctx, p, &r, out); err != nil {
		return err
	}
	if r.Failure != nil {
		r.Failure.Plan = f.plan
	}
	if err := f.writePage(&r, out); err != nil {
		return err
	}
	if r.Failure != nil {
		fmt.Fprint(out, r.Failure)
		return errFinding
	}
	if p.Property != "" {
		fmt.Fprintf(out, "the plan was kept because it broke %s, which now holds: the code does not have the defect, or the plan is stale\n",
			p.Property)
	}
	_, err = fmt.Fprintln(out, "every promise held")
	return err
}

// writePage writes the HTML page of the run, if --html names a file.
func (f *replayFlags) writePage(r *sim.Result, out io.Writer) error {
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
func (f *replayFlags) writePlan(ctx context.Context, p *sim.Plan, r *sim.Result, out io.Writer) error {
	if f.planOut == "" {
		return nil
	}
	written := *p
	if f.defect != "" {
		if r.Failure != nil {
			return usagef("--defect: the plan breaks %s in this build; the marks must come from a build in which nothing is "+
				"broken", r.Failure.Property)
		}
		written.Defect, written.Reaches = f.defect, slices.Sorted(maps.Keys(r.Coverage.Counts("mark")))
	}
	if f.shrink {
		if r.Failure == nil {
			return usagef("--shrink: the plan breaks no promise, so it cannot be minimised")
		}
		s, err := sim.Shrink(ctx, *p, sim.ShrinkOptions{})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "minimised in %d runs: %d of %d jobs, %d faults and %d targeted faults are left\n",
			s.Runs, len(s.Plan.Jobs), len(p.Jobs), len(s.Plan.Faults), len(s.Plan.Strikes))
		written = s.Plan
	}
	if err := written.Write(f.planOut); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "plan written to %s\n", f.planOut)
	return err
}
