package sim

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// CampaignOptions say which seeds to run.
type CampaignOptions struct {
	Start   uint64 // the first seed
	Seeds   uint64 // how many
	Workers int    // goroutines, each with worlds of its own; 0 is one
	Profile string
	// Progress, if not nil, is called after each seed, from several goroutines.
	Progress func()
}

// Summary is what a campaign found. It does not depend on the number of workers.
type Summary struct {
	Seeds, Failed                              uint64
	Steps, Events, Messages, Transfers, Grants uint64
	Commands, Chunks                           uint64
	Simulated                                  effects.Duration
	Hash                                       uint64 // over the hashes of all seeds, in order
	Faults                                     map[string]uint64
	Coverage                                   Coverage
	First                                      *Failure          // of the lowest seed that failed
	Properties                                 map[string]uint64 // failures by property
}

// Campaign runs many seeds. It goes on after a failure, so that the summary says how
// many there are; the error tells of options that cannot be run.
func Campaign(o CampaignOptions) (Summary, error) {
	if err := CheckProfile(o.Profile); err != nil {
		return Summary{}, err
	}
	results := make([]Result, o.Seeds)
	errs := make([]error, max(o.Workers, 1))
	var next atomic.Uint64
	var wait sync.WaitGroup
	for k := range errs {
		wait.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= o.Seeds || errs[k] != nil {
					return
				}
				results[i], errs[k] = Run(Options{Seed: o.Start + i, Profile: o.Profile})
				if o.Progress != nil {
					o.Progress()
				}
			}
		})
	}
	wait.Wait()
	s := Summary{Seeds: o.Seeds, Faults: map[string]uint64{}, Coverage: newCoverage(), Properties: map[string]uint64{}}
	for _, err := range errs {
		if err != nil {
			return s, err
		}
	}
	for i := range results {
		s.add(&results[i])
	}
	return s, nil
}

func (s *Summary) add(r *Result) {
	s.Steps += r.Steps
	s.Events += r.Events
	s.Messages += r.Messages
	s.Transfers += r.Transfers
	s.Grants += r.Grants
	s.Commands += r.Commands
	s.Chunks += r.Chunks
	s.Simulated += r.Simulated
	s.Hash = mix(s.Hash, r.Hash)
	addCounts(s.Faults, r.Faults)
	addCounts(s.Coverage.Marks, r.Coverage.Marks)
	addCounts(s.Coverage.Facts, r.Coverage.Facts)
	addCounts(s.Coverage.Codes, r.Coverage.Codes)
	addCounts(s.Coverage.Outcomes, r.Coverage.Outcomes)
	if r.Failure != nil {
		s.Failed++
		s.Properties[r.Failure.Property]++
		if s.First == nil {
			s.First = r.Failure
		}
	}
}

func addCounts[K comparable](to, from map[K]uint64) {
	for k := range maps.Keys(from) {
		to[k] += from[k]
	}
}
