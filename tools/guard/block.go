package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/sim"
)

// blockSeeds is how many seeds a line of the file stands for: few enough to run them one by one when it differs.
const blockSeeds = 50

// A block is blockSeeds seeds of a profile, one after the other.
type block struct {
	profile string
	first   uint64
}

func (b block) String() string { return fmt.Sprintf("%s %d %d", b.profile, b.first, blockSeeds) }

// A fold is what came of a block.
type fold struct {
	hash   uint64       // over the lines of its seeds
	steps  uint64       // of all machines
	failed *sim.Failure // the first; nil: every promise held
}

// run runs the seeds of a block in order. What is kept of each is a line, not its result: that holds a world.
func (b block) run() (fold, error) {
	var f fold
	hash := fnv.New64a()
	for seed := b.first; seed < b.first+blockSeeds; seed++ {
		r, err := sim.Run(sim.Options{Seed: seed, Profile: b.profile})
		if err != nil {
			return f, err
		}
		fmt.Fprintln(hash, lineOf(&r))
		f.steps += r.Steps
		if f.failed == nil {
			f.failed = r.Failure
		}
	}
	f.hash = hash.Sum64()
	return f, nil
}

// lineOf is what is compared of one run. A promise that breaks is part of it: a tree that breaks one never passes for
// equal.
func lineOf(r *sim.Result) string {
	line := fmt.Sprintf("%d %016x", r.Seed, r.Hash)
	if r.Failure != nil {
		line += " breaks " + r.Failure.Property
	}
	return line
}

// runAll runs blocks, several at once. What comes of one does not depend on what runs beside it.
func runAll(blocks []block, workers int) ([]fold, error) {
	folds := make([]fold, len(blocks))
	err := each(len(blocks), workers, func(i int) (err error) {
		folds[i], err = blocks[i].run()
		return err
	})
	return folds, err
}

// each calls do with the numbers from 0 to n, in order, by several workers, and returns their errors.
func each(n, workers int, do func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = do(i)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func cores() int { return runtime.GOMAXPROCS(0) }
