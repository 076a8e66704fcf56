package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/kvferry/kvferry/sim"
)

// printHashes prints what is compared of each seed, a line each.
func printHashes(w io.Writer, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("hashes wants a profile, the first seed and how many, not %q", args)
	}
	first, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	for seed := first; seed < first+n; seed++ {
		r, err := sim.Run(sim.Options{Profile: args[0], Seed: seed})
		if err != nil {
			return err
		}
		fmt.Fprintln(w, lineOf(&r))
	}
	return nil
}

// printLog prints the event log of a seed, and below it its messages: the hash is over their bytes too.
func printLog(w io.Writer, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("log wants a profile and a seed, not %q", args)
	}
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	log := func(line string) { fmt.Fprintln(w, line) }
	r, err := sim.Run(sim.Options{Profile: args[0], Seed: seed, Log: log, Record: true})
	if err != nil {
		return err
	}
	for _, m := range r.Trace.Messages {
		fmt.Fprintf(w, "message at %.6f s, node %d to %d by %s: %s %s\n", float64(m.Sent)/1e9, m.From, m.To,
			m.Channel, m.Kind, m.Text)
	}
	return nil
}
