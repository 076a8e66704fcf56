package sim

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// CampaignOptions selects the seeds of a campaign and how to run them.
type CampaignOptions struct {
	Start   uint64  // the first seed
	Seeds   uint64  // number of seeds in all shards together; 0: until the context ends
	Shard   uint64  // number of this shard, from 0 to Shards-1
	Shards  uint64  // number of shards, which take turns at the seeds; 0 means 1
	Workers int     // number of goroutines, each with separate worlds; 0 means 1
	Profile string  // a name of [Profiles], or [Mixed]; empty: [DefaultProfile]
	System  *System // the system to run; nil: [PD]
	// Plan, if not nil, draws the plan of a seed instead of [Expand]. Several goroutines call Plan at the same time.
	Plan    func(seed uint64) (plan.Plan, error)
	Oracles []oracle.Oracle // oracles of the caller, in addition to those of the system
	// Progress, if not nil, is called after each seed, from several goroutines. The result is valid until the callback
	// returns.
	Progress func(*Result)
}

// Campaign runs many seeds and returns their summary. Campaign continues after a failure, so that the summary counts
// all failures. When ctx ends, it returns the summary of the seeds run so far, without an error. Campaign returns an
// error only if the options cannot be run. The required memory does not grow with the number of seeds.
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

// workerResult is the result of a worker.
type ending struct {
	summary Summary
	err     error
}

// work runs seeds until none is left, the context ends, or an error occurs.
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

// run runs a seed and uses the memory of the given coverage for the result.
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
