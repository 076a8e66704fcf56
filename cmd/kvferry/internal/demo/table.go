package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
)

func printRows(w io.Writer, rows [][2]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	fmt.Fprint(t, "\n") // An empty line ends the alignment of the columns.
	return t.Flush()
}

func printLatency(w io.Writer, of map[string]Latency, steps ...string) error {
	t := tabwriter.NewWriter(w, 8, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "latency, ms\tcount\tp50\tp95\tp99\tmax\t\n")
	for _, step := range steps {
		p := of[step]
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t\n", step, p.Count, formatMS(p.P50), formatMS(p.P95), formatMS(p.P99), formatMS(p.Max))
	}
	return t.Flush()
}

func printVerdict(w io.Writer, ok bool) error {
	verdict := "every byte is correct and no page is pinned"
	if !ok {
		verdict = "THE REPLAY FAILED, see above"
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}
