//go:build cgo && linux

package hostile_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

var (
	asJSON   = flag.Bool("json", false, "print the figures as JSON")
	inFull   = flag.Bool("full", false, "do the worst, and measure longer")
	putsRate = flag.Int("puts", 100, "honest puts in a second, at most")
	striking = flag.Float64("strikes", 1, "multiplies how often a second each fault strikes, 0: as fast as it can")
	table    []figures
)

// figures of one fault, as the table has them.
type figures struct {
	Fault       string
	StrikesRate float64 // a second, as it was
	Strikes     int     // beside the puts
	PutsRate    float64 // a second, of the honest sender, as it was while the fault lasted
	Puts        int     // of it, in that time
	Failed      int     // of those, and of the ones afterwards
	Wrong       int     // bytes
	QuietMS     float64 // p99 of a put before the fault
	StruckMS    float64 // and while it lasted
	Ratio       float64 // of that to the p99 of all quiet puts of the run
	RSSMiB      float64 // the victim's peak
	MemoryMiB   float64 // of that, above its quiet one
	Files       int     // of the victim, at most seen
	FilesMax    int
	CPUSeconds  float64 // of the victim, the honest puts' share included
	Held        int     // pages at the end
	Lines       int     // of the log that name the fault
	Said        bool    // there is something that a line must say
	// AgainMS is from the fault's end to the end of a put to the victim, and of the first of a sender that opens then.
	AgainMS float64
	quiet   []time.Duration
}

// compare sets the ratios. What is quiet is taken of all rows: the third worst of 300 puts says little by itself.
func compare() {
	var all []time.Duration
	for i := range table {
		all = append(all, table[i].quiet...)
	}
	quiet := ms(p99(all))
	for i := range table {
		table[i].Ratio = table[i].StruckMS / quiet
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// report prints the table: a fault, how often a second it was done and how often in all; the honest puts of one
// chunk, of which 100 were due each second; how many of them, and of those afterwards, failed, and how many bytes
// were wrong; the 99th percentile of a put in milliseconds before and beside the fault, and the ratio of the latter
// to that of all quiet puts; the most memory that the victim had resident, in MiB, and how much more than before;
// its open files; pages held at the end; lines of its log that name the fault; milliseconds from the fault's end
// until a put and a new sender's first were through.
func report() {
	if len(table) == 0 {
		return
	}
	compare()
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(table)
		return
	}
	const head = "| fault | /s | times | puts/s | puts | bad | quiet | struck | ratio | RSS | more | files | held " +
		"| lines | again |\n"
	fmt.Print("\n", head, strings.Repeat("|---", strings.Count(head, "|")-1), "|\n")
	for _, x := range table {
		lines := "-"
		if x.Said {
			lines = fmt.Sprint(x.Lines)
		}
		fmt.Printf("| %s | %.1f | %d | %.0f | %d | %d, %d | %.2f | %.2f | %.2f | %.0f | %.1f | %d of %d | %d | %s | %.0f |\n",
			x.Fault, x.StrikesRate, x.Strikes, x.PutsRate, x.Puts, x.Failed, x.Wrong, x.QuietMS, x.StruckMS, x.Ratio, x.RSSMiB,
			x.MemoryMiB, x.Files, x.FilesMax, x.Held, lines, x.AgainMS)
	}
	fmt.Println()
}
