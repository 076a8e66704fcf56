package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// sections of the coverage, as they are printed.
var sections = []struct{ name, title string }{
	{"outcome", "outcomes"}, {"transfer", "transfers"}, {"fact", "facts"}, {"effect", "effects"}, {"mark", "marks"},
}

// printCampaign tells what a campaign did, and how its first failure went; with steps, also what the
// machines were given in which state.
func printCampaign(w io.Writer, r *campaignReport, steps bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds in %.1f s: %.0f seeds/s, %.0f steps/s, %.0f s simulated (%.0f times real time)\n",
		r.Seeds, r.Seconds, r.SeedsPerSecond, r.StepsPerSecond, float64(r.Simulated)/1e9, r.SimulatedPerReal)
	fmt.Fprintf(&b, "%d steps, %d commands, %d messages, %d transfers, %d chunks verified; log hash %016x\n",
		r.Steps, r.Commands, r.Messages, r.Transfers, r.Chunks, uint64(r.Hash))
	printCounts(&b, "faults", r.Faults)
	for _, s := range sections {
		printCounts(&b, s.title, r.Coverage.Counts(s.name))
	}
	printCounts(&b, "rare", r.Coverage.Counts("conjunction"))
	if unmet := r.Unmet(); len(unmet) > 0 {
		fmt.Fprintf(&b, "%-10s%v\n", "never", unmet)
	}
	printSteps(&b, r.Coverage.Counts("step"), steps)
	if r.First == nil {
		b.WriteString("every promise held\n")
	} else {
		printCounts(&b, "broken", r.Properties)
		fmt.Fprintf(&b, "%d of %d seeds failed; the first is seed %d:\n\n%s", r.Failed, r.Seeds, r.First.Seed, r.First)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printSteps prints the events that machines were given by situation, or how many such pairs there were.
func printSteps(b *strings.Builder, counts map[string]uint64, all bool) {
	fmt.Fprintf(b, "%-10s%d pairs of a situation and an event\n", "steps", len(counts))
	if !all {
		return
	}
	last := ""
	for _, pair := range slices.Sorted(maps.Keys(counts)) {
		situation, event, _ := strings.Cut(pair, " × ")
		if situation != last {
			fmt.Fprintf(b, "  %s\n", situation)
			last = situation
		}
		fmt.Fprintf(b, "    %-14s %d\n", event, counts[pair])
	}
}

func printCounts(b *strings.Builder, name string, counts map[string]uint64) {
	const indent, columns = 10, 110
	fmt.Fprintf(b, "%-*s", indent, name)
	column := indent
	for i, k := range slices.Sorted(maps.Keys(counts)) {
		entry := fmt.Sprintf("%s %d", k, counts[k])
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
