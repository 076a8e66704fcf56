package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// findSeed runs seeds, one if no number is given, until all properties that are named were broken, or any if none is.
func findSeed(w io.Writer, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("seed wants a profile, a seed, perhaps how many, and properties, not %q", args)
	}
	s := search{profile: args[0], n: 1}
	var err error
	if s.first, err = strconv.ParseUint(args[1], 10, 64); err != nil {
		return err
	}
	if len(args) > 2 {
		if s.n, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
		if s.n < 1 {
			return fmt.Errorf("seed: how many seeds to run is %d; give 1 or more", s.n)
		}
		s.properties = args[3:]
	}
	failures, err := s.run(cores())
	if err != nil {
		return err
	}
	for _, f := range failures {
		fmt.Fprintf(w, "seed %d breaks %s: %s\n", f.Seed, f.Property, f.Story)
	}
	if len(failures) == 0 {
		fmt.Fprintf(w, "every promise held in %d seeds\n", s.n)
		return nil
	}
	fmt.Fprintf(w, "\n%s", failures[len(failures)-1])
	return errFound
}

// A search is for seeds that break promises.
type search struct {
	profile    string
	first      uint64
	n          int
	properties []string
	own        []oracle.Oracle // judge beside those of docs/safety.md
}

// run returns the first failure of each property that broke before the search was over, by seed. Seeds are begun in
// order, so it does not depend on how many run at once which these are: those beyond its end do not count.
func (s search) run(workers int) (found []*sim.Failure, err error) {
	failures := make([]*sim.Failure, s.n)
	var mutex sync.Mutex
	broke := map[string]bool{}
	over := func() bool {
		return len(broke) > 0 && !slices.ContainsFunc(s.properties, func(p string) bool { return !broke[p] })
	}
	err = each(s.n, workers, func(i int) error {
		mutex.Lock()
		enough := over()
		mutex.Unlock()
		if enough {
			return nil
		}
		r, err := sim.Run(sim.Options{Seed: s.first + uint64(i), Profile: s.profile, Oracles: s.own})
		if err != nil || r.Failure == nil {
			return err
		}
		mutex.Lock()
		defer mutex.Unlock()
		failures[i] = r.Failure
		broke[r.Failure.Property] = true
		return nil
	})
	clear(broke)
	for _, f := range failures {
		if f != nil && !broke[f.Property] && !over() {
			broke[f.Property] = true
			found = append(found, f)
		}
	}
	return found, err
}

// findPlan runs the plan of a file.
func findPlan(w io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("plan wants a file, not %q", args)
	}
	p, err := sim.ReadPlan(args[0])
	if err != nil {
		return err
	}
	r, err := sim.Run(sim.Options{Plan: &p})
	if err != nil {
		return err
	}
	if r.Failure == nil {
		fmt.Fprintln(w, "every promise held")
		return nil
	}
	fmt.Fprint(w, r.Failure)
	return errFound
}

// findScope explores a scope until a promise is broken.
func findScope(w io.Writer, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("scope wants a name and how many states, not %q", args)
	}
	scope, err := sim.ScopeNamed(args[0])
	states, wrong := strconv.Atoi(args[1])
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	e, err := sim.Explore(sim.ExploreOptions{Scope: scope, States: states})
	if err != nil {
		return err
	}
	if e.Violation == nil {
		fmt.Fprintf(w, "every promise held in %d states\n", e.States)
		return nil
	}
	fmt.Fprint(w, e.Violation)
	return errFound
}
