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
		Short: "Add up what the shards of a campaign printed as JSON",
		Example: `  kvferry sim run --seeds 10000 --shard 0/2 --json > a.json
  kvferry sim run --seeds 10000 --shard 1/2 --json > b.json
  kvferry sim merge a.json b.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := checkRare(rare); err != nil {
				return err
			}
			all, err := mergeReports(files)
			if err != nil {
				return err
			}
			if err := all.unpack(folder); err != nil {
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
			return all.verdict(rare, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&folder, "out", "sim-failures", "folder for the plan of the first failure")
	cmd.Flags().StringVar(&rare, "rare", "off", "as of sim run")
	cmd.Flags().BoolVar(&counts, "coverage", false, "as of sim run")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// writeShardPlan writes the plan of the first failure into the folder, because the shard that found the failure may
// have run on a different machine.
func (r *campaignReport) unpack(folder string) error {
	if r.First == nil || r.PlanText == "" {
		return nil
	}
	p, err := sim.ParsePlan([]byte(r.PlanText))
	if err != nil {
		return err
	}
	r.Plan = filepath.Join(folder, filepath.Base(r.Plan))
	r.First.Plan, r.First.Page = r.Plan, ""
	r.Replay = r.First.Replay()
	return p.Write(r.Plan)
}

// mergeReports adds up the reports of shards as if all shards had run at the same time, so that the duration is that of
// the slowest shard.
func mergeReports(files []string) (all campaignReport, err error) {
	for i, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return all, usageError{err}
		}
		var r campaignReport
		if err := json.Unmarshal(text, &r); err != nil {
			return all, usageError{fmt.Errorf("%s: not what sim run --json prints: %w", path, err)}
		}
		if i == 0 {
			all = r
			continue
		}
		if r.Profile != all.Profile {
			return all, usagef("%s is of profile %s and %s of %s: merge the shards of one campaign", files[0], all.Profile, path,
				r.Profile)
		}
		first := all.First
		all.Merge(&r.Summary)
		all.Workers += r.Workers
		all.Seconds = max(all.Seconds, r.Seconds)
		if all.Interrupted == "" {
			all.Interrupted, all.Asked = r.Interrupted, r.Asked
		}
		if all.First != first {
			all.Plan, all.PlanText, all.Replay = r.Plan, r.PlanText, r.Replay
		}
	}
	all.rates()
	return all, nil
}
