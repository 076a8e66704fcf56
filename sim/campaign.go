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
	FirstSeed uint64  // the first seed
	Seeds     uint64  // number of seeds in all shards together; 0: until the context ends
	Shard     uint64  // number of this shard, from 0 to Shards-1
	Shards    uint64  // number of shards, which take turns at the seeds; 0 means 1
	Workers   int     // number of goroutines, each with separate worlds; 0 means 1
	Profile   string  // a name of [Profiles], or [MixedProfile]; empty: [DefaultProfile]
	System    *System // the system to run; nil: [PD]
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
	if err := CheckProfile(ProfileOfSeed(0, o.Profile)); err != nil {
		return Summary{}, err
	}
	var next atomic.Uint64
	var wait sync.WaitGroup
	results := make([]workerResult, max(o.Workers, 1))
	for k := range results {
		wait.Go(func() { results[k] = o.runSeeds(ctx, &next) })
	}
	wait.Wait()
	sum := newSummary(o.Profile)
	for k := range results {
		if results[k].err != nil {
			return sum, results[k].err
		}
		sum.Merge(&results[k].summary)
	}
	return sum, nil
}

// workerResult is the result of a worker.
type workerResult struct {
	summary Summary
	err     error
}

// runSeeds runs seeds until none is left, the context ends, or an error occurs.
func (o *CampaignOptions) runSeeds(ctx context.Context, next *atomic.Uint64) workerResult {
	result := workerResult{summary: newSummary(o.Profile)}
	var coverage Coverage
	for ctx.Err() == nil {
		i := (next.Add(1)-1)*max(o.Shards, 1) + o.Shard
		if o.Seeds > 0 && i >= o.Seeds {
			break
		}
		r, err := o.runSeed(o.FirstSeed+i, coverage)
		if err != nil {
			result.err = err
			break
		}
		result.summary.addResult(&r)
		if o.Progress != nil {
			o.Progress(&r)
		}
		coverage = r.Coverage
	}
	return result
}

// runSeed runs a seed and uses the memory of the given coverage for the result.
func (o *CampaignOptions) runSeed(seed uint64, coverage Coverage) (Result, error) {
	options := Options{
		Seed: seed, Profile: ProfileOfSeed(seed, o.Profile), System: o.System, Oracles: o.Oracles, coverage: coverage,
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
