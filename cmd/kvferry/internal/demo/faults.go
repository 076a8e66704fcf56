package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// Faults is a set of faults that the software NPU injects below the interface of AscendCL and HCCL during a replay.
// Attempts may fail only with the codes that the faults explain. Every request must succeed in the end with the right
// bytes, and no node may still pin a page.
type Faults struct {
	Name string
	// first returns the rules for the first incarnation of a process; later returns the rules for all later
	// incarnations.
	first, later func(m Mode, name string, place int, s shape) string
	// codes lists the codes with which attempts may fail; nil, as for a user's own rules, allows all codes.
	codes []effects.Code
	// refusesStart means that the first incarnation of each node ends with no_memory before it serves. The demo then
	// starts the node again.
	refusesStart bool
	// fencesLinks means that the faults hit a communicator, which no driver may use afterwards.
	fencesLinks bool
	// onlyCopies means that the faults hit only copies on a device, which not every mode makes.
	onlyCopies bool
}

// The codes that may follow from a lost communicator (broken), and from memory or a copy that is refused (refused). On
// a slow machine any operation may expire.
var (
	linkFaultCodes = []effects.Code{effects.Faulted, effects.PeerLost, effects.Unreachable, effects.Withdrawn, effects.Expired}
	refusalCodes   = []effects.Code{effects.Faulted, effects.NoMemory, effects.Expired}
)

func constantRules(rules string) func(Mode, string, int, shape) string {
	return func(Mode, string, int, shape) string { return rules }
}

// scenarios lists the named faults.
var scenarios = []*Faults{
	{Name: "oom", first: poolTooLarge, later: engineTooLarge, refusesStart: true, codes: refusalCodes},
	// The library refuses one batch, and another batch fails in flight.
	{Name: "put", first: constantRules("call:sym=HcclBatchPut,nth=2,code=4;call:sym=HcclBatchGet,nth=2,code=4;done:fail=3"),
		codes: linkFaultCodes, fencesLinks: true},
	{Name: "link", first: constantRules(lostLink("error")), codes: linkFaultCodes, fencesLinks: true},
	{Name: "link-hangs", first: constantRules(lostLink("hang")), codes: linkFaultCodes, fencesLinks: true},
	{Name: "link-silent", first: constantRules(lostLink("silent")), codes: linkFaultCodes, fencesLinks: true},
	{Name: "stuck", first: constantRules("done:hang=2"), codes: linkFaultCodes, fencesLinks: true},
	{Name: "copy", first: constantRules("done:fail=2,of=copy;done:hang=5,of=copy"), codes: refusalCodes, onlyCopies: true},
}

func lostLink(mode string) string { return "link:peer=*,down_after_ops=2,links=1,mode=" + mode }

// poolTooLarge returns rules that make every node's pool too large for its device, or for host memory if the pool is in
// host memory.
func poolTooLarge(m Mode, name string, place int, s shape) string {
	if m == PullDelayOffload && name == "prefill" || m == Layerwise && name != "prefill" {
		return fmt.Sprintf("oom:host,after=%d", s.pageBytes())
	}
	return fmt.Sprintf("oom:device=%d,after=%d", place, s.pageBytes())
}

// engineTooLarge returns rules that refuse some allocations into which a decode node's engine copies its chunks.
func engineTooLarge(m Mode, name string, _ int, _ shape) string {
	if m.isDelayed() && name != "prefill" {
		return "call:sym=aclrtMalloc,nth=3,count=2,code=207001"
	}
	return ""
}

// ParseFaults reads the names of scenarios, "all" for all scenarios, or rules of the software NPU, which then apply to
// each process. It fails for an unknown name.
func ParseFaults(text string) ([]*Faults, error) {
	switch {
	case text == "all":
		return scenarios, nil
	case strings.Contains(text, ":"):
		return []*Faults{{Name: text, first: constantRules(text)}}, nil
	}
	var list []*Faults
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(scenarios, func(f *Faults) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--faults has %q; use %s, or rules in the form of docs/softnpu.md", name, FaultNames())
		}
		list = append(list, scenarios[i])
	}
	return list, nil
}

// FaultNames returns the names of the scenarios, as text for messages.
func FaultNames() string {
	var names []string
	for _, f := range scenarios {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ") + " or all"
}

// appliesTo reports whether the faults can occur in a mode.
func (f *Faults) appliesTo(m Mode) bool { return !f.onlyCopies || m.isDelayed() }

// rulesFor returns the rules for one process.
func (f *Faults) rulesFor(m Mode, name string, place, incarnation int, s shape) string {
	switch {
	case f == nil:
		return ""
	case incarnation == 1:
		return f.first(m, name, place, s)
	case f.later != nil:
		return f.later(m, name, place, s)
	}
	return ""
}

// expectsRefusal reports whether the faults require that a node refuses its start with this code, so that the demo
// starts the node again.
func (f *Faults) expectsRefusal(code string) bool {
	return f != nil && f.refusesStart && code == effects.NoMemory.String()
}

// unexpectedCauses returns the causes of failed attempts that the faults do not explain.
func (f *Faults) unexpectedCauses(failures map[string]int) (causes []string) {
	if f == nil || f.codes == nil {
		return nil
	}
	for cause := range failures {
		_, end, _ := strings.Cut(cause, ": ")
		if !slices.ContainsFunc(f.codes, func(c effects.Code) bool { return c.String() == end }) {
			causes = append(causes, cause)
		}
	}
	slices.Sort(causes)
	return causes
}
