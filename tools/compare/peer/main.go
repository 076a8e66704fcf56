//go:build cgo && linux

// Command peer is one end of a transfer that tools/compare measures: of kvferry, of libnixl's own calls, or of what a
// machine does without either. It is told by lines of JSON on its input what to move, and answers each by a line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// total is the memory of each end; a move is drawn from it, so that what is moved is in no cache.
const total = 256 << 20

// Setup says how both ends of a pair are made.
type Setup struct {
	Kind   string `json:"kind"`    // of ends
	Bytes  int    `json:"bytes"`   // of a chunk
	PollUS int    `json:"poll_us"` // kvferry's poll.us
	Window int    `json:"window"`  // kvferry's link.window
}

// Work is what the initiator is to do: so many moves of so many chunks each, with a pause before each of them.
type Work struct {
	Moves   int `json:"moves"`
	Chunks  int `json:"chunks"`
	PauseUS int `json:"pause_us"`
}

// Done is what came of it. A target's has no times.
type Done struct {
	NS    []int64 `json:"ns"`     // of each move
	CPUUS int64   `json:"cpu_us"` // that the process used meanwhile
}

// An initiator moves chunks, drawn from all there are, into memory of the target. Move returns when they are there, and
// is what is timed; prepare names them.
type initiator interface {
	prepare(chunks int)
	move(chunks int) error
}

// A target takes part in moves of so many chunks. It may return before they are there only if nothing of them needs it.
type target interface {
	// where says what an initiator must know.
	where() (json.RawMessage, error)
	take(work Work) error
}

type kind struct {
	target    func(Setup) (target, error)
	initiator func(Setup, json.RawMessage) (initiator, error)
}

var kinds = map[string]kind{
	"kvferry-shm": {newReceiver("shm"), newSender("shm")},
	"kvferry-tcp": {newReceiver("tcp"), newSender("tcp")},
	"nixl":        {newNIXLTarget(""), newNIXLInitiator("")},
	"nixl-tcp":    {newNIXLTarget("tcp"), newNIXLInitiator("tcp")},
	"copy":        {newNothing, newCopier},
	"tcp4":        {newStreamTarget(4), newStreamInitiator(4)},
	"trip":        {newTripTarget, newTripInitiator},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
	exit() // C's exit handlers are not run: one of libnixl's faults.
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "busy" {
		for n := uint64(1); n != 0; n |= 1 { // It computes for as long as it is let.
		}
	}
	if len(args) < 2 {
		return fmt.Errorf("give target SETUP, or initiator SETUP WHERE")
	}
	var setup Setup
	if err := json.Unmarshal([]byte(args[1]), &setup); err != nil {
		return err
	}
	k, ok := kinds[setup.Kind]
	if !ok {
		return fmt.Errorf("no kind %q", setup.Kind)
	}
	if args[0] == "target" {
		t, err := k.target(setup)
		if err != nil {
			return err
		}
		where, err := t.where()
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", where)
		return serve(func(w Work) (Done, error) { return Done{}, t.take(w) })
	}
	i, err := k.initiator(setup, json.RawMessage(args[2]))
	if err != nil {
		return err
	}
	fmt.Println("{}")
	return serve(func(w Work) (Done, error) {
		times := make([]int64, w.Moves)
		for n := range times {
			if w.PauseUS > 0 {
				time.Sleep(time.Duration(w.PauseUS) * time.Microsecond)
			}
			i.prepare(w.Chunks)
			begin := time.Now()
			if err := i.move(w.Chunks); err != nil {
				return Done{}, err
			}
			times[n] = time.Since(begin).Nanoseconds()
		}
		return Done{NS: times}, nil
	})
}

// serve does what each line says, until there are none. Work of no moves is a pause, in which nothing is to be done.
func serve(do func(Work) (Done, error)) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var w Work
		if err := json.Unmarshal(in.Bytes(), &w); err != nil {
			return err
		}
		before := cpu()
		if w.Moves == 0 {
			time.Sleep(time.Duration(w.PauseUS) * time.Microsecond)
		}
		done, err := do(w)
		if err != nil {
			return err
		}
		done.CPUUS = (cpu() - before).Microseconds()
		line, err := json.Marshal(done)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
	return in.Err()
}

func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func exit() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
}

// first draws the first of so many chunks in a row.
func first(bytes, chunks int) int { return rand.IntN(total/bytes - chunks + 1) }
