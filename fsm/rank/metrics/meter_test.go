package metrics

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// TestTransferIsCounted follows the example of the package's comment: a write of two pages, and one that fails.
func TestTransferIsCounted(t *testing.T) {
	var m Meter
	m.RecordEffect(1, &effects.Import{Corr: 1, Plane: "tcp"})
	m.RecordEvent(&effects.Imported{Corr: 1, Link: 7})
	pairs := []effects.Pair{{Local: effects.Page{Length: 4096}}, {Local: effects.Page{Length: 4096}}}
	for corr, code := range []effects.Code{effects.OK, effects.Expired} {
		m.RecordEffect(10, &effects.Transfer{Corr: effects.Corr(corr + 2), Link: 7, Pairs: pairs})
		m.RecordEvent(&effects.TransferDone{Corr: effects.Corr(corr + 2), Code: code, At: 25})
		m.RecordEvent(&effects.Settled{Corr: effects.Corr(corr + 2)})
	}
	want := []Reading{
		{Transfers, [3]string{"tcp", "write", "ok"}, 1},
		{TransferBytes, [3]string{"tcp", "write"}, 8192},
		{Transfers, [3]string{"tcp", "write", "expired"}, 1},
	}
	if got := m.AppendCounters(nil); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	took := []Observation{
		{TransferDuration, [3]string{"tcp", "write", "ok"}, 15}, {TransferDuration, [3]string{"tcp", "write", "failed"}, 15},
	}
	if got := m.TakeObservations(); !slices.Equal(got, took) {
		t.Errorf("got %v, want %v", got, took)
	}
	if got := m.TakeObservations(); len(got) != 0 {
		t.Errorf("values are there twice: %v", got)
	}
}

// TestTransferOfUnknownLink counts a transfer over a link that is dropped already.
func TestTransferOfUnknownLink(t *testing.T) {
	var m Meter
	m.RecordEffect(1, &effects.Import{Corr: 1, Plane: "tcp"})
	m.RecordEvent(&effects.Imported{Corr: 1, Link: 7})
	m.RecordEvent(&effects.Dropped{Link: 7})
	m.RecordEffect(1, &effects.Transfer{Corr: 2, Link: 7, Read: true})
	m.RecordEvent(&effects.TransferDone{Corr: 2, Code: effects.PeerLost, Settled: true})
	want := []Reading{{Transfers, [3]string{PlaneNone, "read", "peer_lost"}, 1}}
	if got := m.AppendCounters(nil); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestFactsOfOthersAreIgnored checks that facts and codes of machines outside this project have no series.
func TestFactsOfOthersAreIgnored(t *testing.T) {
	var m Meter
	m.RecordEffect(1, &effects.Observe{Fact: effects.FactOther})
	m.RecordEffect(1, &effects.Observe{Fact: effects.FactReady, Code: effects.CodeCount})
	if got := m.AppendCounters(nil); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
