package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Chaos makes a replay strike its own nodes all the time: one strike after another, with short pauses, drawn from a
// seed. The clock of the nodes counts suspended time and cannot be set, so that there is no strike for clocks; package
// sim plays these.
type Chaos struct {
	Seed uint64
	// Network also drops packets and limits the rate of the loopback interface. It needs a network namespace of its own
	// (see CheckNetwork), and the rights to change it.
	Network bool
}

const (
	// chaosAttemptsMax is the number of attempts for a request, so that a request outlives several strikes in a row.
	chaosAttemptsMax         = 60
	strikeMin, strikeMax     = 100 * time.Millisecond, 4 * time.Second // the duration of a strike
	betweenMin, betweenMax   = 100 * time.Millisecond, time.Second
	lossPercent, limitedRate = 3, "50mbit"
)

// CheckNetwork returns why Chaos.Network cannot be used: it would also strike what is not the demo's.
func CheckNetwork() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	if len(all) != 1 || all[0].Flags&net.FlagLoopback == 0 {
		return errors.New("this network has more than a loopback interface, so other programs may use it: run the demo in a namespace of " +
			"its own, as tools/chaos does")
	}
	for _, name := range []string{"iptables", "tc"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: install it (Debian: iptables, iproute2)", err)
		}
	}
	return nil
}

// A strike is a kind of fault. It returns when the fault is over.
type strike struct {
	name string
	run  func(ctx context.Context, p *player, at *slot, d time.Duration) error
}

// hostStrikes need nothing but the rights over the demo's own processes.
var hostStrikes = []strike{
	{"kill", func(ctx context.Context, p *player, at *slot, _ time.Duration) error {
		p.crashNode(ctx, at)
		return nil
	}},
	{"stop", func(ctx context.Context, _ *player, at *slot, d time.Duration) error {
		process := at.currentProcess()
		process.suspend()
		sleepContext(ctx, d)
		process.resume()
		return nil
	}},
	{"no files", exhaustFiles},
}

// networkStrikes change the loopback interface of a namespace.
var networkStrikes = []strike{
	{"partition", func(ctx context.Context, _ *player, _ *slot, d time.Duration) error {
		return withFilter(ctx, d, "-p", "tcp")
	}},
	{"one port cut off", func(ctx context.Context, p *player, _ *slot, d time.Duration) error {
		port := p.cluster.decodes[0].peer.AllocPort
		return withFilter(ctx, d, "-p", "tcp", "--dport", strconv.Itoa(int(port)))
	}},
	{"loss", func(ctx context.Context, _ *player, _ *slot, d time.Duration) error {
		return withFilter(ctx, d, "-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("0.%02d", lossPercent))
	}},
	{"slow network", func(ctx context.Context, _ *player, _ *slot, d time.Duration) error {
		err := change("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", limitedRate, "burst", "128kbit", "latency", "100ms")
		if err != nil {
			return err
		}
		sleepContext(ctx, d)
		return change("tc", "qdisc", "del", "dev", "lo", "root")
	}},
}

// exhaustFiles lets a process open no further file for a time.
func exhaustFiles(ctx context.Context, _ *player, at *slot, d time.Duration) error {
	pid := at.currentProcess().cmd.Process.Pid
	open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	var former unix.Rlimit
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &former)
	}
	if err != nil {
		return nil // The process has ended.
	}
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)), Max: former.Max}, nil) == nil {
		sleepContext(ctx, d)
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &former, nil) // It fails if the process has ended.
	}
	return nil
}

// withFilter drops the incoming packets of the loopback interface that match for a time.
func withFilter(ctx context.Context, d time.Duration, match ...string) error {
	rule := append([]string{"INPUT", "-i", "lo"}, match...)
	rule = append(rule, "-j", "DROP")
	if err := change("iptables", append([]string{"-A"}, rule...)...); err != nil {
		return err
	}
	sleepContext(ctx, d)
	return change("iptables", append([]string{"-D"}, rule...)...)
}

// change runs a program that changes the network. It ignores the context, because a change must be taken back.
func change(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// playChaos strikes until stop is closed.
func (p *player) playChaos(ctx context.Context, stop <-chan struct{}) {
	c := p.options.Chaos
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	strikes := hostStrikes
	if c.Network {
		strikes = append(append([]strike(nil), hostStrikes...), networkStrikes...)
	}
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(rng.Int64N(int64(high-low))) }
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(between(betweenMin, betweenMax)):
		}
		s := strikes[rng.IntN(len(strikes))]
		nodes := p.cluster.slots()
		at := nodes[rng.IntN(len(nodes))]
		if err := s.run(ctx, p, at, between(strikeMin, strikeMax)); err != nil {
			p.tally.addUnclean(s.name + ": " + err.Error())
			return
		}
		p.tally.addStrike(s.name)
	}
}

// slots returns all nodes.
func (c *cluster) slots() (all []*slot) {
	if c.prefill != nil {
		all = append(all, c.prefill)
	}
	for i := range c.decodes {
		all = append(all, &c.decodes[i].slot)
	}
	return all
}

func (t *tally) addStrike(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.r.Strikes == nil {
		t.r.Strikes = map[string]int{}
	}
	t.r.Strikes[name]++
}

func (t *tally) addUnclean(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Unclean = append(t.r.Unclean, problem)
}
