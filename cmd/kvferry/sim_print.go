package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim"
)

// sections lists the kinds of counts of a campaign, in the order in which they are printed.
var sections = []struct{ name, title, of string }{
	{"fault", "faults", "kinds of faults"}, {"outcome", "outcomes", "outcomes"},
	{"transfer", "transfers", "results of transfers"}, {"fact", "facts", "facts"}, {"effect", "effects", "effects"},
	{"mark", "marks", "code marks"}, {"conjunction", "rare", "rare conjunctions"},
	{"step", "steps", "pairs of a state and an event"}, {"judged", "activity", "active checks"},
}

// countsOf returns the counts of a section.
func (r *campaignReport) countsOf(section string) map[string]uint64 {
	if section == "fault" {
		return r.Faults
	}
	return r.Coverage.Counts(section)
}

// printCampaign prints the report of a campaign: figures, counts, differences from the previous campaign if there is a
// previous campaign, and the first failure. With withCounts, it prints every count; otherwise it prints the number of
// different things in each section.
func printCampaign(w io.Writer, r *campaignReport, withCounts bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds in %.1f s: %.0f seeds/s, %.0f steps/s, %.0f s simulated (%.0f times real time)\n",
		r.Seeds, r.Seconds, r.SeedsPerSecond, r.StepsPerSecond, float64(r.Simulated)/1e9, r.SimulatedPerReal)
	fmt.Fprintf(&b, "%d steps, %d commands, %d messages, %d transfers, %d chunks verified; log hash %016x\n",
		r.Steps, r.Commands, r.Messages, r.Transfers, r.Chunks, uint64(r.Hash))
	if withCounts {
		for _, s := range sections {
			switch s.name {
			case "step":
				printSteps(&b, r.countsOf(s.name))
			case "judged":
				printActivity(&b, r.countsOf(s.name), r.countsOf("void"))
			default:
				printCounts(&b, s.title, r.countsOf(s.name))
			}
		}
	} else {
		var summaries []string
		for _, s := range sections {
			summaries = append(summaries, fmt.Sprintf("%d %s", len(r.countsOf(s.name)), s.of))
		}
		printList(&b, "covered", summaries)
		fmt.Fprintf(&b, "%-10s--coverage prints the counts\n", "")
	}
	if unmet := r.MissedConjunctions(); len(unmet) > 0 {
		fmt.Fprintf(&b, "%-10s%v\n", "never met", unmet)
	}
	printVoidObligations(&b, r, withCounts)
	if r.previous != nil {
		printDifferences(&b, r.previous, r)
	}
	if r.Interrupted != "" {
		fmt.Fprintf(&b, "interrupted by %s after %d seeds; requested: %s\n", r.Interrupted, r.Seeds, r.Requested)
	}
	switch {
	case r.First == nil && r.Interrupted != "":
		b.WriteString("no promise was broken so far\n")
	case r.First == nil:
		b.WriteString("every promise held\n")
	default:
		printCounts(&b, "broken", r.Properties)
		fmt.Fprintf(&b, "%d of %d seeds failed; the first is seed %d:\n\n%s", r.Failed, r.Seeds, r.First.Seed, r.First)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printVoidObligations prints which settings no check has looked at in a campaign of all profiles. A campaign of one
// profile leaves many void, because the profile lacks most kinds of machines.
func printVoidObligations(b *strings.Builder, r *campaignReport, complete bool) {
	void := r.VoidObligations()
	if r.Profile != sim.MixedProfile || len(void) == 0 {
		return
	}
	const listedMax = 10
	if !complete && len(void) > listedMax {
		printList(b, "void", []string{fmt.Sprintf("%d sides of settings, which nothing judged", len(void))})
		return
	}
	var entries []string
	for _, v := range void {
		entries = append(entries, fmt.Sprintf("%s (%s)", v.Field, v.Side))
	}
	printList(b, "void", entries)
}

// printSteps prints the number of events that the state machines received, by situation.
func printSteps(b *strings.Builder, counts map[string]uint64) {
	fmt.Fprintf(b, "%-10s%d pairs of a state and an event\n", "steps", len(counts))
	lastSituation := ""
	for _, pair := range slices.Sorted(maps.Keys(counts)) {
		situation, event, _ := strings.Cut(pair, " × ")
		if situation != lastSituation {
			fmt.Fprintf(b, "  %s\n", situation)
			lastSituation = situation
		}
		fmt.Fprintf(b, "    %-14s %d\n", event, counts[pair])
	}
}

// printActivity prints for each check of the oracles how often the check had data to judge, and how often it had none.
func printActivity(b *strings.Builder, judged, idle map[string]uint64) {
	fmt.Fprintf(b, "%-10s%d checks had data\n", "activity", len(judged))
	checks := maps.Clone(judged)
	maps.Copy(checks, idle)
	for _, check := range slices.Sorted(maps.Keys(checks)) {
		fmt.Fprintf(b, "  %-44s %10d, without data %d\n", check, judged[check], idle[check])
	}
}

func printCounts(b *strings.Builder, name string, counts map[string]uint64) {
	var entries []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		entries = append(entries, fmt.Sprintf("%s %d", k, counts[k]))
	}
	printList(b, name, entries)
}

// printList prints a list in lines that fit a screen. The first line begins with the list's name.
func printList(b *strings.Builder, name string, entries []string) {
	const indent, columns = 10, 110
	fmt.Fprintf(b, "%-*s", indent, name)
	column := indent
	for i, entry := range entries {
		if i > 0 {
			b.WriteByte(',')
			if column += len(", ") + len(entry); column <= columns {
				b.WriteByte(' ')
			} else {
				fmt.Fprintf(b, "\n%*s", indent, "")
				column = indent + len(entry)
			}
		} else {
			column += len(entry)
		}
		b.WriteString(entry)
	}
	b.WriteByte('\n')
}
