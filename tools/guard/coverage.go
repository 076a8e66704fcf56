package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/sim"
)

// namesFile says which words of coverage points are called otherwise now.
const namesFile = "tools/guard/names.txt"

// A counts has how often each path was taken, by profile and the name of its point: "swarm: mark receiver/...".
type counts map[string]uint64

// printCounts prints what the first seeds of each profile count.
func printCounts(w io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("counts wants how many seeds, not %q", args)
	}
	seeds, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	for _, profile := range sim.Profiles() {
		s, err := sim.Campaign(context.Background(), sim.CampaignOptions{Seeds: seeds, Workers: cores(), Profile: profile})
		if err != nil {
			return err
		}
		points := s.Coverage.Counts("")
		for _, name := range slices.Sorted(maps.Keys(points)) {
			fmt.Fprintf(w, "%d %s: %s\n", points[name], profile, name)
		}
	}
	return nil
}

// coverage compares the counts with those of another commit, whose names are first made those of today.
func coverage(w io.Writer, args []string) error {
	flags := flagsOf("coverage")
	seeds := flags.Uint64("seeds", 200, "how many seeds of each profile")
	before := flags.String("before", "", "the commit; if empty, the last one")
	if names, err := parse(flags, args); err != nil || len(names) > 0 {
		return errors.Join(err, unknown(names))
	}
	text, err := os.ReadFile(namesFile)
	if err != nil {
		return err
	}
	renames, err := parseRenames(string(text))
	if err != nil {
		return err
	}
	commits, err := commitsBefore(*before)
	if err != nil {
		return err
	}
	old, err := binaryOf(commits[0])
	if err != nil {
		return err
	}
	here, there, err := both(old, "counts", printCounts, fmt.Sprint(*seeds))
	if err != nil {
		return err
	}
	differ := compareCounts(w, countsOf(there, renames), countsOf(here, nil))
	fmt.Fprintf(w, "%d paths are taken here, %d not as often as in %s\n", len(here), differ, commits[0])
	if differ > 0 {
		return errFound
	}
	return nil
}

// compareCounts says which counts differ.
func compareCounts(w io.Writer, before, now counts) (differ int) {
	both := maps.Clone(before)
	maps.Copy(both, now)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if before[name] != now[name] {
			differ++
			fmt.Fprintf(w, "differs: %s: %d times, and %d before\n", name, now[name], before[name])
		}
	}
	return differ
}

// countsOf reads lines of a number and a name. What two old names became one is added up.
func countsOf(lines []string, renames []rename) counts {
	all := counts{}
	for _, line := range lines {
		number, name, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			continue // An empty line, the only other one that there is.
		}
		for _, r := range renames {
			name = r.old.ReplaceAllLiteralString(name, r.now)
		}
		all[name] += n
	}
	return all
}

// A rename gives words of a name others.
type rename struct {
	old *regexp.Regexp
	now string
}

// parseRenames reads lines "old words => new words". They are applied in their order, to whole words.
func parseRenames(text string) (renames []rename, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		old, now, ok := strings.Cut(line, "=>")
		old, now = strings.TrimSpace(old), strings.TrimSpace(now)
		if !ok || old == "" || now == "" {
			return nil, fmt.Errorf("%s: the line is %q; want old words => new words", namesFile, line)
		}
		renames = append(renames, rename{regexp.MustCompile(`\b` + regexp.QuoteMeta(old) + `\b`), now})
	}
	return renames, nil
}
