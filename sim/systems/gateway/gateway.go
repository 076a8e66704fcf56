package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// The processes, and what they agree on.
const (
	hostName          = "k0" // the node of kvferry
	compatibilityHash = "h"
	sidePort          = 1
)

var (
	producers = []string{"p0", "p1"}
	consumers = []string{"d0", "d1"}
	stranger  = "x0" // registers in the names of engines that do not exist
)

// The memory of each engine. A request has positionCount blocks.
const (
	layerCount    = 2
	blockCount    = 48
	pageCount     = layerCount * blockCount
	positionCount = 3
	triesMax      = 3  // queries to the side channel of a consumer that does not answer
	requestsMax   = 8  // of each kind, before the probes
	engineBlocks  = 80 // of each plain engine, which has more than the node
)

var pageLayout = protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
	Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}

var pageBytes = mustPageBytes()

func mustPageBytes() uint64 {
	n, err := pageLayout.PageBytes()
	if err != nil {
		panic(fmt.Sprintf("BUG: the layout of the simulated pages: %v", err))
	}
	return n
}

func pageOf(layer int, block uint32) uint32 { return uint32(layer)*blockCount + block }

// contentOf returns the text that a request computes for a position of a layer.
func contentOf(request string, layer, position int) string {
	return fmt.Sprintf("%s layer %d position %d", request, layer, position)
}

// requestName returns the name of a request: those of producers begin with r, those of the node with s.
func requestName(kind string, number uint32) string { return fmt.Sprintf("%s%d", kind, number) }

// producerOf returns the producer of a request.
func producerOf(number uint32) string { return producers[int(number)%len(producers)] }

// Requests from firstProbe on begin after the faults. A plain engine that has restarted is noticed only when something is
// sent to its former agent, so the first requests may fail, and those from secondProbe on must succeed.
const (
	firstProbe  = 1000
	secondProbe = 1100
)

// isCalm reports whether nothing goes wrong in a run, so that all transfers must succeed.
func isCalm(p *plan.Plan) bool {
	return len(p.Faults) == 0 && len(p.Strikes) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(p.Rates)),
		func(n int) bool { return n > 0 })
}

// hasStrangers reports whether a stranger registers in a run. What it registers counts among the registrations that the
// gateway remembers as over.
func hasStrangers(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Do == "flood" || x.Do == "forge" })
}

// mustSucceed reports whether nothing can go wrong with a request of a plan: both ends get their commands at about the
// same time, in a run without faults or long after the faults.
func mustSucceed(p *plan.Plan, number uint32, do, other string) bool {
	find := func(do string, number uint32) (at time.Duration, once bool) {
		n := 0
		for _, x := range p.Items {
			if x.Do == do && x.Number == number {
				at = x.At
				n++
			}
		}
		return at, n == 1
	}
	a, is := find(do, number)
	b, also := find(other, number)
	if !is || !also || (a-b).Abs() > pairedWithin && !isKept(p, number, find) {
		return false
	}
	if isCalm(p) {
		return true
	}
	before, first := find(do, number-secondProbe+firstProbe)
	alike, too := find(other, number-secondProbe+firstProbe)
	return number >= secondProbe && first && too && min(before, alike) >= p.FaultsEnd+convergeTime &&
		min(a, b) >= max(before, alike)+convergeTime
}

// isKept reports whether heartbeats keep a request at its producer from before it is finished until it is registered,
// which is later than the producer's lease.
func isKept(p *plan.Plan, number uint32, find func(do string, number uint32) (time.Duration, bool)) bool {
	for _, x := range [][3]string{{"expect", "compute", "receive"}, {"foresee", "lend", "want"}} {
		kept, is := find(x[0], number)
		finished, also := find(x[1], number)
		registered, too := find(x[2], number)
		if is && also && too && kept <= finished+pairedWithin && finished <= registered && registered <= kept+keptFor {
			return true
		}
	}
	return false
}

// keptFor is how long heartbeats keep a request that is registered late. It is longer than a producer's lease.
const keptFor = 10 * time.Second

// pairedWithin is the longest time between the commands at both ends of a request.
const pairedWithin = 1500 * time.Millisecond

// The facts that the processes report. A code other than OK is a breach, which the text describes.
const (
	factStored     effects.Fact = effects.FactOther + iota // a producer stores a page at the node
	factRead                                               // a page of the node is read for a write
	factReceived                                           // a request is received
	factOutcome                                            // a command of the node has ended
	factRegistered                                         // a producer gets a registration
	factWritten                                            // the node writes a page of a consumer
	factPassed                                             // a registration of a consumer is passed to the rank
	factCompleted                                          // a send of the rank is completed
	factTold                                               // a consumer is told that it has a request
)

// observe reports a fact that an oracle judges.
func observe(out *effects.Effects, f effects.Fact, code effects.Code, text string) {
	o := effects.Observe{Fact: f, Code: code}
	if code != effects.OK {
		o.Why = &effects.Why{Field: text}
	}
	out.Observe(o)
}

// judge returns an oracle that fails when one of the facts reports a breach.
func judge(name, promise string, facts ...effects.Fact) oracle.Oracle {
	return oracle.New(name, promise, func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Observe) {
			if slices.Contains(facts, e.Fact) && e.Code != effects.OK && e.Why != nil {
				c.Fail("%s", e.Why.Field)
			}
		})
	})
}

// convergeTime is the time after the last fault by which everything works again: whatever began before has ended.
const convergeTime = 15 * time.Second

// System is a node of kvferry between two producers and two consumers.
var System = custom.System{
	Name:      "gateway",
	Processes: listProcesses,
	Draw:      drawPlan,
	Commands: map[string]func(plan.Item) effects.CommandBody{
		"receive": func(x plan.Item) effects.CommandBody { return &receiveBody{x.Number} },
		"expect":  func(x plan.Item) effects.CommandBody { return &expectBody{x.Number} },
		"lend":    func(x plan.Item) effects.CommandBody { return &lendBody{x.Number} },
		"abort":   func(x plan.Item) effects.CommandBody { return &abortBody{x.Number} },
		"flood":   func(x plan.Item) effects.CommandBody { return &floodBody{x.Number} },
		"forge":   func(x plan.Item) effects.CommandBody { return &forgeBody{x.Number} },
		"heal":    func(plan.Item) effects.CommandBody { return &healBody{} },
		"cancel":  func(plan.Item) effects.CommandBody { return &cancelBody{} },
		"compute": func(x plan.Item) effects.CommandBody { return &computeBody{x.Number} },
		"foresee": func(x plan.Item) effects.CommandBody { return &foreseeBody{x.Number} },
		"want":    func(x plan.Item) effects.CommandBody { return &wantBody{x.Number} },
	},
	Oracles: []oracle.Oracle{
		judge("plain stores", "a plain engine stores only into blocks that are being received", factStored),
		judge("plain reads", "only blocks that are lent are read for plain engines", factRead),
		judge("plain contents", "what is received from a plain engine is what it computed", factReceived),
		judge("plain outcomes", "a command about plain engines ends once, in time, and well if nothing goes wrong", factOutcome),
		judge("plain registrations", "a registration is sent to a plain engine once", factRegistered),
		judge("plain writes", "a plain engine is written to only in blocks that it has registered", factWritten),
		judge("gateway's contract",
			"the gateway completes each send of the rank once, and at the latest when the rank closes the connection", factCompleted),
		judge("plain repetitions",
			"a registration of a plain engine is passed to the rank once, and again only if the rank did not know the engine; a side channel "+
				"that does not answer is queried a bounded number of times", factPassed),
		judge("plain completions", "a plain engine is told once that it has a request, and then has it", factTold),
	},
	FactNames: []string{"stored", "read", "received", "ended", "registered", "written", "passed", "completed", "told"},
	// The last requests begin 45 s after the faults, and a consumer holds its command until its router gives the request
	// up.
	CommandTimeout: 100 * time.Second,
	DriftMaxPPM:    20_000,
}

func listProcesses(*plan.Plan) []custom.Process {
	channels := []effects.Channel{port}
	all := []custom.Process{{Name: hostName, Channels: channels, New: newHost}}
	for _, name := range slices.Concat(producers, consumers) {
		all = append(all, custom.Process{Name: name, Channels: channels, New: newPlainEngine(name)})
	}
	return append(all, custom.Process{Name: stranger, Channels: channels, New: newStranger})
}

// The numbers of the processes.
const (
	hostNode      = plan.Node(0)
	firstProducer = plan.Node(1)
	firstConsumer = plan.Node(3)
)

// drawPlan draws the requests: for each the commands at both of its ends, in either order. A quarter of the runs has no
// faults.
func drawPlan(d custom.Draws, p *plan.Plan) {
	if d.NumberBelow("calm", 0, 4) == 0 {
		p.Faults, p.Strikes = nil, nil
		clear(p.Rates)
	}
	last := p.FaultsEnd
	at := func(nth uint64, from time.Duration) time.Duration {
		return from + d.Duration("wait", nth, time.Millisecond, pairedWithin)
	}
	request := func(nth uint64, number uint32, begin time.Duration, plain bool) {
		keep, finish, register := "foresee", "lend", "want"
		keeper, source, target := firstConsumer+plan.Node(number%2), hostNode, firstConsumer+plan.Node(number%2)
		if plain {
			keep, finish, register = "expect", "compute", "receive"
			keeper, source, target = hostNode, firstProducer+plan.Node(number%2), hostNode
		}
		first, second := at(2*nth, begin), at(2*nth+1, begin)
		if d.NumberBelow("kept", nth, 3) == 0 { // It is registered when the producer's lease would be over.
			p.Items = append(p.Items, plan.Item{At: begin, Do: keep, Node: keeper, Number: number})
			second = begin + keptFor - 500*time.Millisecond
		}
		p.Items = append(p.Items, plan.Item{At: first, Do: finish, Node: source, Number: number},
			plan.Item{At: second, Do: register, Node: target, Number: number})
	}
	for i := range uint32(2 + d.NumberBelow("requests", 0, requestsMax-1)) {
		request(uint64(i), i, d.Duration("begin", uint64(i), time.Millisecond, max(2*time.Millisecond, last)), true)
	}
	for i := range uint32(2 + d.NumberBelow("requests", 1, 3)) {
		request(100+uint64(i), i, d.Duration("begin", 100+uint64(i), time.Millisecond, max(2*time.Millisecond, last)), false)
	}
	if d.NumberBelow("forge", 0, 2) == 0 { // Even without faults.
		p.Items = append(p.Items, d.Items("forge", 1, 6, stranger)...)
	}
	if len(p.Faults) > 0 || len(p.Rates) > 0 {
		p.Items = append(p.Items, d.Items("abort", 0, 4, hostName)...)
		p.Items = append(p.Items, d.Items("cancel", 0, 2, hostName)...)
		if d.NumberBelow("flood", 0, 3) == 0 {
			p.Items = append(p.Items, d.Items("flood", 1, 3, stranger)...)
		}
		if d.NumberBelow("lossy", 0, 2) == 0 {
			p.Rates[plan.FaultReplyLost] = 10 + int(d.NumberBelow("lossy", 1, 200))
			p.Rates[plan.FaultMessageDelayed] = 10 + int(d.NumberBelow("lossy", 2, 300))
		}
	}
	for _, after := range []time.Duration{0, convergeTime / 2} { // A node that crashed last has restarted by then.
		p.Items = append(p.Items, plan.Item{At: last + after, Do: "heal", Node: hostNode})
	}
	for i := range uint32(4) { // What begins after the faults succeeds at the second attempt.
		number, begin := firstProbe+i%2, last+convergeTime+time.Duration(i)*100*time.Millisecond
		if i >= 2 {
			number, begin = secondProbe+i%2, begin+2*convergeTime
		}
		request(1000+uint64(i), number, begin, true)
		request(1100+uint64(i), number, begin, false)
	}
	slices.SortStableFunc(p.Items, func(a, b plan.Item) int { return cmp.Compare(a.At, b.At) })
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
