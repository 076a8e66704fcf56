package plan

import "time"

// Tuning is what bounds a rank inside (rank.Tuning): how much at a time, how often again. What is left out, or 0, is
// what a machine has by default.
type Tuning struct {
	Settle    uint32        `yaml:"settle,omitempty"`    // deadlines and changed peers in one step
	Attempts  uint32        `yaml:"attempts,omitempty"`  // how often a put or a recall is asked or offered
	Tells     uint32        `yaml:"tells,omitempty"`     // tries to hand the proxy one word
	Notifies  uint32        `yaml:"notifies,omitempty"`  // tries to tell one end of an offer
	Renews    uint32        `yaml:"renews,omitempty"`    // leases in one renewal
	Leftovers uint32        `yaml:"leftovers,omitempty"` // completions that former attempts at a peer may owe
	Plains    uint32        `yaml:"plains,omitempty"`    // plain peers at a time
	Breakers  uint32        `yaml:"breakers,omitempty"`  // addresses left alone at a time, for each peer there may be
	SpokeFor  time.Duration `yaml:"spoke_for,omitempty"` // how much longer a peer that spoke keeps its place
}

// counts are its counts, by their names in a plan.
func (t *Tuning) counts() []struct {
	name string
	v    *uint32
} {
	return []struct {
		name string
		v    *uint32
	}{
		{"settle", &t.Settle}, {"attempts", &t.Attempts}, {"tells", &t.Tells},
		{"notifies", &t.Notifies}, {"renews", &t.Renews}, {"leftovers", &t.Leftovers}, {"plains", &t.Plains},
		{"breakers", &t.Breakers},
	}
}

func (t *Tuning) check(c *checker) {
	for _, f := range t.counts() {
		within(c, "tuning."+f.name, *f.v, 0, 1<<16)
	}
	within(c, "tuning.spoke_for", t.SpokeFor, 0, spanMax)
}
