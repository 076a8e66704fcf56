package sim

import (
	"bytes"
	_ "embed" // for obligations.yaml
	"fmt"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/sim/oracle"
)

// An Obligation says which checks look at a configured time, limit, quota or share of a machine.
type Obligation struct {
	Field   string     `yaml:"field"`             // folder, type and name of the setting
	Kind    string     `yaml:"kind"`              // time, limit, share, mode, identity or tuning
	Drawn   string     `yaml:"drawn"`             // where the simulator varies the setting, or "fixed"
	Judges  []Judgment `yaml:"judges,omitempty"`  // the checks that depend on its value
	Missing string     `yaml:"missing,omitempty"` // what no check looks at
	None    string     `yaml:"none,omitempty"`    // why no check is possible
}

// A Judgment is one side of an obligation with the check that looks at it.
type Judgment struct {
	Side  string `yaml:"side"`  // not before, not after, at most, at least, as stated
	Check string `yaml:"check"` // the name of the check, or EveryStep
	How   string `yaml:"how"`
}

// EveryStep is the check of limits that need none: a machine whose table is full, or that is in an impossible state,
// panics, and a panic ends the run.
const EveryStep = "panic"

//go:embed obligations.yaml
var obligationsText []byte

// Obligations returns the obligations of all settings, in the order of the table. The caller must not change them.
var Obligations = sync.OnceValue(func() (all []Obligation) {
	decoder := yaml.NewDecoder(bytes.NewReader(obligationsText))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil {
		panic(fmt.Sprintf("BUG: sim/obligations.yaml: %v", err))
	}
	return all
})

// A Void is a side of an obligation that nothing judged in a campaign.
type Void struct {
	Field string
	Judgment
}

// VoidObligations returns the sides of obligations whose checks judged nothing in the campaign. A campaign of one
// profile leaves many sides void, because the profile has no machines of that kind; a campaign of all profiles and some
// ten thousand seeds should leave none.
func (s *Summary) VoidObligations() (void []Void) {
	judged := map[string]bool{EveryStep: s.Steps > 0}
	for _, j := range s.Judgements {
		for _, c := range oracle.Checks() {
			if n, _ := j.CountsOf(c); n > 0 {
				judged[c.String()] = true
			}
		}
	}
	for _, o := range Obligations() {
		for _, j := range o.Judges {
			if s.Profile == MixedProfile && strings.HasPrefix(j.Check, "fleet: ") {
				continue // No seed of a mixed campaign has the profile fleet.
			}
			if !judged[j.Check] {
				void = append(void, Void{o.Field, j})
			}
		}
	}
	return void
}
