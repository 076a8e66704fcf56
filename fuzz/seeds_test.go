package fuzz

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// Every variant of a golden vector is a seed of a target beside PeekTag, which begins with all of them. A decoder takes
// the variants that are messages, and refuses the one that gives a field twice.
func TestVariantsAreSeedsAndDecode(t *testing.T) {
	used := map[string]bool{}
	for _, target := range Targets() {
		for _, s := range target.Seeds() {
			used[string(s)] = used[string(s)] || target.name != PeekTag.name
		}
	}
	for _, v := range variants() {
		if !used[string(v.bytes)] {
			t.Errorf("variant %d of vector %s is a seed of no target", v.form, v.vector)
		}
		m := protocol.NewMessage(v.tag)
		if err := m.Decode(v.bytes, nil); (err == nil) != (v.form != repeatedField) {
			t.Errorf("variant %d of vector %s: Decode says %v", v.form, v.vector, err)
		}
	}
}

// Each target has a seed that its reader accepts and one that it refuses, for each message if it reads several.
func TestSeedsAreAcceptedAndRefused(t *testing.T) {
	for _, target := range Targets() {
		seeds := target.Seeds()
		for i, accepts := range readersOf(t, target) {
			if !slices.ContainsFunc(seeds, accepts) {
				t.Errorf("%s has no seed that reader %d accepts", target.name, i)
			}
			if !slices.ContainsFunc(seeds, func(b []byte) bool { return !accepts(b) }) {
				t.Errorf("%s has no seed that reader %d refuses", target.name, i)
			}
		}
	}
}

// readersOf returns the readers that a target checks: each says whether it accepts an input.
func readersOf(t *testing.T, target Target) (all []func(b []byte) bool) {
	t.Helper()
	tags := target.tags
	switch target.name {
	case Key.name:
		return []func([]byte) bool{func(b []byte) bool { _, err := protocol.ParseKey(b); return err == nil }}
	case PullID.name:
		return []func([]byte) bool{func(b []byte) bool { _, ok := protocol.ParsePullID(b); return ok }}
	case Endpoint.name:
		return []func([]byte) bool{func(b []byte) bool { _, err := protocol.ParseEndpoint(string(b)); return err == nil }}
	case AgentFrames.name:
		return []func([]byte) bool{func(b []byte) bool { _, _, ok := protocol.CutFrame(b); return ok }}
	case SharedLog.name:
		return []func([]byte) bool{
			func(b []byte) bool { return new(sharedlog.Request).Decode(b) == nil },
			func(b []byte) bool { return new(sharedlog.Reply).Decode(b) == nil },
			func(b []byte) bool { return new(sharedlog.Entry).Decode(b) == nil },
			func(b []byte) bool { _, _, _, whole := sharedlog.CutFrame(b); return whole },
		}
	case Nixl.name:
		for _, m := range nixlMessages() {
			all = append(all, func(b []byte) bool { return m.Decode(b, nil) == nil })
		}
		return all
	case PeekTag.name, Memory.name, ControllerJSON.name:
		for tag := protocol.TagAllocRequest; protocol.NewMessage(tag) != nil; tag++ {
			if target.name != ControllerJSON.name || tag.Family() == protocol.FamilyController {
				tags = append(tags, tag)
			}
		}
	}
	if len(tags) == 0 {
		t.Errorf("%s: say here what reads its seeds", target.name)
	}
	for _, tag := range tags {
		m := protocol.NewMessage(tag)
		all = append(all, func(b []byte) bool {
			return m.Decode(b, nil) == nil && isJSON(b) == (target.name == ControllerJSON.name)
		})
	}
	return all
}

// The inputs that a fuzzer found stay among the seeds of targets that exist.
func TestFindingsHaveTargets(t *testing.T) {
	for name := range findings {
		if !slices.ContainsFunc(Targets(), func(target Target) bool { return target.name == name }) {
			t.Errorf("%s is no target", name)
		}
	}
}

// Each target has a fuzz function here, in the order of names.
func TestTargetsHaveFuzzFunctions(t *testing.T) {
	text, err := os.ReadFile("fuzz_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, target := range Targets() {
		names = append(names, target.name)
		if want := "func Fuzz" + target.name + "(f *testing.F)"; !strings.Contains(string(text), want) {
			t.Errorf("fuzz_test.go has no %s", want)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("targets are not sorted: %s", strings.Join(names, " "))
	}
}
