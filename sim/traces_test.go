package sim

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// byteFaults are the faults that change bytes of messages. What they change depends on the length of a message, to which
// a trace adds.
var byteFaults = []plan.Fault{plan.FaultNoise, plan.FaultHostileMessage, plan.FaultRequestCorrupted, plan.FaultReplyCorrupted,
	plan.FaultDoneForged, plan.FaultForeignEncoding, plan.FaultFieldRepeated, plan.FaultGreedyPeer, plan.FaultHelloCrowd}

// messageBytes is the length of a message in a line, to which a trace adds.
var messageBytes = regexp.MustCompile(` bytes=\d+`)

// tracedGrants is what the oracle remembers of traced puts.
type tracedGrants struct {
	contexts []effects.TraceContext
	arrivals []arrival
}

// An arrival is that of a request with a trace.
type arrival struct {
	context effects.TraceContext
	node    oracle.Node
	at      effects.Time // by the clock of the node
}

// tracedOracle judges that reports have the traces of their puts, at the node of the put and at the peer.
func tracedOracle(counts map[effects.Fact]int) oracle.Oracle {
	return oracle.New("traces", "a report has the trace of its put", func(l *oracle.Subscriptions[tracedGrants]) {
		oracle.On(l, func(g *tracedGrants, _ *oracle.Call, e *effects.Command) {
			switch x := e.Body.(type) {
			case *engine.Put:
				g.contexts = append(g.contexts, x.Trace.Context)
			case *layerwise.Begin:
				g.contexts = append(g.contexts, x.Trace.Context)
			case *recall.Recall:
				g.contexts = append(g.contexts, x.Trace)
			case *p2p.Bring:
				g.contexts = append(g.contexts, x.Trace)
			case *register.Register:
				g.contexts = append(g.contexts, x.Trace.Context)
			case *register.Finished:
				g.contexts = append(g.contexts, x.Trace.Context)
			}
		})
		oracle.On(l, func(g *tracedGrants, c *oracle.Call, e *effects.Received) {
			var m protocol.AllocRequest
			var offer protocol.PullReadyNotif
			lim := protocol.DefaultLimits()
			switch {
			case e.Channel == effects.ChannelRegister:
				var registration protocol.PushRegistration
				if registration.Decode(e.Body, &lim) == nil {
					g.arrivals = append(g.arrivals, arrival{effects.TraceFromWire(registration.Ext.Trace), c.Node(), c.LocalTime()})
				}
			case e.Channel != effects.ChannelAlloc:
			case m.Decode(e.Body, &lim) == nil && len(m.Keys) > 0:
				g.arrivals = append(g.arrivals, arrival{effects.TraceFromWire(m.Ext.Trace), c.Node(), c.LocalTime()})
			case offer.Decode(e.Body, &lim) == nil && len(offer.Keys) > 0:
				g.arrivals = append(g.arrivals, arrival{effects.TraceFromWire(offer.Ext.Trace), c.Node(), c.LocalTime()})
			}
		})
		oracle.On(l, func(g *tracedGrants, c *oracle.Call, e *effects.Observe) {
			if e.Report == nil {
				return
			}
			counts[e.Fact]++
			known := slices.Contains(g.contexts, e.Report.Trace.Context)
			whole := e.Report.Began.Add(e.Report.Phases.Sum()) == c.LocalTime()
			switch {
			case !known || !whole:
				c.Fail("node %d reports %s with %+v", c.Node(), e.Fact, *e.Report)
			case e.Fact == effects.FactPutEnded:
				if e.Report.Trace.Parent[0] != byte(e.ID) || e.Report.Trace.Context[8] != byte(e.ID) {
					c.Fail("node %d reports put %d with the trace of another one", c.Node(), e.ID)
				}
			case e.Fact == effects.FactRegistered:
				if !slices.Contains(g.arrivals, arrival{e.Report.Trace.Context, c.Node(), e.Report.Began}) {
					c.Fail("node %d reports %s with %+v", c.Node(), e.Fact, *e.Report)
				}
			case e.Fact == effects.FactAllocRefused:
				if !slices.Contains(g.arrivals, arrival{e.Report.Trace.Context, c.Node(), e.Report.Began}) {
					c.Fail("node %d reports %s with %+v", c.Node(), e.Fact, *e.Report)
				}
			case e.Fact == effects.FactGrantTraced:
				arrived := slices.Contains(g.arrivals, arrival{e.Report.Trace.Context, c.Node(), e.Report.Began})
				if e.Report.Trace.Parent != [8]byte{} || e.Report.Bytes == 0 || !arrived {
					c.Fail("node %d reports %s with %+v", c.Node(), e.Fact, *e.Report)
				}
			}
		})
	})
}

// Machines decide nothing by traces: with a trace at each put, every line of the event log is what it is without, but for
// the lengths of messages and the lines that report on a trace. The bound of the bytes of waiting messages is as by default,
// because a message with a trace is longer.
func TestTracesChangeNothing(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 8
	}
	compared, counts := 0, map[effects.Fact]int{}
	for _, profile := range []string{"calm", "crash", "leased", "pull", "starve", "both", "swarm", "layerwise", "register", "recall", "p2p"} {
		of := seeds
		if profile == "p2p" {
			of = 60 // Most of its seeds have faults that change bytes.
		}
		for seed := range of {
			p, err := Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			p.Bounds.WaitingBytes = 0
			play := func(traced bool) (lines []string, r Result) {
				o := Options{Plan: &p, tracesPuts: traced, Log: func(line string) {
					if !strings.Contains(line, effects.FactGrantTraced.String()) {
						lines = append(lines, messageBytes.ReplaceAllString(line, ""))
					}
				}}
				if traced {
					o.Oracles = []oracle.Oracle{tracedOracle(counts)}
				}
				return lines, mustRun(t, o)
			}
			without, r := play(false)
			if slices.ContainsFunc(byteFaults, func(f plan.Fault) bool { return r.FaultCounts[f] > 0 }) {
				continue
			}
			compared++
			with, traced := play(true)
			if r.Failure != nil || traced.Failure != nil {
				t.Fatalf("seed %d of %s fails: %v, %v", seed, profile, r.Failure, traced.Failure)
			}
			for i := range max(len(with), len(without)) {
				if i >= len(with) || i >= len(without) || with[i] != without[i] {
					t.Fatalf("seed %d of %s differs from line %d on:\n%s\n%s", seed, profile, i, lineAt(with, i), lineAt(without, i))
				}
			}
		}
	}
	t.Logf("%d runs, reports by fact: %v", compared, counts)
	for _, fact := range []effects.Fact{effects.FactPutEnded, effects.FactGrantTraced, effects.FactAllocRefused, effects.FactLayersSent,
		effects.FactLayersEnded, effects.FactReceived, effects.FactWritten, effects.FactRegistered, effects.FactRecalled,
		effects.FactShared} {
		if counts[fact] == 0 {
			t.Errorf("no report of %s was compared", fact)
		}
	}
	if compared < int(seeds) {
		t.Error("too little was compared")
	}
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}
