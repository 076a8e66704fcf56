package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/campaign"
	"github.com/kvferry/kvferry/sim"
)

func newSimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sim",
		Example: `  kvferry sim run --seeds 2000
  kvferry sim replay --plan sim-failures/S4-seed17.yaml --log`,
		Short: "Run the protocol in a simulated cluster and inject faults",
		Long: `Run the protocol's state machines in a simulated cluster and inject faults.

A seed determines the whole run: the topology, the sizes, the timeouts, and the faults with
their times. After each step, the simulator checks the promises of docs/safety.md. A seed
that breaks a promise breaks it every time.`,
	}
	cmd.AddCommand(newSimRunCommand(), newSimReplayCommand(), newSimMergeCommand(), newSimExploreCommand(),
		newSimObligationsCommand())
	return cmd
}

func addProfileFlag(cmd *cobra.Command, profile *string) {
	cmd.Flags().StringVar(profile, "profile", sim.MixedProfile,
		"the kind of clusters and faults: all, in which the seeds take the profiles in turn, or "+strings.Join(sim.Profiles(), ", "))
}

func checkProfile(profile string) error {
	if err := sim.CheckProfile(sim.ProfileOfSeed(0, profile)); err != nil {
		return usagef("--profile: %w, or %s", err, sim.MixedProfile)
	}
	return nil
}

// A shardFlag is the value of --shard, index/count. The index counts from 0, as Kubernetes counts the pods of an
// indexed job.
type shardFlag struct{ index, count *uint64 }

func (f shardFlag) String() string {
	if f.count == nil || *f.count == 0 {
		return "0/1"
	}
	return fmt.Sprintf("%d/%d", *f.index, *f.count)
}

func (shardFlag) Type() string { return "i/n" }

func (f shardFlag) Set(text string) error {
	var i, n uint64
	var rest string
	if got, _ := fmt.Sscanf(text, "%d/%d%s", &i, &n, &rest); got != 2 || i >= n || n > 100_000 {
		return fmt.Errorf("write i/n with i from 0 to n-1, such as 0/8")
	}
	*f.index, *f.count = i, n
	return nil
}

// A campaignReport is the report that sim run --json prints and sim merge reads.
type campaignReport struct {
	sim.Summary
	Workers          int     `json:"workers"`
	Seconds          float64 `json:"seconds"`
	SeedsPerSecond   float64 `json:"seeds_per_second"`
	StepsPerSecond   float64 `json:"steps_per_second"`
	SimulatedPerReal float64 `json:"simulated_per_real"`
	Plan             string  `json:"plan,omitempty"`      // the path of the minimised plan of the first failure
	PlanText         string  `json:"plan_text,omitempty"` // the text of the plan
	Replay           string  `json:"replay,omitempty"`    // the command that replays the plan
	// Interrupted names the signal that ended the campaign early, and Requested is the seeds or the time that the
	// campaign was to run. Both are empty if the campaign was not interrupted.
	Interrupted string `json:"interrupted,omitempty"`
	Requested   string `json:"asked,omitempty"`
	// Continued is the record of all campaigns of the profile, including this campaign, if --continue names a file.
	Continued *campaign.Profile `json:"continued,omitempty"`
	previous  *campaignReport   // the earlier campaign to compare with, or nil
}

func newCampaignReport(s sim.Summary, workers int, took time.Duration) campaignReport {
	r := campaignReport{Summary: s, Workers: workers, Seconds: max(took.Seconds(), 1e-9)}
	r.computeRates()
	if s.First != nil {
		r.Replay = s.First.ReplayCommand()
	}
	return r
}

func (r *campaignReport) computeRates() {
	r.SeedsPerSecond = float64(r.Seeds) / r.Seconds
	r.StepsPerSecond = float64(r.Steps) / r.Seconds
	r.SimulatedPerReal = float64(r.Simulated) / 1e9 / r.Seconds
}
