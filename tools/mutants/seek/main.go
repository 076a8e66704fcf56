// Command seek runs seeds of the simulator until the given properties are broken, and prints for each property the
// first seed that broke it. Unlike kvferry sim run, it then stops and minimises no plan. Command mutants builds and
// runs seek for each defect.
//
// usage: seek [-time DURATION] PROFILE FIRST N [PROPERTY...]
//
// Seek runs at most N seeds, beginning with FIRST, and starts none after DURATION of CPU time, so that other
// processes of the machine do not change how many seeds run. Without properties, seek stops at the
// first seed that breaks any property. The exit code is 0 if no property broke, 1 if a property broke, and 3 if the search
// failed. (Go ends a program that crashes with 2.)
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

func main() {
	// The live heap is a few megabytes, so rare garbage collections cost little memory.
	debug.SetGCPercent(800)
	found, err := runSearch(os.Stdout, os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "seek:", err)
		os.Exit(3)
	case found:
		os.Exit(1)
	}
}

func runSearch(w io.Writer, args []string) (found bool, err error) {
	s, err := parseArgs(args)
	if err != nil {
		return false, err
	}
	failures, run, err := s.runSeeds(runtime.GOMAXPROCS(0))
	if err != nil {
		return false, err
	}
	for _, f := range failures {
		fmt.Fprintf(w, "seed %d breaks %s in profile %s: %s\n", f.Seed, f.Property, f.Profile, f.Story)
	}
	if len(failures) == 0 {
		fmt.Fprintf(w, "every promise held in %d seeds\n", run)
		return false, nil
	}
	fmt.Fprintf(w, "\n%s", failures[len(failures)-1])
	return true, nil
}

// A search looks for seeds that break properties.
type search struct {
	profile      string
	first        uint64
	n            int
	time         time.Duration // CPU time after which no seed starts; 0 for no limit
	properties   []string
	extraOracles []oracle.Oracle // oracles in addition to the oracles of docs/safety.md
}

// usedTime returns the CPU time that the process has used.
func usedTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(fmt.Sprintf("BUG: %v", err)) // The arguments are valid.
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func parseArgs(args []string) (s search, err error) {
	if len(args) > 1 && args[0] == "-time" {
		if s.time, err = time.ParseDuration(args[1]); err != nil {
			return s, err
		}
		args = args[2:]
	}
	if len(args) < 3 {
		return s, fmt.Errorf("got the arguments %q; want a profile, the first seed, how many, and properties", args)
	}
	s.profile, s.properties = args[0], args[3:]
	if s.first, err = strconv.ParseUint(args[1], 10, 64); err != nil {
		return s, err
	}
	if s.n, err = strconv.Atoi(args[2]); err == nil && s.n < 1 {
		err = fmt.Errorf("the number of seeds is %d; want 1 or more", s.n)
	}
	return s, err
}

// runSeeds returns the first failure of each property that broke before the search was over, ordered by seed, and the
// number of seeds that ran. Seeds start in order, and seeds after the end of the search do not count, so without a time
// limit the result does not depend on the number of workers.
func (s search) runSeeds(workers int) (found []*sim.Failure, run int, err error) {
	failures := map[int]*sim.Failure{}
	var errs []error
	start := usedTime()
	var mutex sync.Mutex
	broke := map[string]bool{}
	isOver := func() bool {
		return len(broke) > 0 && !slices.ContainsFunc(s.properties, func(p string) bool { return !broke[p] })
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for {
				mutex.Lock()
				done := isOver() || s.time > 0 && usedTime()-start > s.time
				mutex.Unlock()
				if done {
					return
				}
				i := int(next.Add(1)) - 1
				if i >= s.n {
					return
				}
				seed := s.first + uint64(i)
				r, err := sim.Run(sim.Options{Seed: seed, Profile: sim.ProfileOfSeed(seed, s.profile), Oracles: s.extraOracles})
				mutex.Lock()
				if err != nil {
					errs = append(errs, err)
				} else if r.Failure != nil {
					failures[i] = r.Failure
					broke[r.Failure.Property] = true
				}
				mutex.Unlock()
			}
		})
	}
	wait.Wait()
	clear(broke)
	for _, i := range slices.Sorted(maps.Keys(failures)) {
		if f := failures[i]; !broke[f.Property] && !isOver() {
			broke[f.Property] = true
			found = append(found, f)
		}
	}
	return found, min(int(next.Load()), s.n), errors.Join(errs...)
}
