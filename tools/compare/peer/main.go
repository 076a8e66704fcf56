//go:build cgo && linux

// Command peer is one end of a transfer that tools/compare measures. The transfer is made by kvferry, by direct calls
// of libnixl, or by plain copies and sockets as a baseline. The command reads lines of JSON that say what to move, and
// answers each line with a line.
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

// total is the memory of each end in bytes. The chunks of a move are drawn from this memory, so that they are in no
// cache.
const total = 256 << 20

// Setup describes both ends of a pair.
type Setup struct {
	Kind   string `json:"kind"`    // a key of the variable kinds
	Bytes  int    `json:"bytes"`   // bytes of a chunk
	PollUS int    `json:"poll_us"` // kvferry's poll.us
	Window int    `json:"window"`  // kvferry's link.window
}

// Work describes the moves to make: the number of moves, the chunks of each move, and the pause before each move.
type Work struct {
	Moves   int `json:"moves"`
	Chunks  int `json:"chunks"`
	PauseUS int `json:"pause_us"`
}

// Done is the result of Work. Only an initiator reports times.
type Done struct {
	NS    []int64 `json:"ns"`     // duration of each move
	CPUUS int64   `json:"cpu_us"` // processor time of the process during the work
}

// An initiator moves chunks into the memory of the target. The method pickChunks chooses the chunks of the next move.
// The method moveChunks moves them and returns when the target has them; only moveChunks is timed.
type initiator interface {
	pickChunks(chunks int)
	moveChunks(chunks int) error
}

// A target receives chunks. The method takeMoves returns when all moves have been received, or earlier if the moves do
// not need the target's process.
type target interface {
	// connectInfo returns the data that an initiator needs to reach the target.
	connectInfo() (json.RawMessage, error)
	takeMoves(work Work) error
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
	"copy":        {newNoTarget, newCopier},
	"tcp4":        {newStreamTarget(4), newStreamInitiator(4)},
	"trip":        {newTripTarget, newTripInitiator},
}

func main() {
	if err := runPeer(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
	exitNow() // The exit handlers of C must not run, because a handler of libnixl crashes.
}

func runPeer(args []string) error {
	if len(args) == 1 && args[0] == "busy" {
		for n := uint64(1); n != 0; n |= 1 { // Computes until the process is killed.
		}
	}
	if len(args) < 2 {
		return fmt.Errorf("usage: peer target SETUP | peer initiator SETUP ADDRESS")
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
		connectInfo, err := t.connectInfo()
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", connectInfo)
		return serveWork(func(w Work) (Done, error) { return Done{}, t.takeMoves(w) })
	}
	i, err := k.initiator(setup, json.RawMessage(args[2]))
	if err != nil {
		return err
	}
	fmt.Println("{}")
	return serveWork(func(w Work) (Done, error) {
		times := make([]int64, w.Moves)
		for n := range times {
			if w.PauseUS > 0 {
				time.Sleep(time.Duration(w.PauseUS) * time.Microsecond)
			}
			i.pickChunks(w.Chunks)
			begin := time.Now()
			if err := i.moveChunks(w.Chunks); err != nil {
				return Done{}, err
			}
			times[n] = time.Since(begin).Nanoseconds()
		}
		return Done{NS: times}, nil
	})
}

// serveWork calls do for each line of the input until the input ends. Work without moves is a pause.
func serveWork(do func(Work) (Done, error)) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var w Work
		if err := json.Unmarshal(in.Bytes(), &w); err != nil {
			return err
		}
		before := cpuTime()
		if w.Moves == 0 {
			time.Sleep(time.Duration(w.PauseUS) * time.Microsecond)
		}
		done, err := do(w)
		if err != nil {
			return err
		}
		done.CPUUS = (cpuTime() - before).Microseconds()
		line, err := json.Marshal(done)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
	return in.Err()
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func exitNow() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
}

// drawFirst returns a random index for the first of the given number of consecutive chunks.
func drawFirst(bytes, chunks int) int { return rand.IntN(total/bytes - chunks + 1) }
