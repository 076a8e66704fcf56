//go:build cgo && linux

package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"golang.org/x/sys/unix"
)

// A shortage is why there is no memory for one more node in the victim's process.
type shortage struct {
	size  string // of its pool
	limit int    // of the process
	// more is what the process may have beyond what it has, in bytes.
	more       uint64
	overcommit bool
	group      bool // it is its group that may have no more than that
}

var shortages = map[string]shortage{
	// So that only the victim dies of it.
	"the host has less":           {size: "4TiB", limit: unix.RLIMIT_AS, more: 1 << 30},
	"no file may be so large":     {size: "64MiB", limit: unix.RLIMIT_FSIZE, more: 1 << 20},
	"no address space is left":    {size: "1GiB", limit: unix.RLIMIT_AS, more: 256 << 20, overcommit: true},
	"none left, and taken before": {size: "128MiB", limit: unix.RLIMIT_AS, more: 112 << 20},
	"its group has less":          {size: "128MiB", more: 64 << 20, group: true},
}

// noMemory has one node more opened in the victim's process, for which there is no memory. It is told so, and no more
// than that happens.
func noMemory(x *attack) error {
	for x.more() {
		for name := range shortages {
			a := x.v.says(openMore + name)
			if strings.HasPrefix(a.Problems, errMayNot.Error()) {
				x.t.Logf("%s: %s", name, a.Problems)
				continue
			}
			if a.Code != effects.NoMemory || !strings.Contains(a.Remedy, "pd_buffer_size") {
				return fmt.Errorf("%s: open ended as %q, with remedy %q: %s", name, a.Code, a.Remedy, a.Problems)
			}
		}
		x.done.Add(1)
	}
	return nil
}

func (a *answer) open(name string) {
	short, ok := shortages[name]
	if !ok {
		a.Problems = "there is no such shortage"
		return
	}
	own := setup{}
	if short.overcommit {
		own.Own = "    data: {overcommit: true}\n"
	}
	text := own.text(short.size)
	restore, err := short.begin()
	if err != nil {
		a.Problems = err.Error()
		return
	}
	n, err := openText(text, zmq.Config{}, os.Stderr)
	restore()
	if err == nil {
		a.Problems = fmt.Sprint("it opened; ", n.Close(context.Background()))
		return
	}
	a.Problems, a.Code = err.Error(), runtime.CodeOf(err)
	if e := (*runtime.Error)(nil); errors.As(err, &e) {
		a.Remedy = e.Remedy
	}
}

func (s shortage) begin() (restore func(), err error) {
	if s.group {
		return bounded(s.more)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(s.limit, &old); err != nil {
		return nil, err
	}
	less := old
	less.Cur = s.more
	if s.limit == unix.RLIMIT_AS {
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return nil, err
		}
		var pages uint64
		if _, err := fmt.Sscan(string(text), &pages); err != nil {
			return nil, err
		}
		less.Cur += pages * uint64(os.Getpagesize())
	}
	if err := unix.Setrlimit(s.limit, &less); err != nil {
		return nil, err
	}
	return func() { _ = unix.Setrlimit(s.limit, &old) }, nil
}

// Two hosts' clocks have nothing to do with each other: nothing that one says of time is measured by the other's clock.
func TestClocksThatDiffer(t *testing.T) {
	for _, days := range []int{-1, 400} {
		through := []string{"unshare", "--time", "--boottime", fmt.Sprint(days * 24 * 3600), "--"}
		if days < 0 {
			through[3] = "1" // As if it had just started: no clock may be before zero.
			var info syscall.Sysinfo_t
			if err := syscall.Sysinfo(&info); err != nil {
				t.Fatal(err)
			}
			through[3] = fmt.Sprint(60 - info.Uptime)
		}
		if out, err := exec.Command(through[0], append(through[1:], "true")...).CombinedOutput(); err != nil {
			t.Skipf("no clock of its own for a process: %v: %s", err, out)
		}
		v := startVictim(t, setup{}, nil, through...)
		h := newHonest(t, v, "h")
		h.puts(5, nil)
		if h.failed > 0 || h.wrong > 0 || h.last.Held != 0 {
			t.Errorf("%d days apart: %d puts failed, %d bytes wrong, %d pages held: %s", days, h.failed, h.wrong, h.last.Held,
				h.why)
		}
	}
}
