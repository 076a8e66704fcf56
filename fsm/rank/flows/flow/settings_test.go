package flow_test

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
)

// TestReadLeasesLastAsLongAsTenOffers: a read lease may be renewed until ten times the time for which an offer stands,
// unless a longer or shorter limit is configured.
func TestReadLeasesLastAsLongAsTenOffers(t *testing.T) {
	const offer = 360 * effects.Second
	var derived flow.Settings
	derived.Fill(offer)
	if derived.ReadLeaseMax != 10*offer {
		t.Errorf("the limit is %v, want ten times %v", derived.ReadLeaseMax, offer)
	}
	configured := flow.Settings{ReadLeaseMax: 600 * effects.Second}
	configured.Fill(offer)
	if configured.ReadLeaseMax != 600*effects.Second {
		t.Errorf("the limit is %v, want the configured 600 s", configured.ReadLeaseMax)
	}
}
