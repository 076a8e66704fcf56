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
	// The third consumer is an engine more than the gateway has places for in some runs. Its process is the last, so that
	// the nodes of older plans keep their numbers.
	thirdConsumer = "d2"
	stranger      = "x0" // registers in the names of engines that do not exist
)

// The memory of each engine. A request has positionCount blocks.
const (
	layerCount    = 2
	blockCount    = 48
	blockTokens   = 4
	positionCount = 3
	cacheLayout   = "LBHNC"
	requestsMax   = 8  // of each kind, before the probes
	engineBlocks  = 80 // of each plain engine, which has more than the node
)

// unloadable begins the metadata of an agent that libnixl cannot load.
const unloadable = "!"

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

// requestName returns the name of a request: those of producers begin with r, those of the node with s.
func requestName(kind string, number uint32) string { return fmt.Sprintf("%s%d", kind, number) }

// producerOf returns the producer of a request.
func producerOf(number uint32) string { return producers[int(number)%len(producers)] }

// consumerOf returns the consumer of a request.
func consumerOf(number uint32) string {
	if number >= firstOfThird && number < firstRival {
		return thirdConsumer
	}
	return consumers[int(number)%len(consumers)]
}

// Requests that begin about something else that happens to a producer: those before it restarts, those after, those while
// notifications to it fail, those before the rank connects to many others, and those whose results nobody asks for in time.
const (
	firstFormer  = 200
	firstRenewed = 300
	firstBurst   = 400
	firstCrowded = 600
	firstDropped = 700
)

// firstRival is the first request of which two consumers register one of the same name: each even number and the next.
const firstRival = 800

// isRival reports whether another consumer registers a request of the same name.
func isRival(number uint32) bool { return number >= firstRival && number < firstProbe }

// nameOfWanted returns the name of a request of a consumer.
func nameOfWanted(number uint32) string {
	if isRival(number) {
		number &^= 1
	}
	return requestName("s", number)
}

// firstOfThird is the first request of the third consumer; those from firstProbe on are of the others again.
const firstOfThird = 500

// Requests from firstProbe on begin after the faults. A plain engine that has restarted is noticed only when something is
// sent to its former agent, so the first requests may fail, and those from secondProbe on must succeed.
const (
	firstProbe  = 1000
	secondProbe = 1100
)

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
	factTaken                                              // a registration of a consumer is taken or refused
	factEngine                                             // a plain engine is taken or refused
	factAgent                                              // an agent is made for a producer, or not for want of room
	factAsked                                              // a registration of the rank is taken or refused
	factTries                                              // something is tried again, or given up
	factPatience                                           // how long a registration of a consumer may wait is stated
	factFits                                               // the metadata of a plain engine is taken or refused
	factAnswer                                             // a plain engine gets metadata of the node
	factWindow                                             // the window of a plain engine is stated
	factProof                                              // an expulsion of a producer is reported as done
	factOpen                                               // the gateway's registrations with producers are counted
	factGreeting                                           // a hello names a rank of a plain engine
	factHeartbeat                                          // a heartbeat is passed on
	factReached                                            // an agent of the node sends to an agent of a plain engine
	factRival                                              // a registration of a consumer ends whose name another has used
	factEnd                                                // one more than the last
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
	check := oracle.NewCheck("gateway:", name)
	return oracle.New(name, promise, func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Observe) {
			if !slices.Contains(facts, e.Fact) {
				return
			}
			c.CountJudged(check)
			if e.Code != effects.OK && e.Why != nil {
				c.Fail("%s", e.Why.Field)
			}
		})
	})
}

// convergeTime is the time after the last fault by which everything works again: whatever began before has ended.
const convergeTime = 15 * time.Second

// System is a node of kvferry between two producers and three consumers.
var System = custom.System{
	Name:      "gateway",
	Processes: listProcesses,
	Draw:      drawPlan,
	Commands: addSettings(map[string]func(plan.Item) effects.CommandBody{
		"receive": func(x plan.Item) effects.CommandBody { return &receiveBody{x.Number} },
		"expect":  func(x plan.Item) effects.CommandBody { return &expectBody{x.Number} },
		"lend":    func(x plan.Item) effects.CommandBody { return &lendBody{x.Number} },
		"abort":   func(x plan.Item) effects.CommandBody { return &abortBody{x.Number} },
		"flood":   func(x plan.Item) effects.CommandBody { return &floodBody{x.Number} },
		"forge":   func(x plan.Item) effects.CommandBody { return &forgeBody{x.Number} },
		"heal":    func(plan.Item) effects.CommandBody { return &healBody{} },
		"cancel":  func(plan.Item) effects.CommandBody { return &cancelBody{} },
		"forget":  func(x plan.Item) effects.CommandBody { return &forgetBody{effects.Duration(x.Span)} },
		"refuse":  func(x plan.Item) effects.CommandBody { return &refuseBody{x.Number, effects.Duration(x.Span)} },
		"unlink":  func(x plan.Item) effects.CommandBody { return &unlinkBody{x.Number} },
		"lose":    func(x plan.Item) effects.CommandBody { return &loseBody{x.Number} },
		"flaky":   func(x plan.Item) effects.CommandBody { return &flakyBody{x.Number, effects.Duration(x.Span)} },
		"astray":  func(x plan.Item) effects.CommandBody { return &astrayBody{x.Number} },
		"mute":    func(x plan.Item) effects.CommandBody { return &muteBody{effects.Duration(x.Span)} },
		"restart": func(plan.Item) effects.CommandBody { return &restartBody{} },
		"stray":   func(x plan.Item) effects.CommandBody { return &strayBody{x.Number} },
		"odd":     func(x plan.Item) effects.CommandBody { return &oddBody{x.Number, effects.Duration(x.Span)} },
		"leave":   func(plan.Item) effects.CommandBody { return &leaveBody{} },
		"compute": func(x plan.Item) effects.CommandBody { return &computeBody{x.Number} },
		"foresee": func(x plan.Item) effects.CommandBody { return &foreseeBody{x.Number} },
		"want":    func(x plan.Item) effects.CommandBody { return &wantBody{x.Number} },
	}),
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
				"that does not answer is queried a bounded number of times; one hello is sent to the rank at a time", factPassed),
		judge("plain completions", "a plain engine is told once that it has a request, and then has it", factTold),
		judge("plain rivals", "a request that two consumers wait for by one name is written to neither", factRival),
		judge("agents reached", "an agent sends only to agents of plain engines that it has loaded", factReached),
		settings,
	},
	FactNames: []string{"stored", "read", "received", "ended", "registered", "written", "passed", "completed", "told", "taken",
		"engine", "agent", "asked", "tries", "patience", "fits", "answer", "window", "proof", "open", "greeting",
		"heartbeat", "reached", "rival"},
	// The last requests begin 45 s after the faults, and a consumer holds its command until its router gives the request
	// up.
	CommandTimeout: 100 * time.Second,
	DriftMaxPPM:    20_000,
}

// addSettings adds the commands of the items that state settings.
func addSettings(commands map[string]func(plan.Item) effects.CommandBody) map[string]func(plan.Item) effects.CommandBody {
	for _, do := range settingItems {
		commands[do] = func(plan.Item) effects.CommandBody { return &settingBody{} }
	}
	return commands
}

func listProcesses(*plan.Plan) []custom.Process {
	channels := []effects.Channel{port}
	all := []custom.Process{{Name: hostName, Channels: channels, New: newHost}}
	for _, name := range slices.Concat(producers, consumers) {
		all = append(all, custom.Process{Name: name, Channels: channels, New: newPlainEngine(name)})
	}
	return append(all, custom.Process{Name: stranger, Channels: channels, New: newStranger},
		custom.Process{Name: thirdConsumer, Channels: channels, New: newPlainEngine(thirdConsumer)})
}

// The numbers of the processes.
const (
	hostNode      = plan.Node(0)
	firstProducer = plan.Node(1)
	firstConsumer = plan.Node(3)
	strangerNode  = plan.Node(5)
	thirdNode     = plan.Node(6)
)

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
