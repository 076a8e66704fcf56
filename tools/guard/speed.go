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

// A bench is a benchmark of what a step takes, and how often it is run at a time: both sides do the same work.
type bench struct{ pkg, name, times string }

var benches = []bench{
	{"./fsm/rank", "Push1", "100000x"}, {"./fsm/rank", "Push64", "5000x"}, {"./sim", "Steps", "300x"},
}

// units are those of the figures that are compared.
var units = []string{"ns/step", "steps/s", "allocs/op"}

// samples are the figures of a benchmark, by its name and the unit.
type samples map[string][]float64

// speed runs benchmarks of a commit and of this tree in turns and prints the best of each, and the least processor time
// that they took: a machine that others use is now faster and now slower. It judges nothing.
func speed(w io.Writer, args []string) error {
	flags := flagsOf("speed")
	before := flags.String("before", "", "the commit; if empty, the last one")
	rounds := flags.Int("rounds", 10, "how often each is run")
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
		for round := range *rounds {
			for k := range sides { // Each goes first as often as the other.
				i := (round + k) % len(sides)
				side := sides[i]
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
	for _, b := range benches {
		build := exec.Command("go", "test", "-c", "-o", filepath.Join(folder, filepath.Base(b.pkg)), b.pkg)
		build.Dir = tree
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the tests of %s: %w\n%s", b.pkg, err, out)
		}
	}
	return nil
}

func runBenches(tree, folder string, into samples) error {
	for _, b := range benches {
		run := exec.Command(filepath.Join(folder, filepath.Base(b.pkg)), "-test.run", "^$",
			"-test.bench", "^Benchmark"+b.name+"$", "-test.benchtime", b.times)
		run.Dir = filepath.Join(tree, b.pkg)
		out, err := run.Output()
		if err != nil {
			return fmt.Errorf("benchmarks of %s: %w\n%s", b.pkg, err, out)
		}
		into.add(string(out))
		took := run.ProcessState.UserTime() + run.ProcessState.SystemTime()
		into[b.name+" cpu ms"] = append(into[b.name+" cpu ms"], float64(took.Microseconds())/1000)
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
			if f, err := strconv.ParseFloat(cells[i], 64); err == nil && slices.Contains(units, cells[i+1]) {
				s[name+" "+cells[i+1]] = append(s[name+" "+cells[i+1]], f)
			}
		}
	}
}

func printSpeed(w io.Writer, commit string, before, now samples) {
	fmt.Fprintf(w, "%-20s %14s %14s  change\n", "best", commit, "here")
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if len(before[name]) == 0 {
			continue
		}
		a, b := best(name, before[name]), best(name, now[name])
		change := ""
		if a > 0 {
			change = fmt.Sprintf("%+.1f %%", 100*(b-a)/a)
		}
		fmt.Fprintf(w, "%-20s %14.1f %14.1f  %s\n", name, a, b, change)
	}
}

// best is the most of what is counted by the second, and the least of what a step takes.
func best(name string, list []float64) float64 {
	if strings.HasSuffix(name, "/s") {
		return slices.Max(list)
	}
	return slices.Min(list)
}
