package sim

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// TestEveryBoundIsDrawn: over the plans of a profile each duration and each bound of a rank has at least three values,
// and each duration has a value that is far shorter than a run. A setting that has its default in every seed is never
// tested.
func TestEveryBoundIsDrawn(t *testing.T) {
	pulled := []string{"PullTTL", "ReadTimeout", "ReadLeaseMax"}
	delayed := []string{"FetchTimeout", "LeadMin", "ReadLeaseMax", "OffersMax", "LocationsMax", "FetchesMax"}
	theirs := flowBounds(t)
	for _, profile := range systems.Profiles() {
		values := map[string]map[int64]bool{}
		least, spans := map[string]int64{}, map[string]bool{}
		pulls, delays := false, false
		seeds := 1000
		if testing.Short() && profile != "tiny" { // Each flow plays in few seeds of tiny, and few of those draw small bounds.
			seeds = 400
		}
		for seed := range uint64(seeds) {
			p, err := systems.Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			pulls, delays = pulls || len(p.Topology.Pull) > 0, delays || len(p.Topology.Delay) > 0
			cfg := pd.NewClusterSetup(&p, systems.Flows.PlayingIn(&p)).Rank
			for i := range p.Topology.Windows {
				cfg.Window = uint16(p.Topology.Windows[i])
			}
			visitBounds(&cfg, func(name string, x int64, span bool) {
				if values[name] == nil {
					values[name], spans[name] = map[int64]bool{}, span
				}
				if values[name][x] = true; x > 0 && (least[name] == 0 || x < least[name]) {
					least[name] = x
				}
			})
		}
		for name, had := range values {
			switch {
			case name == "RequestIDMax": // Every request of a run has a short id.
			case theirs[name] && len(had) == 1 && had[0]: // The flow does not play.
			case name == "SettleMax": // Oracles assume that a step handles everything that is due at its instant.
			case name == "BreakerTTL" && profile != "full": // In the remaining profiles senders retry immediately at receivers that are full.
			case name == "Window" && profile == "calm": // Small steps: one request at a time.
			case !pulls && slices.Contains(pulled, name), !delays && slices.Contains(delayed, name):
			case profile == "starve" && name == "PutTimeout": // A put that times out early does not starve.
			case profile == "starve" && strings.HasSuffix(name, "Max"): // Only pages run short in this profile.
			case len(had) < 3:
				t.Errorf("profile %s draws %d values of %s", profile, len(had), name)
			case spans[name] && time.Duration(least[name]) > 2*time.Second:
				t.Errorf("profile %s draws no %s below %v", profile, name, time.Duration(least[name]))
			}
		}
	}
}

// visitBounds visits each duration and each bound of a rank.
func visitBounds(cfg *rank.Config, visit func(name string, x int64, span bool)) {
	v := reflect.ValueOf(cfg).Elem()
	fields := reflect.VisibleFields(v.Type())
	for _, field := range reflect.VisibleFields(reflect.TypeFor[rank.Tuning]()) {
		tuning, _ := v.Type().FieldByName("Tuning")
		field.Index = append(slices.Clone(tuning.Index), field.Index...)
		fields = append(fields, field)
	}
	for _, field := range fields {
		if !field.IsExported() {
			continue
		}
		is := v.FieldByIndex(field.Index)
		switch f := is.Interface().(type) {
		case effects.Duration:
			visit(field.Name, int64(f), true)
		case uint32, uint16:
			if strings.HasSuffix(field.Name, "Max") || field.Name == "Window" || field.Name == "BreakersPerPeer" {
				visit(field.Name, int64(is.Uint()), false)
			}
		}
	}
}

// flowBounds returns the bounds that only flows set.
func flowBounds(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, flow := range systems.Flows {
		p, err := systems.Expand(1, flow.Profiles[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		own, without := map[string]int64{}, pd.NewClusterSetup(&p, nil).Rank
		visitBounds(&without, func(name string, x int64, _ bool) { own[name] = x })
		with := pd.NewClusterSetup(&p, pd.Flows{flow}).Rank
		visitBounds(&with, func(name string, x int64, _ bool) { names[name] = names[name] || own[name] == 0 && x != 0 })
	}
	return names
}
