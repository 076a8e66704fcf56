package sim

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// TestEndings: over some hundred seeds every legal ending of the effects that have
// several must occur, every fault must bite, and every fact must be told. A simulator
// that stopped to be unkind would fail here first.
func TestEndings(t *testing.T) {
	var all Summary
	for _, profile := range []string{"swarm", "leased"} {
		s, err := Campaign(CampaignOptions{Seeds: 400, Workers: 2, Profile: profile})
		if err != nil {
			t.Fatal(err)
		}
		if s.First != nil {
			t.Fatal(s.First)
		}
		if all.Faults == nil {
			all = s
			continue
		}
		addCounts(all.Faults, s.Faults)
		addCounts(all.Coverage.Facts, s.Coverage.Facts)
		addCounts(all.Coverage.Codes, s.Coverage.Codes)
		addCounts(all.Coverage.Outcomes, s.Coverage.Outcomes)
	}
	for f := Fault(1); f < faultKinds; f++ {
		if all.Faults[f.String()] == 0 {
			t.Errorf("no seed injected the fault %q", f)
		}
	}
	for f := effects.FactLinkUp; f <= effects.FactMalformed; f++ {
		if all.Coverage.Facts[f] == 0 {
			t.Errorf("no seed observed %s", f)
		}
	}
	for _, c := range []effects.Code{effects.OK, effects.Expired, effects.Cancelled, effects.PeerLost, effects.Faulted} {
		if all.Coverage.Codes[c] == 0 {
			t.Errorf("no transfer ended as %s", c)
		}
	}
	for _, o := range []string{"put ok", "put expired", "put cancelled", "put no_memory", "put mismatch", "put withdrawn",
		"put peer_lost", "put faulted", "put too_many", "get ok", "get not_found", "get cancelled", "reserve ok",
		"reserve no_memory", "reserve cancelled", "release ok", "release not_found", "unpin ok", "unpin not_found",
		"contains ok", "abandon ok", "drain ok"} {
		if all.Coverage.Outcomes[o] == 0 {
			t.Errorf("no command ended as %q", o)
		}
	}
}
