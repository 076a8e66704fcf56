//go:build cgo && linux

package hostile_test

import (
	"cmp"
	"runtime"
	"testing"
	"time"
)

// A fault is done to a victim, again and again, while an honest sender goes on.
type fault struct {
	name  string
	setup setup // of the victim
	// says is what a line of the log must say.
	says string
	// memoryMiB bounds what the fault may cost.
	memoryMiB float64
	rate      float64 // how often a second it is done; 0 is as it comes
	full      int     // how often it is done at least, in full
	short     int
	usesUp    bool // files, so that none is left
	near      bool // from the address that the honest sender has, too
	apart     bool // the honest sender has a receiver of its own, and the victim is another peer of it
	slow      bool // so that -short, which the race detector wants, leaves it out
	strike    func(x *attack) error
}

// filesKept are those that the node's other parts must still be able to open.
const filesKept = 8

// What two messages and their copies, connections and the collector's slack take at most; an attack sends far more.
const memoryMiB = 48

// hasty is a victim whose grants and chunks end soon, so that a peer that is away for longer misses them.
var hasty = setup{Own: "    lease: 500ms\n    retention: 3\n"}

var faults = []fault{
	{name: "MiB without end", says: "does not end within the limits", rate: 50, full: 200, short: 10, strike: endless},
	{name: "answers without end", says: "a connection to a peer has ended", full: 300, short: 5, strike: answers},
	{name: "silent", says: "was closed", rate: 500, full: 2000, short: 300, strike: silent},
	{name: "half a handshake", says: "was closed", rate: 500, full: 2000, short: 300, strike: half},
	{name: "idle", says: "in favour of a new connection", rate: 500, full: 1500, short: 200, strike: idle},
	{name: "idle, same address", says: "in favour of a new connection", rate: 500, full: 1500, short: 200, near: true,
		strike: idle},
	{name: "come and go", rate: 500, full: 1500, short: 100, strike: comeAndGo},
	{name: "few files", setup: setup{Files: 64}, says: "may open few files", rate: 500, full: 1500, short: 100,
		strike: silent},
	{name: "no file left", setup: setup{Files: 128}, says: "no connection can be accepted", rate: 10, full: 20, short: 2,
		usesUp: true, strike: noFile},
	{name: "no memory for a node", memoryMiB: memoryMiB + 64, rate: 5, full: 20, short: 1, slow: true, strike: noMemory},
	{name: "sender suspended", setup: hasty, full: 8, short: 1, strike: suspendSender},
	{name: "receiver suspended", setup: hasty, full: 8, short: 1, apart: true, slow: true, strike: suspendReceiver},
	{name: "liar, shm", setup: hasty, full: len(liesOf("shm")), short: 3, slow: true, strike: lying},
	{name: "liar, tcp", setup: setup{Channel: "tcp", Own: hasty.Own}, full: len(liesOf("tcp")), short: 3, slow: true,
		strike: lying},
}

func TestHostile(t *testing.T) {
	// The honest sender and its attackers stand for hosts of their own: the kernel says who runs, not this process.
	before := runtime.GOMAXPROCS(4 * runtime.NumCPU())
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { f.play(t, testing.Short()) })
	}
	t.Cleanup(report)
}

func (f *fault) play(t *testing.T, short bool) {
	if f.slow && short {
		t.Skip("it is done without -short")
	}
	amount, rounds := f.short, 20
	if *inFull {
		amount, rounds = f.full, 300
	}
	v := startVictim(t, f.setup, nil)
	to := v
	if f.apart {
		to = startVictim(t, setup{}, nil)
	}
	h := newHonest(t, to, "h")
	h.puts(3, nil) // The first one shakes hands.
	quiet := h.puts(rounds, nil)
	before := v.says("")
	x := begin(f, v, h, amount)
	began := time.Now()
	during := h.puts(rounds, x.enough)
	took := time.Since(began).Seconds()
	strikes := int(x.done.Load())
	if err := x.end(); err != nil {
		t.Errorf("the attack itself failed: %v", err)
	}
	worst := v.says("")
	began = time.Now()
	h.puts(1, nil)
	after := newHonest(t, v, "a") // New connections work, too.
	after.puts(1, nil)
	again := cmp.Or(x.again, time.Since(began))
	r := figures{
		Fault: f.name, StrikesRate: float64(strikes) / took, Strikes: strikes, PutsRate: float64(len(during)) / took,
		Puts: len(during), Failed: h.failed + after.failed, Wrong: h.wrong + after.wrong + x.wrong,
		QuietMS: ms(p99(quiet)), StruckMS: ms(p99(during)), quiet: quiet,
		RSSMiB: float64(worst.RSS) / 1024, MemoryMiB: float64(worst.RSS-before.RSS) / 1024,
		Files: v.files, FilesMax: int(v.setup.Files), CPUSeconds: (worst.CPU - before.CPU).Seconds(),
		Held: after.last.Held, Said: f.says != "", AgainMS: ms(again),
	}
	if r.Said {
		r.Lines = v.log.CountText(f.says)
	}
	table = append(table, r)
	switch {
	case r.Failed > 0 || r.Wrong > 0:
		t.Errorf("%d of %d honest puts failed, %d bytes are wrong: %s", r.Failed, r.Puts, r.Wrong, h.why+after.why)
	case r.MemoryMiB > cmp.Or(f.memoryMiB, memoryMiB) && !short: // The race detector takes more.
		t.Errorf("it took %.0f MiB, more than %.0f", r.MemoryMiB, f.memoryMiB)
	case r.Files > r.FilesMax-filesKept && !f.usesUp:
		t.Errorf("%d of %d files are open", r.Files, r.FilesMax)
	case r.Held != 0:
		t.Errorf("%d pages are held", r.Held)
	case r.Said && (r.Lines == 0 || r.Lines > 6): // One for each cause and channel, and what was left out at its end.
		t.Errorf("%d lines say %q; the log is:\n%s", r.Lines, f.says, v.log.String())
	}
}
