package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/campaign"
	"github.com/kvferry/kvferry/sim"
)

// seedsPerSave is the number of seeds between two saves of the campaign file. A campaign that is killed must run at
// most this many seeds again.
const seedsPerSave = 5000

// continueCampaign runs seeds that the campaign file does not record yet, and records them in the file.
func continueCampaign(ctx context.Context, o sim.CampaignOptions, path string) (sim.Summary, *campaign.Profile, error) {
	file, err := campaign.Open(path)
	if err != nil {
		return sim.Summary{}, nil, usageError{err}
	}
	defer file.Close()
	p := file.ProfileRecord(o.Profile, o.FirstSeed)
	var mu sync.Mutex
	var findings []campaign.Finding
	show := o.Progress
	o.Progress = func(r *sim.Result) {
		if r.Failure != nil {
			mu.Lock()
			findings = append(findings, campaign.Finding{Seed: r.Seed, Property: r.Failure.Property, Story: r.Failure.Story})
			mu.Unlock()
		}
		if show != nil {
			show(r)
		}
	}
	remaining, unlimited := o.Seeds, o.Seeds == 0
	var total *sim.Summary
	for total == nil || ctx.Err() == nil && (unlimited || remaining > 0) {
		o.FirstSeed, o.Seeds, findings = p.Next, seedsPerSave, findings[:0]
		if !unlimited {
			o.Seeds = min(remaining, seedsPerSave)
			remaining -= o.Seeds
		}
		s, err := sim.Campaign(ctx, o)
		if err != nil {
			return s, p, err
		}
		p.AddSummary(&s, findings) // Also after an interruption: seeds start in order, and every started seed has ended.
		if err := file.Save(); err != nil {
			return s, p, err
		}
		if total == nil {
			total = &s
		} else {
			total.Merge(&s)
		}
	}
	return *total, p, nil
}

func checkRareFlag(rare string) error {
	if !slices.Contains([]string{"off", "warn", "fail"}, rare) {
		return usagef("--rare is %q; give off, warn or fail", rare)
	}
	return nil
}

// exitError returns errFinding if a promise was broken, or if the policy is "fail" and a conjunction never occurred. It
// prints the conjunctions that never occurred to w unless the policy is "off". With --continue, all campaigns in the
// file count.
func (r *campaignReport) exitError(policy string, w io.Writer) error {
	unmet := r.MissedConjunctions()
	if r.Continued != nil {
		unmet = r.Continued.Unmet(r.Profile)
	}
	if policy == "off" || r.Interrupted != "" {
		unmet = nil
	}
	for _, c := range unmet {
		if _, err := fmt.Fprintf(w, "%s never occurred: %s; run more seeds, or find out why it cannot occur\n", c,
			c.About()); err != nil {
			return err
		}
	}
	if r.Failed > 0 || policy == "fail" && len(unmet) > 0 {
		return errFinding
	}
	return nil
}
