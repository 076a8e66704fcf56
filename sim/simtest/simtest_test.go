package simtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/simtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordingT is a testing.TB that records its output.
type recordingT struct {
	testing.TB
	name   string
	output strings.Builder
	failed bool
}

func (w *recordingT) Name() string { return w.name }
func (w *recordingT) Logf(format string, args ...any) {
	fmt.Fprintf(&w.output, format+"\n", args...)
}
func (w *recordingT) Fatal(args ...any) {
	fmt.Fprintln(&w.output, args...)
	w.failed = true
	panic(w)
}
func (w *recordingT) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }

// runCheck runs a check and returns its output.
func runCheck(t *testing.T, name string, c simtest.Case) (output string, failed bool) {
	t.Helper()
	w := &recordingT{TB: t, name: name}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(w) {
				panic(p)
			}
		}()
		simtest.Check(w, c)
	}()
	return w.output.String(), w.failed
}

// putsNeverFail is not a promise of kvferry: the plane may fail.
var putsNeverFail = oracle.New("puts-never-fail", "no plane ever fails", func(l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Deliver) {
		if c.IsSender() && e.Code == effects.Faulted {
			c.Fail("node %d ends ticket %d as %s", c.Node(), oracle.Ticket(e.Ticket), e.Code)
		}
	})
})

// TestCheck: the plan of a failure is saved and reported, and the reported command runs the plan again.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	c := simtest.Case{Seeds: 60, Oracles: []oracle.Oracle{putsNeverFail}}
	output, failed := runCheck(t, "TestMine/fast", c)
	const again = "KVFERRY_REPLAY=testdata/kvferry/TestMine-fast.yaml go test -run '^TestMine$/^fast$'"
	if !failed || !strings.Contains(output, "puts-never-fail broken: node 0 ends ticket") || !strings.Contains(output, again) {
		t.Fatalf("failed %v:\n%s", failed, output)
	}
	t.Setenv(simtest.ReplayEnv, filepath.Join("testdata", "kvferry", "TestMine-fast.yaml"))
	if output, failed := runCheck(t, "TestMine/fast", c); !failed || !strings.Contains(output, again) {
		t.Errorf("the kept plan breaks nothing: %s", output)
	}
	if output, failed := runCheck(t, "TestMine/fast", simtest.Case{}); failed {
		t.Errorf("without the property the kept plan breaks something: %s", output)
	}
	t.Setenv(simtest.ReplayEnv, "no-such-file.yaml")
	if output, failed := runCheck(t, "TestMine/fast", c); !failed || !strings.Contains(output, "no-such-file.yaml") {
		t.Errorf("a file that is not there: %s", output)
	}
	t.Setenv(simtest.ReplayEnv, "3")
	if output, failed := runCheck(t, "TestMine/fast", simtest.Case{}); failed {
		t.Errorf("seed 3: %s", output)
	}
	page, err := os.ReadFile("testdata/kvferry/TestMine-fast.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"puts-never-fail", "no plane ever fails",
		"<title>puts-never-fail broken · KVFERRY_REPLAY=testdata/kvferry/TestMine-fast.yaml"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page beside the plan does not say %q", text)
		}
	}
}

// TestEnd: an oracle receives the result at the end of a run.
func TestEnd(t *testing.T) {
	end := oracle.New("something-moves", "each run reads something", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e sim.RunEnded) {
			if e.Result.Chunks == 0 {
				c.Fail("nothing was read")
			}
		})
	})
	simtest.Check(t, simtest.Case{Seeds: 30, Profile: "calm", Oracles: []oracle.Oracle{end}})
}

// TestPlans: every plan that rapid draws can be run, can be written and read again, and breaks no promise.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := simtest.Plans().Draw(t, "plan")
		text, err := p.Text()
		if err != nil {
			t.Fatal(err)
		}
		back, err := sim.ParsePlan(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		r, err := sim.Run(sim.Options{Plan: &p})
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			t.Fatalf("%s\n%s", r.Failure, text)
		}
		if again, err := sim.Run(sim.Options{Plan: &back}); err != nil || again.Hash != r.Hash {
			t.Fatalf("the text runs otherwise: %v\n%s", err, text)
		}
	})
}
