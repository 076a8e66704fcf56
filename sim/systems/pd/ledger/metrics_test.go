package ledger

import (
	"reflect"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// TestMetricTruths checks that the tables say of each number what it is compared with, and that boundsOf agrees.
func TestMetricTruths(t *testing.T) {
	for f := range effects.FactCount {
		if x := &factTruths[f]; !x.times && x.why == "" || x.times && (!x.items || x.onlyIf != nil) && x.why == "" {
			t.Errorf("factTruths does not say why counts of %s are not compared", effects.Fact(f))
		}
	}
	or, state := &metricOracle{}, &metricState{}
	or.setReferences(&pd.Cluster{}, &Oracles{})
	n := &world.Node{Memory: world.Memory{Pool: &world.Pool{}}}
	or.oracles().commandTables.makeRoom(1)
	seen, p := map[[3]string]bool{}, openPages{}
	for _, r := range metrics.AppendGauges(nil, &rank.Stats{ArenaTotal: 1, DeviceTotal: 1}) {
		key := [3]string{r.Metric, r.Labels[0], r.Labels[1]}
		why, listed := gaugeTruths[key]
		_, known := or.boundsOf(n, state, &p, &r)
		if seen[key] = true; !listed || known != (why == "") {
			t.Errorf("gaugeTruths says %q of %q, listed: %v; and boundsOf knows it: %v", why, key, listed, known)
		}
	}
	if len(seen) != len(gaugeTruths) {
		t.Errorf("there are %d gauges, and %d in gaugeTruths", len(seen), len(gaugeTruths))
	}
}

// TestGaugesAreThoseOfTheirNames checks that each count of a rank is exported once, under a name of its own.
func TestGaugesAreThoseOfTheirNames(t *testing.T) {
	var s rank.Stats
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(1000 + i))
	}
	fieldOf := map[uint64]string{}
	for _, r := range metrics.AppendGauges(nil, &s) {
		name := v.Type().Field(int(r.Value - 1000)).Name
		if fieldOf[r.Value] != "" {
			t.Errorf("%s is exported twice", name)
		}
		if want := fieldName(&r); name != want {
			t.Errorf("%s %q is %s, and not %s", r.Metric, r.Labels, name, want)
		}
		fieldOf[r.Value] = name
	}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; fieldOf[uint64(1000+i)] == "" && name != "StagedMax" {
			t.Errorf("%s is not exported", name)
		}
	}
}

// fieldName returns the name of the field of rank.Stats that a gauge should show.
func fieldName(r *metrics.Reading) string {
	camel := func(snake string) (s string) {
		up := true
		for _, c := range snake {
			if up && c >= 'a' && c <= 'z' {
				c -= 'a' - 'A'
			}
			if up = c == '_'; !up {
				s += string(c)
			}
		}
		return s
	}
	pool := map[string]string{metrics.PoolEngine: "Pages", metrics.PoolArena: "Arena", metrics.PoolDevice: "Device"}[r.Labels[0]]
	switch r.Metric {
	case metrics.PagesCapacity:
		return pool + "Total"
	case metrics.Pages:
		if r.Labels[1] == "staged" {
			return "Staged"
		}
		return pool + camel(r.Labels[1])
	case metrics.PagesLeased:
		return "PagesLeasedMax"
	case metrics.PagesPinned:
		return "Pinned"
	}
	return camel(r.Labels[0])
}
