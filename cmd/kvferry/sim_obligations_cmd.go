package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

func newSimObligationsCommand() *cobra.Command {
	var asJSON, markdown bool
	cmd := &cobra.Command{
		Use:   "obligations [FILE]",
		Short: "List the checks that look at each configured time, limit and share",
		Long: `List the checks that look at each configured time, limit, quota and share of the machines.

Without a file, the table of sim/obligations.yaml is printed. With the report of a campaign
(sim run --json), each check has the number of its judgements, by profile, and the command fails
if a check judged nothing although the campaign used all profiles.`,
		Example: `  kvferry sim obligations
  kvferry sim run --time 10m --json > campaign.json
  kvferry sim obligations campaign.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var report campaignReport
			if len(files) > 0 {
				text, err := os.ReadFile(files[0])
				if err != nil {
					return usageError{err}
				}
				if err := json.Unmarshal(text, &report); err != nil {
					return usageError{fmt.Errorf("%s is not a report of sim run --json: %w", files[0], err)}
				}
			}
			rows := obligationRows(&report.Summary)
			var err error
			switch out := cmd.OutOrStdout(); {
			case asJSON:
				err = printJSON(out, rows)
			case markdown:
				err = printObligationsMarkdown(out, &report, rows)
			default:
				err = printObligations(out, rows, len(files) > 0)
			}
			if err != nil {
				return err
			}
			if report.Profile == sim.MixedProfile && len(report.VoidObligations()) > 0 {
				return errFinding
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the tables of docs/obligations.md")
	addJSONFlag(cmd, &asJSON)
	cmd.MarkFlagsMutuallyExclusive("markdown", "json")
	return cmd
}

// An obligationRow is a setting with its judges and their judgements in a campaign.
type obligationRow struct {
	Field   string        `json:"field"`
	Kind    string        `json:"kind"`
	Judges  []judgmentRow `json:"judges,omitempty"`
	Missing string        `json:"missing,omitempty"`
	None    string        `json:"none,omitempty"`
}

type judgmentRow struct {
	Side   string            `json:"side"`
	Check  string            `json:"check"`
	How    string            `json:"how"`
	Judged map[string]uint64 `json:"judged,omitempty"` // by profile
	Void   uint64            `json:"void,omitempty"`   // occasions at which the check could not judge, in all profiles
}

// obligationRows returns the rows of the table, with the counts of a campaign.
func obligationRows(s *sim.Summary) (rows []obligationRow) {
	checks := map[string]oracle.Check{}
	for _, c := range oracle.Checks() {
		checks[c.String()] = c
	}
	for _, o := range sim.Obligations() {
		row := obligationRow{Field: o.Field, Kind: o.Kind, Missing: o.Missing, None: o.None}
		for _, j := range o.Judges {
			counted := judgmentRow{Side: j.Side, Check: j.Check, How: j.How, Judged: map[string]uint64{}}
			for profile, n := range s.Judgements {
				c, ok := checks[j.Check]
				if !ok {
					continue
				}
				judged, void := n.CountsOf(c)
				if counted.Void += void; judged > 0 {
					counted.Judged[profile] = judged
				}
			}
			row.Judges = append(row.Judges, counted)
		}
		rows = append(rows, row)
	}
	return rows
}

// sumOf returns the judgements in all profiles.
func (j *judgmentRow) sumOf() (sum uint64) {
	for _, n := range j.Judged {
		sum += n
	}
	return sum
}

// describeCounts returns the judgements in all profiles together, and then in each, most first.
func (j *judgmentRow) describeCounts() string {
	if j.Check == sim.EveryStep {
		return "in every step"
	}
	if len(j.Judged) == 0 {
		if strings.HasPrefix(j.Check, "fleet: ") {
			return "in profile fleet" // of which a mixed campaign has no seeds
		}
		return "none"
	}
	profiles := slices.SortedFunc(maps.Keys(j.Judged), func(a, b string) int {
		return cmp.Or(cmp.Compare(j.Judged[b], j.Judged[a]), strings.Compare(a, b))
	})
	for i, p := range profiles {
		profiles[i] = fmt.Sprintf("%s %d", p, j.Judged[p])
	}
	return fmt.Sprintf("%d: %s", j.sumOf(), strings.Join(profiles, ", "))
}

func printObligations(w io.Writer, rows []obligationRow, withCounts bool) error {
	var b strings.Builder
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&b, "%s (%s)\n", r.Field, r.Kind)
		for k := range r.Judges {
			j := &r.Judges[k]
			fmt.Fprintf(&b, "  %-10s  %s: %s\n", j.Side, j.Check, j.How)
			if withCounts {
				fmt.Fprintf(&b, "  %-10s  judged %s\n", "", j.describeCounts())
			}
		}
		if r.Missing != "" {
			fmt.Fprintf(&b, "  missing     %s\n", r.Missing)
		}
		if r.None != "" {
			fmt.Fprintf(&b, "  none        %s\n", r.None)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const obligationsHead = `# Settings and their judges

For each setting of the machines: the checks of the simulator that depend on its value, the side on which they notice a
machine that ignores it, and how often each check judged in a campaign, by profile. What no check looks at is said as
missing; where no check is possible or sensible, the reason. A check panic is the bound of a table, which ends the run in
any step. ` + "`make obligations`" + ` writes this page from ` + "`sim/obligations.yaml`" + ` and a campaign;
[simulator.md](simulator.md#what-it-checks) says what keeps the table true.

`

// printObligationsMarkdown prints a table for each folder.
func printObligationsMarkdown(w io.Writer, report *campaignReport, rows []obligationRow) error {
	var b strings.Builder
	b.WriteString(obligationsHead)
	fmt.Fprintf(&b, "The campaign: profile %s, %d seeds, %d steps, in %.0f s with %d workers.\n", report.Profile, report.Seeds,
		report.Steps, report.Seconds, report.Workers)
	lastFolder := ""
	for i := range rows {
		r := &rows[i]
		at := strings.LastIndex(r.Field, "/") + 1
		at += strings.Index(r.Field[at:], ".")
		if folder := r.Field[:at]; folder != lastFolder {
			fmt.Fprintf(&b, "\n## %s\n\n| setting | side | check | judgements |\n|---|---|---|---|\n", folder)
			lastFolder = folder
		}
		name := "`" + r.Field[at+1:] + "` (" + r.Kind + ")"
		for k := range r.Judges {
			j := &r.Judges[k]
			fmt.Fprintf(&b, "| %s | %s | %s: %s | %s |\n", name, j.Side, j.Check, escapeCell(j.How), j.describeCounts())
			name = ""
		}
		if r.Missing != "" {
			fmt.Fprintf(&b, "| %s | missing | %s | |\n", name, escapeCell(r.Missing))
			name = ""
		}
		if r.None != "" {
			fmt.Fprintf(&b, "| %s | none possible | %s | |\n", name, escapeCell(r.None))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escapeCell returns text for the cell of a Markdown table.
func escapeCell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
