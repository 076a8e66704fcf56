// Command guard says whether a change of the code changed what the machines do.
//
// Code that is moved must leave every effect, deadline and draw where it was. The hash over a simulated run's event log
// (docs/simulator.md) shows any that is not, so guard keeps those of 1,000 seeds in each profile (hashes.txt), runs
// them again, and names the first line of the first log that differs from the commit before.
//
//	guard check [-quick] [-profile P] [-seeds N] [-scopes] [-before COMMIT]
//
// runs the seeds and compares, explores the small worlds of which figures are kept, and runs the transcripts of ranks
// and their tests that a step allocates nothing; -quick fewer seeds and no tests.
//
//	guard baseline [-profile P]                  write the lines of profiles that have none
//	guard accept P... -why TEXT                  a change was meant: write these profiles' lines anew
//	guard coverage [-seeds N] [-before COMMIT]   how often each path is taken, there and here; names.txt has new names
//	guard speed [-rounds N] [-before COMMIT]     what a step takes, there and here in turns; it judges nothing
//
// These look for a broken promise, which tools/mutants does:
//
//	guard seed P SEED [N [PROPERTY...]]   run a seed, or up to N until these properties broke
//	guard plan FILE                       run a plan
//	guard scope NAME STATES               explore a scope
//
// And these print what is compared:
//
//	guard hashes P FIRST N   the hash of each of N seeds
//	guard log P SEED         the event log of one, and its messages
//	guard counts N           how often N seeds of each profile take each path
//
// It is run at the root of the work tree. The exit code is 0 if all is equal, 1 if something differs or breaks, and 2
// if it could not be found out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// errFound is what was looked for and printed: something differs, or a promise is broken.
var errFound = errors.New("found")

// A command takes the arguments after its name.
type command func(w io.Writer, args []string) error

var commands = map[string]command{
	"check": check, "baseline": baseline, "accept": accept,
	"coverage": coverage, "speed": speed,
	"seed": findSeed, "plan": findPlan, "scope": findScope,
	"hashes": printHashes, "log": printLog, "counts": printCounts,
}

func main() {
	// What is alive at a time is a few megabytes: collecting rarely costs little memory.
	debug.SetGCPercent(800)
	var name string
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	run, ok := commands[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "guard: there is no command %q; go doc ./tools/guard lists them\n", name)
		os.Exit(2)
	}
	switch err := run(os.Stdout, os.Args[2:]); {
	case errors.Is(err, errFound):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(2)
	}
}

// parse reads flags that stand before, between or after names, and returns the names.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return names, nil
		}
		names, args = append(names, flags.Arg(0)), flags.Args()[1:]
	}
}

func flagsOf(command string) *flag.FlagSet {
	return flag.NewFlagSet("guard "+command, flag.ContinueOnError)
}
