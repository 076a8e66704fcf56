package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
)

// docs/obligations.md has the rows of sim/obligations.yaml, whatever campaign its counts are from, and each check in it has
// judged.
func TestObligationsAreThoseOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/obligations.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := printObligationsMarkdown(&want, &campaignReport{}, obligationRows(&sim.Summary{})); err != nil {
		t.Fatal(err)
	}
	got, wanted := rowsWithoutCounts(string(text)), rowsWithoutCounts(want.String())
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("docs/obligations.md, row %d, is not the row of sim/obligations.yaml: run make obligations", i+1)
		}
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, "| none |\n") {
			t.Errorf("judged by nothing: %s", line)
		}
	}
}

// rowsWithoutCounts returns the rows of the tables in a page, without their last cells, and the headings.
func rowsWithoutCounts(page string) (rows []string) {
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "|"):
			line = strings.TrimSuffix(strings.TrimSpace(line), "|")
			rows = append(rows, line[:strings.LastIndex(line, "|")])
		case strings.HasPrefix(line, "## "):
			rows = append(rows, line)
		}
	}
	return rows
}

// sim obligations prints the counts of a campaign, and fails if one of all profiles left a setting without a judgement.
func TestObligationsOfACampaign(t *testing.T) {
	report := filepath.Join(t.TempDir(), "campaign.json")
	runCommand := func(want int, args ...string) string {
		t.Helper()
		var out, errors bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &errors); code != want {
			t.Fatalf("%q ends with %d, want %d: %s", args, code, want, errors.String())
		}
		return out.String()
	}
	text := runCommand(0, "sim", "run", "--seeds", "40", "--workers", "1", "--json")
	if err := os.WriteFile(report, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := runCommand(1, "sim", "obligations", report)
	for _, want := range []string{"fsm/rank/memory.Settings.Pages (limit)", "S5 free pages: ", "judged none", " in every step"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in the table of a campaign of 40 seeds", want)
		}
	}
	if plain := runCommand(0, "sim", "obligations"); strings.Contains(plain, "  judged ") {
		t.Error("judgements without a campaign")
	}
	runCommand(2, "sim", "obligations", "../../go.mod")
}
