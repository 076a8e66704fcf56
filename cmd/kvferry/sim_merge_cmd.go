package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/sim"
)

func newSimMergeCommand() *cobra.Command {
	var asJSON, counts bool
	var folder, rare string
	cmd := &cobra.Command{
		Use:   "merge FILE...",
		Short: "Add up the JSON reports of the shards of a campaign",
		Example: `  kvferry sim run --seeds 10000 --shard 0/2 --json > a.json
  kvferry sim run --seeds 10000 --shard 1/2 --json > b.json
  kvferry sim merge a.json b.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := checkRareFlag(rare); err != nil {
				return err
			}
			all, err := mergeReports(files)
			if err != nil {
				return err
			}
			if err := all.writeShardPlan(folder); err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), all)
			} else {
				err = printCampaign(cmd.OutOrStdout(), &all, counts)
			}
			if err != nil {
				return err
			}
			if all.Interrupted != "" {
				return errFinding // The campaign is incomplete.
			}
			return all.exitError(rare, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&folder, "out", "sim-failures", "folder for the plan of the first failure")
	cmd.Flags().StringVar(&rare, "rare", "off", "what to do about rare conjunctions that never occurred: off, warn, fail")
	cmd.Flags().BoolVar(&counts, "coverage", false, "print all counts instead of a summary")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// writeShardPlan writes the plan of the first failure into the folder, because the shard that found the failure may
// have run on a different machine.
func (r *campaignReport) writeShardPlan(folder string) error {
	if r.First == nil || r.PlanText == "" {
		return nil
	}
	p, err := sim.ParsePlan([]byte(r.PlanText))
	if err != nil {
		return err
	}
	r.Plan = filepath.Join(folder, filepath.Base(r.Plan))
	r.First.Plan, r.First.Page = r.Plan, ""
	r.Replay = r.First.ReplayCommand()
	return p.Write(r.Plan)
}

// mergeReports adds up the reports of shards as if all shards had run at the same time, so that the duration is that of
// the slowest shard.
func mergeReports(files []string) (total campaignReport, err error) {
	for i, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return total, usageError{err}
		}
		var r campaignReport
		if err := json.Unmarshal(text, &r); err != nil {
			return total, usageError{fmt.Errorf("%s is not a report of sim run --json: %w", path, err)}
		}
		if i == 0 {
			total = r
			continue
		}
		if r.Profile != total.Profile {
			return total, usagef("%s has profile %s and %s has profile %s; merge only shards of the same campaign", files[0], total.Profile, path,
				r.Profile)
		}
		first := total.First
		total.Merge(&r.Summary)
		total.Workers += r.Workers
		total.Seconds = max(total.Seconds, r.Seconds)
		if total.Interrupted == "" {
			total.Interrupted, total.Requested = r.Interrupted, r.Requested
		}
		if total.First != first {
			total.Plan, total.PlanText, total.Replay = r.Plan, r.PlanText, r.Replay
		}
	}
	total.computeRates()
	return total, nil
}
