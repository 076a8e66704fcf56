package demo

import (
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// Each wanted chunk is counted once, and each computed chunk has one reason.
func TestWhatBecameOfChunks(t *testing.T) {
	j := &job{keys: make([]string, 10)}
	for _, c := range []struct {
		name        string
		looked, got agent.Response
		local, peer int64
		why         string
	}{
		{"all here", agent.Response{Code: "ok", Hits: 10}, agent.Response{Code: "ok", Hits: 10}, 10, 0, ""},
		{"a part brought", agent.Response{Code: "ok", Hits: 2, Elsewhere: 6}, agent.Response{Code: "not_found", Hits: 6}, 2,
			4,
			"nobody has it"},
		{"who had it is dead", agent.Response{Code: "ok", Elsewhere: 6}, agent.Response{Code: "not_found"}, 0, 0,
			"gone since a directory heard of it"},
		{"no directory", agent.Response{Code: "not_found"}, agent.Response{Code: "not_found"}, 0, 0, "lookup: not_found"},
		{"no time", agent.Response{Code: "ok"}, agent.Response{Code: "expired"}, 0, 0, "bring: expired"},
		{"given up since", agent.Response{Code: "ok", Hits: 5}, agent.Response{Code: "not_found", Hits: 3}, 3, 0,
			"nobody has it"},
	} {
		s := newSharingTally(1)
		s.addServed(j, &c.looked, &c.got, 1)
		computed := int64(len(j.keys)) - c.local - c.peer
		if r := &s.r; r.Wanted != 10 || r.LocalHits != c.local || r.PeerHits != c.peer || r.Computed != computed ||
			r.Misses[c.why] != computed {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

func TestSharedReportOfNothingIsNotOK(t *testing.T) {
	report := func(change func(*SharingReport)) *SharingReport {
		s := &sharingPlayer{options: &SharingOptions{}, tally: newSharingTally(1)}
		s.tally.r.PeerHits = 1
		change(&s.tally.r)
		return s.finishReport(1, nil, nil)
	}
	if !report(func(*SharingReport) {}).OK {
		t.Error("a clean replay is not ok")
	}
	for _, change := range []func(*SharingReport){
		func(r *SharingReport) { r.PeerHits = 0 }, func(r *SharingReport) { r.BytesWrong = 1 },
		func(r *SharingReport) { r.Lost = 1 }, func(r *SharingReport) { r.Pinned = []string{"x"} },
		func(r *SharingReport) { r.Unclean = []string{"x"} }, func(r *SharingReport) { r.Passed = 1 },
	} {
		if r := report(change); r.OK {
			t.Errorf("ok although %+v", r)
		}
	}
}
