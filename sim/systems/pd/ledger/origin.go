package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Names cost nothing, so a host that invents names must not have more of a receiver than its share: of the pages, those
// that landed under former names included, and of the rows for peers. The plan says what each node counts against (its
// origin), and the world what each stranger does.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkOriginPages = oracle.NewCheck("S18", "shares of pages, by origin")
	checkOriginRow   = oracle.NewCheck("S18", "peers that make room for others, by origin")
	checkOriginRoom  = oracle.NewCheck("S18", "hellos that are refused for lack of room")
)

// originOracle judges what the peers with one origin have of a receiver.
type originOracle struct {
	oracleBase
	perIncarnation[originState]
	hello protocol.HixlInitRequest  `snap:"scratch"`
	reply protocol.HixlInitResponse `snap:"scratch"`
}

// originState records the names under which peers shook hands with an incarnation of a receiver.
type originState struct {
	names  []originName `snap:"skip"`
	newest newHello     `snap:"scratch"`
}

func (s *originState) clearForReuse() { *s = originState{names: s.names[:0]} }

// originName is a name under which a peer shook hands.
type originName struct {
	name      effects.Incarnation
	origin    effects.Origin
	hadRow    bool // before the newest hello
	onlyHello bool // nothing else came from the origin since the hello
}

// newHello is a hello that the machine handles in this step.
type newHello struct {
	name     effects.Incarnation
	origin   effects.Origin
	request  uint64 // 0: there is no hello
	wasKnown bool
	code     effects.Code // of the reply
}

func (*originOracle) subscribe(l *oracle.Subscriptions[originOracle]) {
	oracle.On(l, func(o *originOracle, _ *oracle.Call, e world.MessageReceived) {
		if len(o.w.SourcePlan.Topology.Origins) > 0 && !e.Node.Custom {
			o.recordMessage(e.Node, &e.Delivery)
		}
	})
	oracle.On(l, func(o *originOracle, _ *oracle.Call, e world.SendingReply) {
		if len(o.w.SourcePlan.Topology.Origins) == 0 {
			return
		}
		if x := &o.stateOf(e.Node).newest; x.request != 0 && x.request == e.Request &&
			o.reply.Decode(e.Body, &pd.WireLimits) == nil && o.reply.HasExt {
			x.code = effects.CodeFromWire(o.reply.Ext.Code)
		}
	})
	oracle.On(l, func(o *originOracle, _ *oracle.Call, e stepCounted) {
		if len(o.w.SourcePlan.Topology.Origins) > 0 {
			o.verifyHello(e.node, e.stats)
		}
	})
}

// recordMessage records a hello, or that the peers of an origin do more than shake hands.
func (or *originOracle) recordMessage(n *world.Node, d *world.Delivery) {
	state, origin := or.stateOf(n), or.w.OriginOf(n, d.A)
	if effects.Channel(d.B) != effects.ChannelInit {
		for i := range state.names {
			if state.names[i].origin == origin {
				state.names[i].onlyHello = false
			}
		}
		return
	}
	if or.hello.Decode(d.Body, &pd.WireLimits) != nil || !or.hello.HasExt {
		return
	}
	name := effects.Incarnation(or.hello.Ext.Incarnation)
	state.newest = newHello{name: name, origin: origin, request: d.C, wasKnown: pd.KnowsPeer(n, name)}
	for i := range state.names {
		state.names[i].hadRow = pd.KnowsPeer(n, state.names[i].name)
	}
}

// verifyHello checks, after the step of a hello, which peer made room for the new one, or that none could.
func (or *originOracle) verifyHello(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	x := state.newest
	state.newest = newHello{}
	if x.request == 0 {
		return
	}
	var evicted *originName
	counts, total, known := map[effects.Origin]int{}, 0, 0
	for i := range state.names {
		switch y := &state.names[i]; {
		case !y.hadRow:
		case !pd.KnowsPeer(n, y.name):
			evicted = y
			fallthrough
		default:
			counts[y.origin]++
			total++
		}
	}
	isKnown := pd.KnowsPeer(n, x.name)
	limit := int(pd.InfoOf(n).Cfg.PeersMax)
	defer state.setOrigin(x.name, x.origin, isKnown)
	for i := range state.names {
		if y := &state.names[i]; y.name != x.name && pd.KnowsPeer(n, y.name) {
			known++
		}
	}
	if x.wasKnown {
		return
	}
	if isKnown {
		known++
	}
	if known != s.InboundPeers {
		or.countVoid(checkOriginRow)
		return
	}
	held, origins := counts[x.origin], len(counts)
	// The last eighth of the rows is not for an origin that has half of them.
	if leavesRows := limit-total <= limit/8 && held >= (limit+1)/2 && x.origin != 0; total < limit && !leavesRows {
		if or.countJudged(checkOriginRoom); !isKnown && x.code == effects.TooMany {
			or.fail(checkOriginRoom, "node %d refuses a hello whose origin has %d of %d rows, although %d rows are free",
				n.AsSubject(), held, limit, limit-total)
		}
		return
	}
	if held == 0 {
		origins++
	}
	share := max(1, limit/origins)
	// onlyHello reports whether a peer that certainly could have made room has one of the origins that are given.
	onlyHello := func(has func(effects.Origin) bool) bool {
		return slices.ContainsFunc(state.names, func(y originName) bool { return y.hadRow && y.onlyHello && has(y.origin) })
	}
	switch {
	case evicted == nil && isKnown:
		or.countJudged(checkOriginRow)
		or.fail(checkOriginRow, "node %d has a further row for an origin that has %d of %d, and %d are free",
			n.AsSubject(), held, limit, limit-total)
	case evicted != nil && held >= share:
		if or.countJudged(checkOriginRow); evicted.origin != x.origin {
			or.fail(checkOriginRow, "node %d drops a peer of another origin for a new one whose origin has %d of %d rows, and %d origins share them",
				n.AsSubject(), held, limit, origins)
		}
	case evicted != nil:
		or.countJudged(checkOriginRow)
		if counts[evicted.origin] <= share && onlyHello(func(o effects.Origin) bool { return counts[o] > share }) {
			or.fail(checkOriginRow, "node %d drops a peer whose origin has %d of %d rows, although another origin has more than its share, %d",
				n.AsSubject(), counts[evicted.origin], limit, share)
		}
	case !isKnown && x.code == effects.TooMany:
		or.countJudged(checkOriginRoom)
		if onlyHello(func(o effects.Origin) bool { return o == x.origin || held < share }) {
			or.fail(checkOriginRoom, "node %d refuses a hello whose origin has %d of %d rows, and %d origins share them, although a peer "+
				"has only said hello", n.AsSubject(), held, limit, origins)
		}
	}
}

// setOrigin records the origin of a name that a machine knows now.
func (s *originState) setOrigin(name effects.Incarnation, origin effects.Origin, isKnown bool) {
	if !isKnown {
		return
	}
	i := slices.IndexFunc(s.names, func(x originName) bool { return x.name == name })
	if i < 0 {
		i = len(s.names)
		s.names = append(s.names, originName{name: name, onlyHello: true})
	} else if !s.names[i].hadRow {
		s.names[i].onlyHello = true
	}
	s.names[i].origin = origin
}

// originOf returns the origin of the newest hello under a name, or reports false if there was none.
func (s *originState) originOf(name effects.Incarnation) (effects.Origin, bool) {
	for i := range s.names {
		if s.names[i].name == name {
			return s.names[i].origin, true
		}
	}
	return 0, false
}

// rowsForAll returns the number of rows for peers that a machine gives to any peer. The last eighth is not for an origin
// that has half of the rows.
func (j *oracleBase) rowsForAll(n *world.Node) int {
	limit := int(cmp.Or(pd.InfoOf(n).Cfg.PeersMax, 256))
	if len(j.w.SourcePlan.Topology.Origins) > 0 {
		limit -= limit / 8
	}
	return limit
}

// countOrigins returns the number of origins from which peers have shaken hands.
func (s *originState) countOrigins() int {
	all := map[effects.Origin]bool{}
	for i := range s.names {
		all[s.names[i].origin] = true
	}
	return len(all)
}

// hasOriginShares reports whether n limits the share of the pool that the peers with one origin may have.
func hasOriginShares(n *world.Node) bool { return pd.InfoOf(n).Cfg.OriginSharePct < 100 }

// originShare returns how many pages the peers with one origin may have while a peer with another origin is present.
func originShare(n *world.Node) int {
	return max(1, int(pd.InfoOf(n).Cfg.Pages)*int(pd.InfoOf(n).Cfg.OriginSharePct)/100)
}

// verifyOriginShare checks that the peers with one origin have no more than an origin's share of the pool after a grant
// to one of them, while a peer with another origin is active. Chunks that have landed and are still kept count as well,
// also those of peers that the machine does not know any more (S18).
func (or *pageShareOracle) verifyOriginShare(n *world.Node, e *world.Grant) {
	names := or.oracles().origins.stateOf(n)
	origin, ok := names.originOf(e.Peer)
	if !hasOriginShares(n) || !ok {
		return
	}
	contested := false
	for _, c := range or.stateOf(n).peers {
		other, ok := names.originOf(c.peer)
		contested = contested || ok && other != origin && c.served && pd.KnowsPeer(n, c.peer) &&
			n.ReadingAt(or.w.Now).Sub(n.ReadingAt(c.lastRequest)) < pd.InfoOf(n).Cfg.ClaimTTL
	}
	if !contested {
		or.countVoid(checkOriginPages)
		return
	}
	or.countJudged(checkOriginPages)
	count := 0
	for i := range n.Pool.Pages {
		pg := &n.Pool.Pages[i]
		if o, ok := names.originOf(pg.GrantedTo); ok && o == origin && (pg.Granted != 0 || !n.IsCache && or.isKeptPage(n, uint32(i))) {
			count++
		}
	}
	if count > originShare(n) {
		or.fail(checkOriginPages, "node %d grants %d pages to a peer whose origin has %d now, of at most %d",
			n.AsSubject(), len(e.Pages), count, originShare(n))
	}
}

// mayExceedOrigin reports whether the share of the origin of a request's peer may be used up, so that the request waits.
func (or *queueOracle) mayExceedOrigin(n *world.Node, s *rank.Stats, w *pendingRequest) bool {
	if !hasOriginShares(n) {
		return false
	}
	names := or.oracles().origins.stateOf(n)
	origin, ok := names.originOf(w.peer)
	if w.peer == (effects.Incarnation{}) && w.conn != 0 {
		origin, ok = or.w.OriginOf(n, w.conn), true
	}
	if ok && !slices.ContainsFunc(names.names, func(x originName) bool { return x.origin != origin }) {
		return false // No peer with another origin has ever been here.
	}
	limit := s.PagesTotal - s.PagesFree - s.PagesEvictable - or.oracles().dualRole.stateOf(n).reservedPages
	if ok && s.PagesPromised == 0 {
		count := 0
		for i := range n.Pool.Pages {
			if o, isKnown := names.originOf(n.Pool.Pages[i].GrantedTo); !isKnown || o == origin {
				count++
			}
		}
		limit = min(limit, count)
	}
	return limit+w.pageCount > originShare(n)
}
