package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/report"
	"github.com/kvferry/kvferry/sim/trace"
)

// What `sim run` counts stands in lines that a screen has, and nothing of it is lost at their ends.
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

// The page of a property that is its user's own, and has no promise in words, does not say that there is none such.
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
