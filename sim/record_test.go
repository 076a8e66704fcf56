package sim

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// A recorder changes nothing: the run is the same with a recorder as without.
func TestRecordingChangesNothing(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		for _, profile := range []string{"swarm", "leased"} {
			plain, err := Run(Options{Seed: seed, Profile: profile})
			if err != nil {
				t.Fatal(err)
			}
			recorded, err := Run(Options{Seed: seed, Profile: profile, RecordTrace: true})
			if err != nil {
				t.Fatal(err)
			}
			if plain.Hash != recorded.Hash || plain.Steps != recorded.Steps || plain.Trace != nil {
				t.Fatalf("seed %d: hash %016x recorded, %016x not", seed, recorded.Hash, plain.Hash)
			}
			checkTrace(t, &recorded)
		}
	}
}

// checkTrace checks that the trace of a run without failure is consistent.
func checkTrace(t *testing.T, r *Result) {
	t.Helper()
	tr := r.Trace
	if uint64(len(tr.Events)+tr.Dropped) < r.Events || uint64(len(tr.Transfers)) != r.Transfers ||
		uint64(len(tr.Grants)) != r.Grants {
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
		inOrder("grant", g.From, g.Unusable)
		inOrder("grant", g.From, g.Revoked) // The machine may revoke a grant whose pages have all landed in the meantime.
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
			if s.From < last || end < s.From ||
				!slices.ContainsFunc(states, func(p trace.PageState) bool { return p.Name == s.State }) {
				t.Fatalf("seed %d: page %d of node %d is %q from %d to %d after %d", r.Seed, tr.Pages[i].Index, tr.Pages[i].Node,
					s.State, s.From, end, last)
			}
			last = end
		}
	}
	for i := range tr.Nodes {
		last := int64(0)
		for _, s := range tr.Nodes[i].States {
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

// A failure names the things that it concerns, and shows the last steps that touched these things, together with the
// replies.
func TestFailureTellsItsStory(t *testing.T) {
	plan, err := systems.Expand(5, "fenced")
	if err != nil {
		t.Fatal(err)
	}
	plan.Bounds.Carries = 0 // The chunks must be transferred by the plane.
	w, err := newTrial(Options{RecordTrace: true}, &plan)
	if err != nil {
		t.Fatal(err)
	}
	var at *world.Transfer
	w.RunUntil(int64(w.Conditions.FaultsEnd), func() bool {
		for _, x := range w.Transfers {
			if x.CopyStarted && !x.Ended {
				at = x
			}
		}
		return at != nil
	})
	if at == nil {
		t.Fatal("no transfer was under way at any time")
	}
	page := at.Pairs[0].Remote.Index
	node := at.Remote.Node
	w.Fail("S4", "node %d grants page %d under grant %d while a transfer may still store into it",
		node.AsSubject(), node.PageSubject(page), node.GrantSubject(at.Grant))
	f := w.Failure
	if f.Promise != Promise("S4") || f.Promise == "" {
		t.Errorf("promise %q", f.Promise)
	}
	for _, want := range []string{
		fmt.Sprintf("n%d page %d", node.ID, page),
		fmt.Sprintf("n%d grant %d", node.ID, at.Grant),
	} {
		if !slices.ContainsFunc(f.Concerns, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("%q is not among what it concerns: %q", want, f.Concerns)
		}
	}
	told := strings.Join(f.Steps, "\n")
	for _, want := range []string{"Grant grant=", "allows n", "Transfer corr=", fmt.Sprintf("starts transfer %d", at.ID),
		"Received conn=", "receives AllocRequest"} {
		if !strings.Contains(told, want) {
			t.Errorf("no %q in the story:\n%s", want, told)
		}
	}
	tr := w.Journal.Observer.(*story.Recorder).Finish()
	for _, i := range tr.Violation.Steps {
		e := &tr.Events[i]
		answered := slices.ContainsFunc(tr.Violation.Steps,
			func(k int) bool { return tr.Events[k].Cause > 0 && k-tr.Events[k].Cause == i })
		if !answered && e.Group != trace.Fault && !slices.ContainsFunc(e.Refs,
			func(ref int) bool { return slices.Contains(tr.Violation.Concerns, ref) }) {
			t.Errorf("the step concerns nothing of the violation: %s", e.Text)
		}
	}
	if got := f.String(); !strings.Contains(got, "concerns: ") ||
		!strings.Contains(got, "the last steps that concerned them") {
		t.Errorf("the text does not tell it:\n%s", got)
	}
}

// A broken promise of a user is also explained by the steps before the failure.
func TestExplain(t *testing.T) {
	o := Options{Seed: 3, Oracles: []oracle.Oracle{oracle.New("few steps", "", func(l *oracle.Subscriptions[int]) {
		oracle.On(l, func(steps *int, c *oracle.Call, _ oracle.StepEnded) {
			if *steps++; *steps > 40 {
				c.Fail("more than 40 steps")
			}
		})
	})}}
	r, err := Run(o)
	if err != nil || r.Failure == nil || r.Failure.Steps != nil {
		t.Fatalf("error %v, failure %v", err, r.Failure)
	}
	f, tr := Explain(r.Failure, o)
	if tr == nil || tr.Violation == nil || len(f.Steps) == 0 || f.Story != r.Failure.Story || f.At != r.Failure.At {
		t.Errorf("explained as %v", f)
	}
	// A failure that cannot be repeated is returned unchanged.
	if same, none := Explain(r.Failure, Options{Seed: 3}); same != r.Failure || none != nil {
		t.Errorf("a failure that did not come again is %v", same)
	}
}

// The story of a failure ends with the whole step that broke the promise. The lines of a step carry the marks that the
// machine passed, and the lines of outcomes the reason.
func TestStoryEndsWithTheWholeStep(t *testing.T) {
	o := Options{Seed: 3, Oracles: []oracle.Oracle{oracle.New("no failures", "", func(l *oracle.Subscriptions[bool]) {
		oracle.On(l, func(failed *bool, _ *oracle.Call, e *effects.Deliver) { *failed = e.Code != effects.OK && e.Why != nil })
		oracle.On(l, func(failed *bool, c *oracle.Call, e oracle.StepEnded) {
			if *failed && len(e.Effects.Marks()) > 0 && e.Effects.Len() > 2 { // among them some that have no words
				c.Fail("a command failed")
			}
		})
	})}}
	r, err := Run(o)
	if err != nil || r.Failure == nil {
		t.Fatalf("error %v, failure %v", err, r.Failure)
	}
	f, tr := Explain(r.Failure, o)
	lastStep := tr.Violation.Steps[len(tr.Violation.Steps)-1]
	if lastStep != len(tr.Events)-1 {
		t.Errorf("the story ends with event %d of %d:\n%s", lastStep+1, len(tr.Events), strings.Join(f.Steps, "\n"))
	}
	first := lastStep - tr.Events[lastStep].Cause
	for i := first; i <= lastStep; i++ {
		if e := &tr.Events[i]; e.Node == tr.Events[first].Node && (i == first || i-e.Cause == first) &&
			!slices.Contains(tr.Violation.Steps, i) {
			t.Errorf("a line of the last step is not in the story: %s", e.Text)
		}
	}
	reported, marked := false, false
	for _, i := range tr.Violation.Steps {
		reported = reported || strings.HasPrefix(tr.Events[i].Text, "Deliver") && strings.HasSuffix(tr.Events[i].Explanation, ")")
		marked = marked || len(tr.Events[i].Marks) > 0
	}
	if !reported || !marked {
		t.Errorf("the reason of an outcome is in the story: %v, the marks of a step: %v\n%s", reported, marked,
			strings.Join(f.Steps, "\n"))
	}
}

// A machine may learn of the end of a transfer later than the transfer ended, as behind a long batch of events, and the
// event states when that was.
func TestEndsAreReportedLate(t *testing.T) {
	late, prompt := 0, 0
	o := Options{Profile: "leased", Oracles: []oracle.Oracle{oracle.New("late ends", "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e world.TransferDone) {
			if int64(c.Now()) > e.Ended {
				late++
			} else {
				prompt++
			}
		})
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.TransferDone) {
			if e.At > c.LocalTime() {
				c.Fail("a transfer ended at %d, which is in the future", e.At)
			}
		})
	})}}
	for o.Seed = range 20 {
		if r, err := Run(o); err != nil || r.Failure != nil {
			t.Fatal(err, r.Failure)
		}
	}
	if late == 0 || prompt < late {
		t.Errorf("%d ends are reported late, and %d at once", late, prompt)
	}
}

// The sentence of an oracle tells a trace which subjects the failure concerns: the argument after a noun, such as
// "page", is a subject of this kind.
func TestSentencesNameTheirSubjects(t *testing.T) {
	kinds := map[string]string{
		"node": "Node AsSubject", "page": "Page PageSubject", "grant": "Grant GrantSubject", "under": "Grant GrantSubject",
		"transfer": "Transfer", "landing": "Transfer", "ticket": "Ticket", "put": "Ticket", "link": "Link",
		"connection": "Conn", "key": "Key", "keys": "Key", "request": "Request Message",
	}
	verb := regexp.MustCompile(`(?:([a-z-]+) \(?"?)?%[-+# 0]*[0-9]*[a-z]`)
	without := regexp.MustCompile(`the world never becomes idle|the run takes more than|the proxy is notified|^%v|^%s`)
	for _, f := range failCalls(t) {
		subjects := 0
		for i, m := range verb.FindAllStringSubmatch(f.format, -1) {
			if i >= len(f.args) {
				t.Errorf("%q has fewer arguments than verbs", f.format)
				break
			}
			kind, named := kinds[m[1]]
			if !named {
				continue
			}
			subjects++
			if is := subjectOf(f.args[i]); is == "" || !slices.Contains(strings.Fields(kind), is) {
				t.Errorf("%q: what it calls a %s is a %q, which is none", f.format, m[1], is)
			}
		}
		if subjects == 0 && !without.MatchString(f.format) {
			t.Errorf("%q is about nothing that a trace could show", f.format)
		}
	}
}

// subjectOf returns the type of a subject of package oracle, or the method of a node that returns the subject.
func subjectOf(arg ast.Expr) string {
	if c, ok := arg.(*ast.CompositeLit); ok {
		arg = &ast.CallExpr{Fun: c.Type}
	}
	call, ok := arg.(*ast.CallExpr)
	if !ok {
		return ""
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

// failCall is a call of Fail.
type failCall struct {
	format string
	args   []ast.Expr
}

// failCalls returns all calls of fail, Fail and FailCheck in this folder and below.
func failCalls(t *testing.T) (all []failCall) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	find := func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		if name, ok := call.Fun.(*ast.SelectorExpr); !ok || !strings.EqualFold(name.Sel.Name, "fail") &&
			name.Sel.Name != "FailCheck" {
			return true
		}
		if format, ok := literal(call.Args[1]); ok {
			all = append(all, failCall{format, call.Args[2:]})
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
	if len(all) < 200 {
		t.Fatalf("only %d sentences found", len(all))
	}
	return all
}

// literal returns the text of a string literal, which may be a concatenation.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		x, ok := literal(e.X)
		y, both := literal(e.Y)
		return x + y, ok && both
	}
	return "", false
}

// A message refers to grants as grants of their owner, so that the story of a failure about a grant contains the
// requests and replies about this grant, such as renewals and registrations.
func TestMessagesNameTheirGrants(t *testing.T) {
	for _, c := range []struct{ profile, kind string }{
		{"delayed", "KvfRenewRequest"}, {"delayed", "KvfRenewResponse"}, {"delayed", "PullReadyNotif"},
		{"delayed", "PullDoneSignal"}, {"recall", "CacheQueryResponse"}, {"register", "PushRegistration"},
		{"p2p", "AscendBatchedLookupAndGetDoneMsg"},
	} {
		found := 0
		for seed := uint64(0); seed < 40 && found < 3; seed++ {
			r, err := Run(Options{Seed: seed, Profile: c.profile, RecordTrace: true})
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Trace.Messages {
				m := &r.Trace.Messages[i]
				if m.Kind != c.kind || m.From < 0 || m.To < 0 {
					continue
				}
				if slices.ContainsFunc(m.Refs, func(ref int) bool {
					grant := regexp.MustCompile(`^n(\d+) grant \d+`).FindStringSubmatch(r.Trace.Refs[ref])
					return grant != nil && (grant[1] == strconv.Itoa(m.From) || grant[1] == strconv.Itoa(m.To))
				}) {
					found++
				}
			}
		}
		if found < 3 {
			t.Errorf("%s: %d messages %s name a grant", c.profile, found, c.kind)
		}
	}
}
