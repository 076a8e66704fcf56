package sim

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
)

// Summary is the result of a campaign. The summary depends only on which seeds were run, not on the number of workers
// or on how the seeds were divided into shards.
type Summary struct {
	Profile    string            `json:"profile"`
	Seeds      uint64            `json:"seeds"`
	Failed     uint64            `json:"failed"`
	Steps      uint64            `json:"steps"`
	Events     uint64            `json:"events"`
	Messages   uint64            `json:"messages"`
	Transfers  uint64            `json:"transfers"`
	Grants     uint64            `json:"grants"`
	Commands   uint64            `json:"commands"`
	Chunks     uint64            `json:"chunks_verified"`
	Simulated  effects.Duration  `json:"simulated_ns"`
	Hash       LogHash           `json:"log_hash"` // over the event logs of all seeds; independent of their order
	Faults     map[string]uint64 `json:"faults"`
	Coverage   Coverage          `json:"coverage"`
	Properties map[string]uint64 `json:"failures_by_property"`

	// Judgements counts the judgements of the checks by profile, because a check that judges in one profile may be void in
	// another.
	Judgements map[string]*oracle.Judgements `json:"judgements"`

	First *Failure `json:"first_failure,omitempty"` // of the lowest seed that failed
}

// LogHash is a sum of hashes of event logs. In JSON the sum is hexadecimal text, because some JSON readers do not keep
// all 64 bits of a number.
type LogHash uint64

// MarshalText returns sixteen hexadecimal digits.
func (h LogHash) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText parses hexadecimal digits.
func (h *LogHash) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	*h = LogHash(v)
	return err
}

func newSummary(profile string) Summary {
	if profile == "" {
		profile = expand.DefaultProfile
	}
	return Summary{Profile: profile, Faults: map[string]uint64{}, Properties: map[string]uint64{},
		Judgements: map[string]*oracle.Judgements{}}
}

// addResult adds the result of a run.
func (s *Summary) addResult(r *Result) {
	s.Seeds++
	s.Steps += r.Steps
	s.Events += r.Events
	s.Messages += r.Messages
	s.Transfers += r.Transfers
	s.Grants += r.Grants
	s.Commands += r.Commands
	s.Chunks += r.Chunks
	s.Simulated += r.Simulated
	s.Hash += LogHash(draw.Mix(r.Seed, r.Hash))
	mergeCounts(s.Faults, r.Faults)
	s.Coverage.Merge(&r.Coverage)
	s.judgementsIn(r.Profile).AddRun(&r.Coverage)
	if r.Failure != nil {
		s.Failed++
		s.Properties[r.Failure.Property]++
		s.keepFirst(r.Failure)
	}
}

// keepFirst keeps the failure of the lowest seed.
func (s *Summary) keepFirst(f *Failure) {
	if s.First == nil || f != nil && f.Seed < s.First.Seed {
		s.First = f
	}
}

// Merge adds the summary of another part of the same campaign. The caller has checked that both have the same profile
// and no seed in common.
func (s *Summary) Merge(o *Summary) {
	s.Seeds += o.Seeds
	s.Failed += o.Failed
	s.Steps += o.Steps
	s.Events += o.Events
	s.Messages += o.Messages
	s.Transfers += o.Transfers
	s.Grants += o.Grants
	s.Commands += o.Commands
	s.Chunks += o.Chunks
	s.Simulated += o.Simulated
	s.Hash += o.Hash
	mergeCounts(s.Faults, o.Faults)
	mergeCounts(s.Properties, o.Properties)
	s.Coverage.Merge(&o.Coverage)
	for profile, j := range o.Judgements {
		s.judgementsIn(profile).Merge(j)
	}
	s.keepFirst(o.First)
}

// judgementsIn returns the judgements in a profile.
func (s *Summary) judgementsIn(profile string) *oracle.Judgements {
	if s.Judgements == nil {
		s.Judgements = map[string]*oracle.Judgements{} // The summary was read from JSON that has none.
	}
	j := s.Judgements[profile]
	if j == nil {
		j = &oracle.Judgements{}
		s.Judgements[profile] = j
	}
	return j
}

func mergeCounts[K comparable](to, from map[K]uint64) {
	for k, n := range from {
		to[k] += n
	}
}

// MissedConjunctions returns the required conjunctions, which are combinations of rare events, that no seed of the
// summary met. A campaign of about ten thousand seeds should meet all of them; after few seeds the list means nothing.
func (s *Summary) MissedConjunctions() []Conjunction {
	reached := s.Coverage.Counts("conjunction")
	return slices.DeleteFunc(RequiredConjunctions(s.Profile), func(c Conjunction) bool { return reached[c.String()] > 0 })
}
