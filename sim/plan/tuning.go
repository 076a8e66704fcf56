package plan

import "time"

// Tuning holds the inner bounds of a rank (rank.Tuning): sizes of batches and numbers of attempts. A field that is left
// out, or is 0, stands for the machine's default.
type Tuning struct {
	Settle          uint32        `yaml:"settle,omitempty"`    // deadlines and changed peers that one step handles
	Attempts        uint32        `yaml:"attempts,omitempty"`  // attempts of a put or a recall
	Tells           uint32        `yaml:"tells,omitempty"`     // attempts to send one message to the proxy
	Notifies        uint32        `yaml:"notifies,omitempty"`  // attempts to send one done message
	Renews          uint32        `yaml:"renews,omitempty"`    // leases in one renewal
	Leftovers       uint32        `yaml:"leftovers,omitempty"` // completions that earlier attempts at a peer may still owe
	Plains          uint32        `yaml:"plains,omitempty"`    // plain peers at a time
	Breakers        uint32        `yaml:"breakers,omitempty"`  // addresses with an open breaker, for each possible peer
	ProvenPeerBonus time.Duration `yaml:"spoke_for,omitempty"` // how much longer a peer that has spoken keeps its place
}

// countFields returns the counts with their names in a plan.
func (t *Tuning) countFields() []struct {
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

func (t *Tuning) checkTuning(c *checker) {
	for _, f := range t.countFields() {
		checkRange(c, "tuning."+f.name, *f.v, 0, 1<<16)
	}
	checkRange(c, "tuning.spoke_for", t.ProvenPeerBonus, 0, spanMax)
}
