package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// Faults are put below the interface of AscendCL and HCCL while a trace is replayed, and may fail attempts in
// some ways and in no other. Whatever they do, every request must be done in the end, with the right bytes, and nothing
// be left.
type Faults struct {
	Name string
	// first and later are the rules of a process's first life and of the lives after it.
	first, later func(m Mode, name string, place int, s shape) string
	// ends are the codes that attempts may end with; nil, as of a user's own rules: all.
	ends []effects.Code
	// refuses says that each node ends its first life before it serves, as no_memory, and is started again.
	refuses bool
	// fences says that what fails is on a communicator, which no driver may use after it.
	fences bool
	// copies says that only copies on a device are concerned, which not every mode makes.
	copies bool
}

// What may come of a communicator that is lost, and of memory or a copy that is refused. On a slow machine
// anything may expire.
var (
	broken  = []effects.Code{effects.Faulted, effects.PeerLost, effects.Unreachable, effects.Withdrawn, effects.Expired}
	refused = []effects.Code{effects.Faulted, effects.NoMemory, effects.Expired}
)

func always(rules string) func(Mode, string, int, shape) string {
	return func(Mode, string, int, shape) string { return rules }
}

// scenarios are the faults that have a name.
var scenarios = []*Faults{
	{Name: "oom", first: poolTooLarge, later: engineTooLarge, refuses: true, ends: refused},
	// A batch that the library refuses, and one that fails on its way.
	{Name: "put", first: always("call:sym=HcclBatchPut,nth=2,code=4;call:sym=HcclBatchGet,nth=2,code=4;done:fail=3"),
		ends: broken, fences: true},
	{Name: "link", first: always(lostLink("error")), ends: broken, fences: true},
	{Name: "link-hangs", first: always(lostLink("hang")), ends: broken, fences: true},
	{Name: "link-silent", first: always(lostLink("silent")), ends: broken, fences: true},
	{Name: "stuck", first: always("done:hang=2"), ends: broken, fences: true},
	{Name: "copy", first: always("done:fail=2,of=copy;done:hang=5,of=copy"), ends: refused, copies: true},
}

func lostLink(mode string) string { return "link:peer=*,down_after_ops=2,links=1,mode=" + mode }

// poolTooLarge has every node's pool be too large for its device, or for the host memory that the pool is.
func poolTooLarge(m Mode, name string, place int, s shape) string {
	if m == PullDelayOffload && name == "prefill" || m == Layerwise && name != "prefill" {
		return fmt.Sprintf("oom:host,after=%d", s.pageBytes())
	}
	return fmt.Sprintf("oom:device=%d,after=%d", place, s.pageBytes())
}

// engineTooLarge leaves no memory for what a decode's engine copies some of its chunks to.
func engineTooLarge(m Mode, name string, _ int, _ shape) string {
	if m.delays() && name != "prefill" {
		return "call:sym=aclrtMalloc,nth=3,count=2,code=207001"
	}
	return ""
}

// ParseFaults reads names of scenarios, "all" of them, or rules of the software NPU, which each process then has.
func ParseFaults(text string) ([]*Faults, error) {
	switch {
	case text == "all":
		return scenarios, nil
	case strings.Contains(text, ":"):
		return []*Faults{{Name: text, first: always(text)}}, nil
	}
	var list []*Faults
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(scenarios, func(f *Faults) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--faults has %q; use %s, or rules as docs/softnpu.md has them", name, FaultNames())
		}
		list = append(list, scenarios[i])
	}
	return list, nil
}

// FaultNames lists the scenarios for people.
func FaultNames() string {
	var names []string
	for _, f := range scenarios {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ") + " or all"
}

// concern says whether they can strike in a mode.
func (f *Faults) concern(m Mode) bool { return !f.copies || m.delays() }

// rules are what one process is given.
func (f *Faults) rules(m Mode, name string, place, life int, s shape) string {
	switch {
	case f == nil:
		return ""
	case life == 1:
		return f.first(m, name, place, s)
	case f.later != nil:
		return f.later(m, name, place, s)
	}
	return ""
}

// refused says whether a node that answered so was to, and is to be started again.
func (f *Faults) refused(code string) bool {
	return f != nil && f.refuses && code == effects.NoMemory.String()
}

// unexpected are the causes of failed attempts that the faults do not explain.
func (f *Faults) unexpected(failures map[string]int) (causes []string) {
	if f == nil || f.ends == nil {
		return nil
	}
	for cause := range failures {
		_, end, _ := strings.Cut(cause, ": ")
		if !slices.ContainsFunc(f.ends, func(c effects.Code) bool { return c.String() == end }) {
			causes = append(causes, cause)
		}
	}
	slices.Sort(causes)
	return causes
}
