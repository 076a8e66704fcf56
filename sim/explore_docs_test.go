package sim

import (
	"os"
	"strings"
	"testing"
)

// documented are the rows of the table of scopes in docs/simulator.md, by scope, without how long each takes.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| scope | world | states | transitions | ends | depth | time | |\n|---|---|---|---|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/simulator.md has no table of scopes")
	}
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 8 {
			break
		}
		name := strings.Trim(cells[0], "|` ")
		if rows[name] != "" {
			t.Errorf("docs/simulator.md has two rows of scope %s", name)
		}
		rows[name] = strings.Join(append(cells[1:6], strings.Trim(cells[7], "| ")), " | ")
	}
	return rows
}

// TestScopesAreThoseOfTheDocs: each scope has a row, in its own words.
func TestScopesAreThoseOfTheDocs(t *testing.T) {
	rows := documented(t)
	for _, s := range Scopes() {
		if got, _, _ := strings.Cut(rows[s.Name], " | "); got != s.About {
			t.Errorf("docs/simulator.md says of scope %s %q, want %q", s.Name, got, s.About)
		}
		delete(rows, s.Name)
	}
	for name := range rows {
		t.Errorf("docs/simulator.md has a row of scope %s, which there is not", name)
	}
}
