package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/trace"
)

// A recorder looks and never touches: the run is the same with and without it.
func TestRecordingChangesNothing(t *testing.T) {
	for seed := range uint64(60) {
		for _, profile := range []string{"swarm", "leased"} {
			plain, err := Run(Options{Seed: seed, Profile: profile})
			if err != nil {
				t.Fatal(err)
			}
			recorded, err := Run(Options{Seed: seed, Profile: profile, Record: true})
			if err != nil {
				t.Fatal(err)
			}
			if plain.Hash != recorded.Hash || plain.Steps != recorded.Steps || plain.Trace != nil {
				t.Fatalf("seed %d: hash %016x recorded, %016x not", seed, recorded.Hash, plain.Hash)
			}
			wholeTrace(t, &recorded)
		}
	}
}

// wholeTrace checks that a trace of a run in which every promise held is consistent with itself.
func wholeTrace(t *testing.T, r *Result) {
	t.Helper()
	tr := r.Trace
	if uint64(len(tr.Events)+tr.Dropped) < r.Events || uint64(len(tr.Transfers)) != r.Transfers || uint64(len(tr.Grants)) != r.Grants {
		t.Fatalf("seed %d: %d events, %d transfers, %d grants in the trace, %d, %d, %d in the run", r.Seed,
			len(tr.Events), len(tr.Transfers), len(tr.Grants), r.Events, r.Transfers, r.Grants)
	}
	inOrder := func(what string, times ...int64) {
		last := int64(0)
		for _, at := range times {
			if at == trace.Never {
				continue
			}
			if at < last || at > tr.End {
				t.Fatalf("seed %d: %s has times %v, the run ends at %d", r.Seed, what, times, tr.End)
			}
			last = at
		}
	}
	for i := range tr.Messages {
		m := &tr.Messages[i]
		inOrder("message "+m.Kind, m.Sent, m.Arrived)
		if m.Arrived == trace.Never && !m.Lost {
			t.Fatalf("seed %d: a message of %d neither arrived nor was lost", r.Seed, m.Sent)
		}
	}
	for i := range tr.Transfers {
		x := &tr.Transfers[i]
		inOrder("transfer", x.Started, x.Ended, x.Settled)
		if x.Code == "ok" && !slices.ContainsFunc(x.Stores, func(s trace.Store) bool { return s.Half == 1 }) {
			t.Fatalf("seed %d: transfer %d ended well without a store", r.Seed, x.ID)
		}
	}
	for i := range tr.Grants {
		g := &tr.Grants[i]
		inOrder("grant", g.From, g.Revoked, g.Gone)
	}
	for i := range tr.Commands {
		c := &tr.Commands[i]
		inOrder("command", c.Given, c.Delivered, c.Returned)
	}
	states := trace.PageStates()
	for i := range tr.Pages {
		last := int64(0)
		for _, s := range tr.Pages[i].Spans {
			end := s.To
			if end == trace.Never {
				end = tr.End
			}
			if s.From < last || end < s.From || !slices.ContainsFunc(states, func(p trace.PageState) bool { return p.Name == s.State }) {
				t.Fatalf("seed %d: page %d of node %d is %q from %d to %d after %d", r.Seed, tr.Pages[i].Index, tr.Pages[i].Node, s.State, s.From, end, last)
			}
			last = end
		}
	}
	for i := range tr.Nodes {
		last := int64(0)
		for _, s := range tr.Nodes[i].Lives {
			if s.From != last {
				t.Fatalf("seed %d: the lives of node %d have a gap at %d", r.Seed, i, last)
			}
			last = s.To
		}
	}
	for i := range tr.Events {
		inOrder("event", tr.Events[i].At)
		for _, ref := range tr.Events[i].Refs {
			if ref < 0 || ref >= len(tr.Refs) {
				t.Fatalf("seed %d: event %d refers to %d of %d", r.Seed, i, ref, len(tr.Refs))
			}
		}
	}
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		format string
		args   []any
		want   []mention
	}{
		{"node %d grants page %d under grant %d while it is granted under %d", []any{int32(2), uint32(3), uint64(65537), uint64(4)},
			[]mention{{"node", 2, 2, nil}, {"page", 2, 3, nil}, {"grant", 2, 65537, nil}, {"under", 2, 4, nil}}},
		{"a store of transfer %d lands on page %d of node %d, which is granted to %d instead of %d", []any{uint64(9), uint32(1), int32(2), uint64(5), uint64(6)},
			[]mention{{"transfer", noNode, 9, nil}, {"page", 2, 1, nil}, {"node", 2, 2, nil}, {"to", 2, 5, nil}, {"of", 2, 6, nil}}},
		{"chunk %d of request %s at node %d: page %d is torn", []any{0, []byte("r7"), int32(1), uint32(4)},
			[]mention{{"chunk", noNode, 0, nil}, {"request", 1, 0, []byte("r7")}, {"node", 1, 1, nil}, {"page", 1, 4, nil}}},
	} {
		got := mentions(c.format, c.args)
		if !slices.EqualFunc(got, c.want, func(a, b mention) bool {
			return a.noun == b.noun && a.node == b.node && a.id == b.id && string(a.name) == string(b.name)
		}) {
			t.Errorf("%q mentions %+v, want %+v", c.format, got, c.want)
		}
	}
}

// Whoever writes an oracle writes its sentence so that a trace knows what it is about.
func TestSentencesNameTheirSubjects(t *testing.T) {
	nouns := regexp.MustCompile(`\b(node|page|grant|transfer|ticket|request|key)s? %[dsq]`)
	without := regexp.MustCompile(`the world keeps busy|the proxy is told|^%v`)
	for _, f := range failFormats(t) {
		if !nouns.MatchString(f) && !without.MatchString(f) {
			t.Errorf("%q names no node, page, grant, transfer, ticket, request or key in front of a number", f)
		}
	}
}

// failFormats finds the formats of all calls of fail in this package.
func failFormats(t *testing.T) (formats []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	find := func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		if name, ok := call.Fun.(*ast.SelectorExpr); !ok || name.Sel.Name != "fail" {
			return true
		}
		if lit, ok := call.Args[1].(*ast.BasicLit); ok {
			s, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			formats = append(formats, s)
		}
		return true
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, find)
	}
	if len(formats) < 40 {
		t.Fatalf("only %d sentences found", len(formats))
	}
	return formats
}

// What a report says was promised is what docs/safety.md promises.
func TestPromisesAreThoseOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([SL][0-9]+) \| ([^|]+?) \|`).FindAllStringSubmatch(string(doc), -1)
	if len(rows) < 20 {
		t.Fatalf("only %d rows in docs/safety.md", len(rows))
	}
	for _, row := range rows {
		if Promise(row[1]) != row[2] {
			t.Errorf("%s is %q here and %q in docs/safety.md", row[1], Promise(row[1]), row[2])
		}
	}
}
