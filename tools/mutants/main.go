// Command mutants puts known defects back, one at a time, and demands that the simulator finds each.
//
// A mutant is a patch file in sim/mutants. Above its diff it says in a few lines what it breaks:
//
//	What: the page is free although a write may still land.
//	Property: S4
//	Like: rule M1; sglang#24527
//	Profile: leased
//
// What is printed beside the result; Profile is the simulator's, if not the default; Property, which may name several or be absent, is what the
// simulator's report must mention. The patch is applied to a scratch copy of the work tree, the
// command built from it, and `kvferry sim run` must end with exit code 1. A patch that no longer
// applies or compiles fails too: it guards nothing any more.
//
// A line Scope names a small world instead: the defect takes an order of things that seeds do not come upon, and
// `kvferry sim explore` must find it there, and nothing without the patch.
//
// A line «Plan: kept» says that neither finds it soon enough: then its kept plan must break under the patch, and nothing
// without it.
//
// usage: go run ./tools/mutants [-seeds 2000] [-run REGEXP] [-dir sim/mutants] [-table docs/mutants.md]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	seeds := flag.Int("seeds", 2000, "seeds within which each defect must be found")
	pattern := flag.String("run", ".", "only mutants whose file name matches this regular expression")
	dir := flag.String("dir", "sim/mutants", "folder of the patch files")
	timeout := flag.Duration("timeout", 5*time.Minute, "the longest that one mutant may take to build, and to be found")
	plans := flag.String("plans", "sim/testdata/regressions", "folder of the kept plans; a mutant's has its name, and must break under its patch")
	table := flag.String("table", "", "a document whose table of defects is written anew, between its two comments")
	keep := flag.Bool("keep", false, "write the kept plans of the mutants that are found anew")
	flag.Parse()
	only, err := regexp.Compile(*pattern)
	if err != nil {
		fail(err)
	}
	patches, err := filepath.Glob(filepath.Join(*dir, "*.patch"))
	if err != nil {
		fail(err)
	}
	var mutants []mutant
	for _, path := range patches {
		if !only.MatchString(filepath.Base(path)) {
			continue
		}
		m, err := readMutant(path)
		if err != nil {
			fail(err)
		}
		mutants = append(mutants, m)
	}
	if len(mutants) == 0 {
		fail(fmt.Errorf("no patch in %s matches %q", *dir, *pattern))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	finds, failed, err := hunt(ctx, os.Stdout, mutants, *seeds, options{timeout: *timeout, plans: *plans, keep: *keep})
	stop()
	if err != nil {
		fail(err)
	}
	fmt.Printf("%d passed, %d failed\n%s\n", len(finds), failed, summarise(finds))
	switch {
	case failed > 0:
		os.Exit(1)
	case *table != "":
		if err := rewrite(*table, finds, *seeds); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	os.Exit(1)
}
