package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A bench is a package's benchmarks of what a step takes.
type bench struct {
	pkg, match string
	times      string // as -benchtime wants it: seeds are counted, so that both sides run the same
}

var benches = []bench{{"./fsm/rank", "Push", "100ms"}, {"./sim", "Steps", "100x"}}

// samples are the figures of a benchmark, by its name and the unit.
type samples map[string][]float64

// speed runs benchmarks of a commit and of this tree in turns, for a machine that others use is now faster and now
// slower, and prints the medians. It judges nothing.
func speed(w io.Writer, args []string) error {
	flags := flagsOf("speed")
	before := flags.String("before", "", "the commit; if empty, the last one")
	rounds := flags.Int("rounds", 6, "how often each is run")
	if names, err := parse(flags, args); err != nil || len(names) > 0 {
		return errors.Join(err, unknown(names))
	}
	commits, err := commitsBefore(*before)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "kvferry-speed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // The system clears its temporary folder too.
	err = inTreeOf(commits[0], func(tree string) error {
		sides := []string{tree, root}
		measured := []samples{{}, {}}
		for i, side := range sides {
			if err := buildBenches(side, filepath.Join(folder, fmt.Sprint(i))); err != nil {
				return err
			}
		}
		for range *rounds {
			for i, side := range sides {
				if err := runBenches(side, filepath.Join(folder, fmt.Sprint(i)), measured[i]); err != nil {
					return err
				}
			}
		}
		printSpeed(w, commits[0], measured[0], measured[1])
		return nil
	})
	return err
}

func buildBenches(tree, folder string) error {
	for i, b := range benches {
		build := exec.Command("go", "test", "-c", "-o", filepath.Join(folder, fmt.Sprint(i)), b.pkg)
		build.Dir = tree
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the tests of %s: %w\n%s", b.pkg, err, out)
		}
	}
	return nil
}

func runBenches(tree, folder string, into samples) error {
	for i, b := range benches {
		run := exec.Command(filepath.Join(folder, fmt.Sprint(i)), "-test.run", "^$", "-test.bench", b.match,
			"-test.benchtime", b.times)
		run.Dir = filepath.Join(tree, b.pkg)
		out, err := run.Output()
		if err != nil {
			return fmt.Errorf("benchmarks of %s: %w\n%s", b.pkg, err, out)
		}
		into.add(string(out))
	}
	return nil
}

// add reads what benchmarks print: a name, how often, and then figures with their units.
func (s samples) add(out string) {
	for line := range strings.Lines(out) {
		cells := strings.Fields(line)
		if len(cells) < 4 || !strings.HasPrefix(cells[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(cells[0], "Benchmark"), "-")
		for i := 2; i+1 < len(cells); i += 2 {
			if f, err := strconv.ParseFloat(cells[i], 64); err == nil {
				s[name+" "+cells[i+1]] = append(s[name+" "+cells[i+1]], f)
			}
		}
	}
}

func printSpeed(w io.Writer, commit string, before, now samples) {
	fmt.Fprintf(w, "%-20s %14s %14s  change\n", "median", commit, "here")
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if len(before[name]) == 0 {
			continue
		}
		a, b := median(before[name]), median(now[name])
		change := ""
		if a > 0 {
			change = fmt.Sprintf("%+.1f %%", 100*(b-a)/a)
		}
		fmt.Fprintf(w, "%-20s %14.1f %14.1f  %s\n", name, a, b, change)
	}
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[len(sorted)/2] + sorted[(len(sorted)-1)/2]) / 2
}
