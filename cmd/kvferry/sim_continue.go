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

// noted is the number of seeds between two saves of the campaign file. A campaign that is killed must run at most this
// many seeds again.
const noted = 5000

// goOn runs seeds that the campaign file does not record yet, and records them in the file.
func goOn(ctx context.Context, o sim.CampaignOptions, path string) (sim.Summary, *campaign.Profile, error) {
	book, err := campaign.Open(path)
	if err != nil {
		return sim.Summary{}, nil, usageError{err}
	}
	defer book.Close()
	p := book.Of(o.Profile, o.Start)
	var mu sync.Mutex
	var found []campaign.Finding
	show := o.Progress
	o.Progress = func(r *sim.Result) {
		if r.Failure != nil {
			mu.Lock()
			found = append(found, campaign.Finding{Seed: r.Seed, Property: r.Failure.Property, Story: r.Failure.Story})
			mu.Unlock()
		}
		if show != nil {
			show(r)
		}
	}
	left, endless := o.Seeds, o.Seeds == 0
	var all *sim.Summary
	for all == nil || ctx.Err() == nil && (endless || left > 0) {
		o.Start, o.Seeds, found = p.Next, noted, found[:0]
		if !endless {
			o.Seeds = min(left, noted)
			left -= o.Seeds
		}
		s, err := sim.Campaign(ctx, o)
		if err != nil {
			return s, p, err
		}
		p.Add(&s, found) // Also after an interruption: seeds start in order, and every started seed has ended.
		if err := book.Save(); err != nil {
			return s, p, err
		}
		if all == nil {
			all = &s
		} else {
			all.Merge(&s)
		}
	}
	return *all, p, nil
}

func checkRare(rare string) error {
	if !slices.Contains([]string{"off", "warn", "fail"}, rare) {
		return usagef("--rare is %q; give off, warn or fail", rare)
	}
	return nil
}

// exitError returns errFinding if a promise was broken, or if the policy is "fail" and a conjunction never occurred. It
// prints the conjunctions that never occurred to w unless the policy is "off". With --continue, all campaigns in the
// file count.
func (r *campaignReport) verdict(rare string, w io.Writer) error {
	unmet := r.Unmet()
	if r.Continued != nil {
		unmet = r.Continued.Unmet(r.Profile)
	}
	if rare == "off" || r.Interrupted != "" {
		unmet = nil
	}
	for _, c := range unmet {
		if _, err := fmt.Fprintf(w, "%s never occurred: %s; run more seeds, or see what keeps it from occurring\n", c,
			c.About()); err != nil {
			return err
		}
	}
	if r.Failed > 0 || rare == "fail" && len(unmet) > 0 {
		return errFinding
	}
	return nil
}
