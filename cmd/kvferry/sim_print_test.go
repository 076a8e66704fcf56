package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/report"
	"github.com/kvferry/kvferry/sim/trace"
)

// The counts of sim run are broken into lines that fit a screen, and no entry is lost at a line break.
func TestCountsStandInLines(t *testing.T) {
	counts := map[string]uint64{}
	for i := range 100 {
		counts[fmt.Sprintf("room/mark-%d", i)] = uint64(i)
	}
	var b strings.Builder
	printCounts(&b, "marks", counts)
	for line := range strings.Lines(b.String()) {
		if len(line) > 120 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	entries := strings.Split(strings.Join(strings.Fields(b.String())[1:], " "), ", ")
	for _, e := range entries {
		name, n, _ := strings.Cut(e, " ")
		if fmt.Sprint(counts[name]) != n {
			t.Errorf("%q is none of the counts", e)
		}
		delete(counts, name)
	}
	if len(counts) > 0 {
		t.Errorf("%v are lost", counts)
	}
}

// A campaign lists the things that only it met and the things that only the earlier campaign met, and nothing else.
func TestWhatAnEarlierCampaignDidNotMeet(t *testing.T) {
	of := func(faults map[string]uint64) *campaignReport {
		return &campaignReport{Summary: sim.Summary{Profile: "calm", Seeds: 7, Faults: faults}}
	}
	path := filepath.Join(t.TempDir(), "new", "campaign.json")
	if before, err := readPrevious(path, "calm"); before != nil || err != nil {
		t.Fatalf("of no file: %v, %v", before, err)
	}
	if err := savePrevious(path, of(map[string]uint64{"crash": 3, "pause": 2, "noise": 0})); err != nil {
		t.Fatal(err)
	}
	before, err := readPrevious(path, "calm")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		now  map[string]uint64
		want string
	}{
		{map[string]uint64{"crash": 9, "pause": 1}, "before    the same was met in 7 seeds\n"},
		{map[string]uint64{"crash": 1, "noise": 4},
			"before    7 seeds\nnew       fault \"noise\" 4\ngone      fault \"pause\" 2\n"},
	} {
		var b strings.Builder
		if printDifferences(&b, before, of(c.now)); b.String() != c.want {
			t.Errorf("got\n%s\nwant\n%s", b.String(), c.want)
		}
	}
	if _, err := readPrevious(path, "full"); err == nil || !strings.Contains(err.Error(), `"calm"`) {
		t.Errorf("another profile: %v", err)
	}
	if _, err := readPrevious(filepath.Join(path, "below", "a-file"), "calm"); !errors.As(err, new(usageError)) ||
		!strings.Contains(err.Error(), "name a file elsewhere") {
		t.Errorf("no folder: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readPrevious(path, "calm"); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), path) {
		t.Errorf("half a file: %v", err)
	}
}

// If a property has no promise text, because a user has defined it, the page of a violation omits the text.
func TestPageOfAPropertyWithoutWords(t *testing.T) {
	var page bytes.Buffer
	of := &trace.Trace{Title: "seed 1", Violation: &trace.Violation{Property: "mine", Story: "it was broken"}}
	if err := report.Write(&page, of); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page.String(), "<dt>Promised</dt><dd><b>(mine)</b></dd>") {
		_, promised, _ := strings.Cut(page.String(), "<dt>Promised</dt>")
		t.Errorf("the page says %.80q", promised)
	}
}
