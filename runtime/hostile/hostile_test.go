//go:build cgo && linux

package hostile_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	asJSON = flag.Bool("json", false, "print the figures as JSON")
	inFull = flag.Bool("full", false, "do the worst, and measure longer")
	table  []figures
)

// figures of one fault, as the table has them.
type figures struct {
	Fault      string
	Strikes    int     // how often it was done, beside the puts
	Puts       int     // of the honest sender, while it lasted
	Failed     int     // of those, and of the ones afterwards
	Wrong      int     // bytes
	QuietMS    float64 // p99 of a put before the fault
	StruckMS   float64 // and while it lasted
	Ratio      float64 // of the two
	MemoryMiB  float64 // the victim's peak above its quiet one
	Files      int     // of the victim, at most seen
	FilesMax   int
	CPUSeconds float64 // of the victim, the honest puts' share included
	Held       int     // pages at the end
	Lines      int     // of the log that name the fault
	AgainMS    float64 // a put after the fault, and the first one of a sender that opens then
}

// A fault is done to a victim, again and again, while an honest sender goes on.
type fault struct {
	name  string
	files int
	// says is what a line of the log must say.
	says string
	// memoryMiB bounds what the fault may cost.
	memoryMiB float64
	full      int // how often it is done at least, in full
	short     int
	usesUp    bool // files, so that none is left
	near      bool // from the address that the honest sender has, too
	slow      bool // under the race detector, which wants -short
	strike    func(x *attack) error
}

// filesKept are those that the node's other parts must still be able to open.
const filesKept = 8

// What two messages and their copies, connections and the collector's slack take at most; an attack sends far more.
const memoryMiB = 48

var faults = []fault{
	{name: "endless multipart", files: 256, says: "message without end", memoryMiB: memoryMiB, full: 512, short: 32, strike: endless},
	{name: "silent connections", files: 256, says: "said nothing", memoryMiB: memoryMiB, full: 2000, short: 300, strike: silent},
	{name: "half a handshake", files: 256, says: "said nothing", memoryMiB: memoryMiB, full: 2000, short: 300, strike: half},
	{name: "idle after the handshake", files: 256, says: "idle connection", memoryMiB: memoryMiB, full: 1000, short: 200, strike: idle},
	{name: "idle, of the same address", files: 256, says: "idle connection", memoryMiB: memoryMiB, full: 1000, short: 200, near: true, strike: idle},
	{name: "peers that come and go", files: 256, memoryMiB: memoryMiB, full: 1000, short: 100, strike: comeAndGo},
	{name: "few files", files: 64, says: "may open few files", memoryMiB: memoryMiB, full: 1000, short: 100, strike: silent},
	{name: "no file left", files: 128, says: "no connection can be accepted", memoryMiB: memoryMiB, full: 10, short: 2, usesUp: true, strike: noFile},
	{name: "no memory for one more", files: 256, memoryMiB: memoryMiB + 64, full: 20, short: 1, slow: true, strike: noMemory},
}

func TestHostile(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { f.play(t) })
	}
	t.Cleanup(report)
}

func (f *fault) play(t *testing.T) {
	if f.slow && testing.Short() {
		t.Skip("it is done without -short")
	}
	amount, rounds := f.short, 20
	if *inFull {
		amount, rounds = f.full, 300
	}
	v := startVictim(t, f.files, nil)
	h := newHonest(t, v, "h")
	h.puts(3, nil) // The first one shakes hands.
	quiet := h.puts(rounds, nil)
	before := v.says("")
	x := begin(f, v, amount)
	during := h.puts(rounds, x.enough)
	worst := v.says("")
	if err := x.end(); err != nil {
		t.Errorf("the attack itself failed: %v", err)
	}
	began := time.Now()
	h.puts(1, nil)
	after := newHonest(t, v, "a") // New connections work, too.
	after.puts(1, nil)
	again := time.Since(began)
	r := figures{Fault: f.name, Strikes: int(x.done.Load()), Puts: len(during), Failed: h.failed + after.failed, Wrong: h.wrong + after.wrong,
		QuietMS: ms(p99(quiet)), StruckMS: ms(p99(during)),
		MemoryMiB: float64(worst.RSS-before.RSS) / 1024, Files: v.files, FilesMax: f.files,
		CPUSeconds: (worst.CPU - before.CPU).Seconds(), Held: after.last.Held, AgainMS: ms(again)}
	r.Ratio = r.StruckMS / r.QuietMS
	if f.says != "" {
		r.Lines = v.log.Count(f.says)
	}
	table = append(table, r)
	switch {
	case r.Failed > 0 || r.Wrong > 0:
		t.Errorf("%d of %d honest puts failed, %d bytes are wrong: %s", r.Failed, r.Puts, r.Wrong, h.why+after.why)
	case r.MemoryMiB > f.memoryMiB && !testing.Short(): // The race detector, which wants -short, takes several times as much itself.
		t.Errorf("it took %.0f MiB, more than %.0f", r.MemoryMiB, f.memoryMiB)
	case r.Files > f.files-filesKept && !f.usesUp:
		t.Errorf("%d of %d files are open", r.Files, f.files)
	case r.Held != 0:
		t.Errorf("%d pages are held", r.Held)
	case f.says != "" && (r.Lines == 0 || r.Lines > 3): // One for each cause and channel, and what was left out at its end.
		t.Errorf("%d lines say %q; the log is:\n%s", r.Lines, f.says, v.log.String())
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func report() {
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(table)
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tstrikes\tputs\tfailed\twrong bytes\tquiet p99 ms\tp99 ms\tratio\tmemory MiB\tfiles\tof\tcpu s\theld\tlines\tagain ms")
	for _, x := range table {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.1f\t%d\t%d\t%.2f\t%d\t%d\t%.1f\n", x.Fault, x.Strikes, x.Puts, x.Failed, x.Wrong,
			x.QuietMS, x.StruckMS, x.Ratio, x.MemoryMiB, x.Files, x.FilesMax, x.CPUSeconds, x.Held, x.Lines, x.AgainMS)
	}
	_ = w.Flush()
}
