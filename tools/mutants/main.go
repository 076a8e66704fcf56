// Command mutants puts known defects back into the code, one at a time, and requires that the simulator finds each
// defect.
//
// The defects are the entries of sim/mutants.yaml; package table documents the format. For each entry, mutants builds
// the kvferry command with the entry's edits and runs `kvferry sim run --seeds 2000`. The build uses go build -overlay,
// which does not change the work tree. The run must end with exit code 1, and the report must mention each property
// that the entry names. An entry whose edits do not apply or do not compile has failed too, because such an entry
// guards nothing. Before the first entry, the code without defects must pass every check.
//
// Some entries name a different check that finds the defect:
//
//   - profile names the simulator's profile in which the defect shows, if the profile is not "swarm";
//   - scope names a small world. The defect needs an order of events that seeds rarely produce, and
//     `kvferry sim explore` must find the defect in the small world;
//   - plan "kept" means that neither seeds nor small worlds find the defect soon enough. The defect's kept plan in
//     sim/testdata/regressions must fail;
//   - test names a Go test and the test's folder, for example "TestLock of sim". The defect is in code that the
//     simulator's ranks do not run, and the test must fail.
//
// When a defect is found, mutants records in the field found of the entry how the defect was found, unless -record is
// false. With -keep, mutants also rewrites the kept plans in sim/testdata/regressions.
//
// With -quick, mutants runs the seed of the field found, and further seeds only until the properties are broken. This
// takes a tenth of the time, and suits a change that moves or renames code. Nothing is recorded. With -fallback, a
// defect that -quick does not find is looked for in full.
//
// With -campaign, mutants measures how well unknown defects are found: each one gets a campaign over all profiles of that
// time on one core, and then the tests of the state machines. The table may be another one, and needs no properties:
//
//	go run ./tools/mutants -table new.yaml -campaign 60s
//
// With -overlay, nothing is run. Mutants writes the changed files of the entry that -run selects into a folder, and
// `go build -overlay FOLDER/overlay.json` then builds any package with the defect.
//
// usage: go run ./tools/mutants [-quick [-fallback]] [-keep] [-seeds 2000] [-run REGEXP] [-overlay FOLDER]
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/kvferry/kvferry/tools/mutants/table"
)

func main() {
	seeds := flag.Int("seeds", 2000, "the number of seeds within which each defect must be found")
	pattern := flag.String("run", ".", "only mutants whose name matches this regular expression")
	quick := flag.Bool("quick", false, "run only the recorded seed of each defect, and further seeds until the defect is found")
	campaign := flag.Duration("campaign", 0, "look for each mutant by a campaign of this time on one core, and by tests")
	overlay := flag.String("overlay", "", "write the files that the mutants change into this folder, and run no check")
	var o options
	flag.StringVar(&o.table, "table", filepath.Join("sim", "mutants.yaml"), "the table of the mutants")
	flag.StringVar(&o.plans, "plans", "sim/testdata/regressions",
		"folder of the kept plans; a mutant's plan has its name, and must fail with its defect")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "the time limit for building one mutant, and for finding it")
	flag.BoolVar(&o.keepPlans, "keep", false, "rewrite the kept plans of the mutants that are found")
	flag.BoolVar(&o.record, "record", true, "write into the table how each mutant was found")
	flag.BoolVar(&o.fallback, "fallback", false, "with -quick: run the full check for mutants that the quick check does not find")
	flag.Parse()
	mutants, err := selectMutants(o.table, *pattern)
	if err != nil {
		exitWithError(err)
	}
	if *overlay != "" {
		if err := writeOverlay(*overlay, mutants); err != nil {
			exitWithError(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if *campaign > 0 {
		err := scoreMutants(ctx, os.Stdout, mutants, *campaign, o)
		stop()
		if err != nil {
			exitWithError(err)
		}
		return
	}
	run := huntMutants
	if *quick {
		run = quickHunt
	}
	finds, failed, err := run(ctx, os.Stdout, mutants, *seeds, o)
	stop()
	if err != nil {
		exitWithError(err)
	}
	fmt.Printf("%d passed, %d failed\n", len(finds), failed)
	if !*quick { // A quick hunt does not count how many seeds fail.
		fmt.Println(summariseFindings(finds))
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// selectMutants returns the mutants of a table whose names match.
func selectMutants(path, pattern string) ([]table.Mutant, error) {
	only, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	mutants, err := table.Read(path)
	if err != nil {
		return nil, err
	}
	mutants = slices.DeleteFunc(mutants, func(m table.Mutant) bool { return !only.MatchString(m.Name) })
	if len(mutants) == 0 {
		return nil, fmt.Errorf("no mutant in %s matches %q", path, pattern)
	}
	return mutants, nil
}

// writeOverlay writes the files that the mutants change, and prints the command that builds with them. With several
// mutants, an environment variable chooses one.
func writeOverlay(folder string, mutants []table.Mutant) error {
	changed, err := mutants[0].Apply(".")
	numbers := map[string]int{}
	if len(mutants) > 1 {
		changed, numbers, err = table.Combine(".", mutants)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	overlay, err := table.WriteOverlay(folder, ".", changed)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(changed)) {
		fmt.Println("changes", file)
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		fmt.Printf("%s=%d runs %s\n", table.ActiveVariable, numbers[name], name)
	}
	fmt.Printf("build with it: go build -overlay %s ./cmd/kvferry\n", overlay)
	return nil
}

func exitWithError(err error) {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	os.Exit(1)
}
