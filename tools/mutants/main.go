// Command mutants puts known defects back, one at a time, and demands that the simulator finds each.
//
// A mutant is a patch file in sim/mutants. Above its diff it says in a few lines what it breaks:
//
//	What: the page is free although a write may still land.
//	Property: S4
//	Like: rule M1; sglang#24527
//	Profile: leased
//
// What is printed beside the result; Profile is the simulator's, if not swarm; Property, which may name several
// or be absent, is what the simulator's report must mention. The patch is applied to a scratch copy of the work tree,
// the command built from it, and `kvferry sim run` must end with exit code 1. A patch that no longer applies or
// compiles fails too: it guards nothing any more.
//
// A line Scope names a small world instead: the defect takes an order of things that seeds do not come upon, and
// `kvferry sim explore` must find it there, and nothing without the patch.
//
// A line «Plan: kept» says that neither finds it soon enough: then its kept plan must break under the patch, and
// nothing without it.
//
// A line «Test: TestLock» says that ranks do not meet the defect: it is in what machines of users run in. Then that
// test of package sim must fail under the patch, and pass without it.
//
// With -run some of them are looked for, and -list then rewrites what it says of them alone: a hunt of all takes long.
//
// With -quick each is looked for from the seed on that the list says finds it: a tenth of the time, for whoever moved
// the code that a patch touches and changed none of what it does (tools/guard). -fallback looks for what is not found
// so in full.
//
// usage: go run ./tools/mutants [-quick [-fallback]] [-seeds 2000] [-run REGEXP] [-list docs/mutants.md]
package main

import (
	"cmp"
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
	plans := flag.String("plans", "sim/testdata/regressions",
		"folder of the kept plans; a mutant's has its name, and must break under its patch")
	list := flag.String("list", "",
		"a document with a list between two comments, in which what was looked for is written anew; with -quick, "+
			"which only reads it, docs/mutants.md if empty")
	quick := flag.Bool("quick", false, "look for each from the seed on that found it before, and nowhere else")
	fallback := flag.Bool("fallback", false, "with -quick: look in full for what is not found so")
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
	o := options{timeout: *timeout, plans: *plans, keep: *keep, fallback: *fallback}
	var finds []find
	var failed int
	if *quick {
		finds, failed, err = quickHunt(ctx, os.Stdout, mutants, cmp.Or(*list, "docs/mutants.md"), *seeds, o)
	} else {
		finds, failed, err = hunt(ctx, os.Stdout, mutants, *seeds, o)
	}
	stop()
	if err != nil {
		fail(err)
	}
	fmt.Printf("%d passed, %d failed\n", len(finds), failed)
	if !*quick { // Which does not count how many seeds fail.
		sumUp(finds, *list, *dir, *seeds)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// sumUp says what the finds come to, and writes them into the list, if there is one.
func sumUp(finds []find, list, dir string, seeds int) {
	var rows []row
	for _, f := range finds {
		rows = append(rows, f.row())
	}
	fmt.Println(summarise(rows))
	if list == "" {
		return
	}
	isPatch := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name+".patch"))
		return err == nil
	}
	if err := rewrite(list, finds, seeds, isPatch); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	os.Exit(1)
}
