package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// quickSeeds is how many seeds of each profile -quick runs.
const quickSeeds = 100

// check runs what is kept and compares.
func check(w io.Writer, args []string) error {
	flags := flagsOf("check")
	quick := flags.Bool("quick", false, fmt.Sprintf("run %d seeds of each profile", quickSeeds))
	seeds := flags.Uint64("seeds", seedsKept, "how many seeds of each profile")
	profile := flags.String("profile", "", "the profile; all if empty")
	before := flags.String("before", "", "the commit that a difference is shown against; if empty, the last one")
	scopes := flags.Bool("scopes", false, fmt.Sprintf("explore scopes of up to %d transitions", manyTransitions))
	if names, err := parse(flags, args); err != nil || len(names) > 0 {
		return errors.Join(err, unknown(names))
	}
	if *quick {
		*seeds = quickSeeds
	}
	profiles, err := profilesOf(*profile)
	if err != nil {
		return err
	}
	kept, err := readHashes(hashesFile)
	if err != nil {
		return err
	}
	blocks, err := kept.first(profiles, *seeds)
	if err != nil {
		return err
	}
	most := fewTransitions
	if *scopes {
		most = manyTransitions
	}
	rows, err := readFigures(figuresFile, most)
	if err != nil {
		return err
	}
	differs, err := compare(w, kept, blocks)
	if err != nil {
		return err
	}
	if len(differs) > 0 {
		if err := explain(w, differs[0], *before); err != nil {
			fmt.Fprintf(w, "which line differs could not be found out: %v\n", err) // That something does stands.
		}
	}
	others, err := compareFigures(w, rows)
	if err != nil {
		return err
	}
	passed := true
	if !*quick {
		if passed, err = told(w); err != nil {
			return err
		}
	}
	if len(differs) > 0 || others > 0 || !passed {
		return errFound
	}
	return nil
}

// compare runs blocks and returns those that differ.
func compare(w io.Writer, kept hashes, blocks []block) (differs []block, err error) {
	start := time.Now()
	folds, err := runAll(blocks, cores())
	if err != nil {
		return nil, err
	}
	steps := uint64(0)
	for i, b := range blocks {
		steps += folds[i].steps
		if folds[i].hash == kept[b] {
			continue
		}
		differs = append(differs, b)
		fmt.Fprintf(w, "differs: %s\n", b)
		if f := folds[i].failed; f != nil {
			fmt.Fprintf(w, "  seed %d breaks %s: %s\n", f.Seed, f.Property, f.Story)
		}
	}
	seconds := time.Since(start).Seconds()
	fmt.Fprintf(w, "%d seeds, %d blocks differ, %.1f s, %.2f M steps/s\n", len(blocks)*blockSeeds, len(differs), seconds,
		float64(steps)/seconds/1e6)
	return differs, nil
}
