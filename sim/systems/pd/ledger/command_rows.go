package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A Bring or a recall has a row in a table of the machine until nothing of it is left: a late reply, a read that has
// not settled, and the done message for the lease. A peer that is gone for good must not keep the row. A command is
// refused for lack of a row only if no row is free.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRowsLeft    = oracle.NewCheck("L2", "rows of Brings and recalls that have ended")
	checkRowsRefused = oracle.NewCheck("L3", "commands refused for lack of a row")
	checkRowsMax     = oracle.NewCheck("S17", "numbers of Brings and recalls")
)

// commandRowOracle judges the tables of Brings, recalls and outbound peers.
type commandRowOracle struct {
	oracleBase
	perIncarnation[commandRowState]
	sizes tableSizes `snap:"scratch"`
}

// tableSizes are the sizes of the tables that this oracle compares.
type tableSizes struct{ brought, sought, recalls, peers, queryConns int }

func (*commandRowOracle) subscribe(l *oracle.Subscriptions[commandRowOracle]) {
	oracle.On(l, func(o *commandRowOracle, _ *oracle.Call, e pd.CommandReceived) { o.recordCommand(e.Node, e.Command) })
	oracle.On(l, func(o *commandRowOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.verifyOutcome(e.Node, e.Command, e.Effect)
	})
	oracle.On(l, func(o *commandRowOracle, c *oracle.Call, e *effects.Return) { o.recordReturn(o.nodeOf(c), e) })
	oracle.On(l, func(o *commandRowOracle, _ *oracle.Call, e stepCounted) {
		state := o.stateOf(e.node)
		if state.received = nil; state.open[0]+state.open[1] > 0 || len(state.ended) > 0 {
			o.verifyRows(e.node)
		}
	})
}

// commandRowState counts the Brings and recalls of an incarnation of a node.
type commandRowState struct {
	before   tableSizes  `snap:"scratch"` // before the step that handles the command received
	received *pd.Command `snap:"scratch"`
	open     [2]int      `snap:"skip"` // without an outcome: Brings, recalls
	ended    []endedRow  `snap:"skip"` // whose rows may be left
	searches bool        `snap:"skip"` // a Bring without a named peer has been given: several rows may belong to it
}

func (s *commandRowState) clearForReuse() { *s = commandRowState{ended: s.ended[:0]} }

// endedRow is a command that has its outcome.
type endedRow struct {
	isRecall bool
	at       effects.Time // by the clock of the node
	frozen   int64        // how long the node had been frozen
}

// kindOfRow returns 0 for a Bring, 1 for a recall, and -1 for other commands.
func kindOfRow(c *pd.Command) int {
	switch c.Body.(type) {
	case *p2p.Bring:
		return 0
	case *recall.Recall:
		return 1
	}
	return -1
}

// recordCommand records that a machine receives a command.
func (or *commandRowOracle) recordCommand(n *world.Node, c *pd.Command) {
	state := or.stateOf(n)
	if kind := kindOfRow(c); kind >= 0 {
		state.open[kind]++
		// Later in the same step the ends of times may free rows.
		state.before, state.received = *or.readSizes(n), c
	}
	if b, ok := c.Body.(*p2p.Bring); ok && b.From == (p2p.Peer{}) {
		state.searches = true
	}
}

// readSizes reads the sizes of the tables of a machine.
func (or *commandRowOracle) readSizes(n *world.Node) *tableSizes {
	or.sizes = tableSizes{}
	t := &or.sizes
	pd.TablesOf(n, func(name string, rows int, _ table.Rest) {
		switch name {
		case "chunks brought":
			t.brought = rows
		case "chunks sought":
			t.sought = rows
		case "recalls":
			t.recalls = rows
		case "outbound peers": // A row without a user may be kept until its attempts have ended.
			t.peers = rows
		case "query connections in use":
			t.queryConns = rows
		}
	})
	return t
}

// verifyOutcome checks a command that is refused for lack of a row in a table.
func (or *commandRowOracle) verifyOutcome(n *world.Node, c *pd.Command, e *effects.Deliver) {
	state, kind := or.stateOf(n), kindOfRow(c)
	if kind >= 0 {
		state.open[kind]--
		state.ended = append(state.ended, endedRow{kind == 1, or.w.ReadClock(n), n.FrozenTime})
	}
	if e.Code != effects.TooMany || e.Why == nil || c != state.received {
		return
	}
	cfg, used, limit := &pd.InfoOf(n).Cfg, 0, 0
	switch t := &state.before; e.Why.Field {
	case "tables.shared":
		used, limit = max(t.brought, t.sought), int(cfg.BringsMax)
	case "tables.recalls":
		used, limit = t.recalls, int(cfg.RecallsMax)
	case "tables.peers":
		used, limit = max(t.peers, t.queryConns), int(cmp.Or(cfg.PeersMax, 256))
	default:
		return
	}
	if or.countJudged(checkRowsRefused); used < limit {
		or.fail(checkRowsRefused, "node %d refuses ticket %d (%s) because %s is used up, and %d of %d rows are used",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Why.Field, used, limit)
	}
}

// recordReturn records that the memory of a command is back, some time after the outcome: the done message is sent now.
func (or *commandRowOracle) recordReturn(n *world.Node, e *effects.Return) {
	if kind := kindOfRow(&or.w.Commands[e.Ticket-1]); kind >= 0 {
		or.stateOf(n).ended = append(or.stateOf(n).ended, endedRow{kind == 1, or.w.ReadClock(n), n.FrozenTime})
	}
}

// verifyRows checks the numbers of Brings and recalls against the limits, and that the rows of ended commands end.
func (or *commandRowOracle) verifyRows(n *world.Node) {
	state, cfg := or.stateOf(n), &pd.InfoOf(n).Cfg
	or.countJudged(checkRowsMax)
	if state.open[0] > 2*int(cfg.BringsMax) && cfg.BringsMax > 0 || state.open[1] > int(cfg.RecallsMax) && cfg.Recalls {
		or.fail(checkRowsMax, "node %d has %d Brings and %d recalls in progress, of at most %d and %d", n.AsSubject(), state.open[0],
			state.open[1], cfg.BringsMax, cfg.RecallsMax)
		return
	}
	if len(state.ended) == 0 || !or.isRecountStep(n) {
		return
	}
	t, reading := or.readSizes(n), 0
	for _, x := range or.w.Active.Transfers.Items {
		if x.Read && x.Local == n.Pool && x.LocalInUse {
			reading++
		}
	}
	now, rows := or.w.ReadClock(n), t.brought+t.recalls
	state.ended = slices.DeleteFunc(state.ended, func(x endedRow) bool {
		return now.Sub(x.at)-n.FrozenSince(x.frozen) > rowTime(n, x.isRecall, rows)
	})
	if state.searches || draw.IsFixed(or.w.Seed) { // In a scope, time stands still while a row may be left.
		or.countVoid(checkRowsLeft)
		return
	}
	or.countJudged(checkRowsLeft)
	if known := state.open[0] + state.open[1] + len(state.ended) + reading; rows > known {
		or.fail(checkRowsLeft, "node %d has %d rows of Brings and recalls, and %d may have something left", n.AsSubject(), rows, known)
	}
}

// rowTime returns how long the row of a command may be left after the outcome. The time includes that of a lease, of a
// reply, and of the attempts to send a done message. The done messages of recalls from a peer are sent one after the
// other.
func rowTime(n *world.Node, isRecall bool, rows int) effects.Duration {
	cfg := &pd.InfoOf(n).Cfg
	attempts := effects.Duration(attemptsMax(n)+2) * cfg.ReplyTimeout
	if isRecall {
		return cfg.Lease + attempts*effects.Duration(rows+1) + effects.Second
	}
	return cfg.ShareTTL + cfg.LookupTimeout + attempts + effects.Second
}
