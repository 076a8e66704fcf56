package sim

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// CampaignOptions say which seeds to run.
type CampaignOptions struct {
	Start   uint64  // the first seed
	Seeds   uint64  // how many, of all shards together; 0: until the context ends
	Shard   uint64  // which of Shards this is, from 0
	Shards  uint64  // every Shards-th seed is this one's; 0 is one
	Workers int     // goroutines, each with worlds of its own; 0 is one
	Profile string  // one of Profiles, or Mixed; empty: DefaultProfile
	System  *System // what runs; nil: PD
	// Plan, if not nil, draws the plan of a seed instead of Expand. It is called from
	// several goroutines.
	Plan    func(seed uint64) (plan.Plan, error)
	Oracles []oracle.Oracle // of the caller's own
	// Progress, if not nil, is called after each seed, from several goroutines. Until it returns the result is its own.
	Progress func(*Result)
}

// Campaign runs many seeds. It goes on after a failure, so that the summary says how
// many there are. When ctx ends, it returns what it has, without an error: those tell
// of options that cannot be run. Memory does not grow with the number of seeds.
func Campaign(ctx context.Context, o CampaignOptions) (Summary, error) {
	if err := CheckProfile(ProfileOf(0, o.Profile)); err != nil {
		return Summary{}, err
	}
	var next atomic.Uint64
	var wait sync.WaitGroup
	ends := make([]ending, max(o.Workers, 1))
	for k := range ends {
		wait.Go(func() { ends[k] = o.work(ctx, &next) })
	}
	wait.Wait()
	all := newSummary(o.Profile)
	for k := range ends {
		if ends[k].err != nil {
			return all, ends[k].err
		}
		all.Merge(&ends[k].summary)
	}
	return all, nil
}

type ending struct {
	summary Summary
	err     error
}

// work runs seeds until none is left.
func (o *CampaignOptions) work(ctx context.Context, next *atomic.Uint64) ending {
	e := ending{summary: newSummary(o.Profile)}
	var coverage Coverage
	for ctx.Err() == nil {
		i := (next.Add(1)-1)*max(o.Shards, 1) + o.Shard
		if o.Seeds > 0 && i >= o.Seeds {
			break
		}
		r, err := o.run(o.Start+i, coverage)
		if err != nil {
			e.err = err
			break
		}
		e.summary.add(&r)
		if o.Progress != nil {
			o.Progress(&r)
		}
		coverage = r.Coverage
	}
	return e
}

func (o *CampaignOptions) run(seed uint64, coverage Coverage) (Result, error) {
	options := Options{
		Seed: seed, Profile: ProfileOf(seed, o.Profile), System: o.System, Oracles: o.Oracles, coverage: coverage,
	}
	if o.Plan != nil {
		p, err := o.Plan(seed)
		if err != nil {
			return Result{}, err
		}
		options.Plan = &p
	}
	return Run(options)
}
