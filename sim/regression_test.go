package sim

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/plan"
)

// TestRegressions runs every kept plan. Each plan once broke a property because of the defect that the plan names, and
// no plan does now. make mutants shows that each plan still breaks the property with that defect, and make regressions
// writes the plans anew.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/regressions/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			p, err := plan.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if p.Defect == "" || p.Property == "" {
				t.Errorf("%s does not say which defect it is of and which property that broke: write it with sim replay --defect",
					file)
			}
			r := mustRun(t, Options{Plan: &p})
			if r.Failure != nil {
				t.Fatalf("this defect is back, or its like: %s\n%s", p.Defect, r.Failure)
			}
			// make mutants verifies that the plan still exercises the defect.
			for _, line := range StaleReasons(&p, &r) {
				t.Logf("perhaps stale: %s", line)
			}
		})
	}
}
