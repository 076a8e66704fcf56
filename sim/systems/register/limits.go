package register

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The oracle of this file judges the times and the limits of registered blocks: for how long a producer lends blocks, how
// often a consumer sends heartbeats, how long a registration waits, and how many commands, messages and names there may
// be at a time. All times are compared by the clock of one node.

// The checks of this file.
var (
	checkLeaseExact     = oracle.NewCheck("S14", "leases of finished blocks, to the instant")
	checkLeaseOverdue   = oracle.NewCheck("L2", "finished blocks whose lease is over")
	checkKeepNames      = oracle.NewCheck("S17", "requests in a heartbeat")
	checkKeepOften      = oracle.NewCheck("S18", "heartbeats that come too early")
	checkKeepDue        = oracle.NewCheck("L7", "heartbeats that are due")
	checkKeepTurn       = oracle.NewCheck("L7", "errands that are named in turn")
	checkWindow         = oracle.NewCheck("S17", "registrations in flight with a peer")
	checkWaitOver       = oracle.NewCheck("L8", "registrations that wait longer than allowed")
	checkLentMost       = oracle.NewCheck("S17", "finished requests that are lent at a time")
	checkLentLeast      = oracle.NewCheck("S18", "finished requests refused although few are lent")
	checkReceptionsMost = oracle.NewCheck("S17", "registered requests at a time")
	checkReceptionLeast = oracle.NewCheck("S18", "registered requests refused although few are open")
	checkExpectMost     = oracle.NewCheck("S17", "expected requests at a time")
	checkExpectLeast    = oracle.NewCheck("S18", "expected requests refused although there are few")
	checkAnswered       = oracle.NewCheck("L2", "finished requests whose only rank has its answer")
	checkExactNames     = oracle.NewCheck("S1", "requests matched by their exact names")
)

// registerLimits holds the state of each node.
type registerLimits struct {
	nodes        map[oracle.Node]*nodeLimits
	registration protocol.PushRegistration `snap:"scratch"`
	withdrawal   protocol.PushWithdrawal   `snap:"scratch"`
	keep         protocol.PushKeep         `snap:"scratch"`
	end          protocol.PushEnd          `snap:"scratch"`
}

// nodeLimits is what is known of an incarnation of a node.
type nodeLimits struct {
	lent       map[effects.Ticket]*lentRequest
	receptions map[effects.Ticket]bool // requests that are registered, until their blocks are back
	errands    map[effects.Ticket]*errand
	keeps      map[uint64][][]byte // heartbeats that arrived and have no reply: the names, by message
	waiting    []waitingRegistration
	answered   []waitingRegistration // registrations that were written and answered in this step
	sent       map[effects.Corr]sentMessage
	named      map[string]namedAt                   // by peer and request: when a heartbeat named the request last
	linkUpAt   map[effects.Incarnation]effects.Time // by peer
	inFlight   map[effects.Conn]int                 // registrations, by connection
	expectedAt effects.Time                         // when the last request was expected
	disturbed  effects.Time                         // when a connection, a reply or a link was lost last, or a withdrawal had its reply
	keepBusy   map[int32]effects.Duration           // by node of the peer: how long heartbeats waited for their replies, in all
	keepEnded  map[int32]effects.Time               // by node of the peer: when the last of these replies came
	opening    int                                  // connections that are being opened
	frozen     effects.Duration

	openReceptions, openParts int // of the machine, before the last command that registers
}

type lentRequest struct {
	request, transfer []byte
	startedAt, endsAt effects.Time
	frozen            effects.Duration
	delivered         bool
}

type errand struct {
	id         []byte
	peers      []int32
	receivedAt effects.Time
	isSkip     bool
	namedAt    map[effects.Incarnation]effects.Time // by name of the peer in the message: when one last named the request
	namedTo    []int32                              // nodes to which a message has named the request
}

type waitingRegistration struct {
	request   uint64 `snap:"request"`
	peer      effects.Incarnation
	operation uint64
	grant     effects.GrantID
	arrivedAt effects.Time
	most      effects.Duration // how long the registration may wait
	frozen    effects.Duration
	writing   bool
	transfer  []byte
	writingAt effects.Time // the time at which the write began
}

type sentMessage struct {
	kind   protocol.PushKind
	conn   effects.Conn
	node   int32
	sentAt effects.Time
}

type namedAt struct {
	at   effects.Time
	busy effects.Duration
}

func (s *registerLimits) of(c *oracle.Call) *nodeLimits {
	if s.nodes == nil {
		s.nodes = map[oracle.Node]*nodeLimits{}
	}
	x := s.nodes[c.Node()]
	if x == nil {
		x = &nodeLimits{lent: map[effects.Ticket]*lentRequest{}, receptions: map[effects.Ticket]bool{}, errands: map[effects.Ticket]*errand{},
			keeps: map[uint64][][]byte{}, sent: map[effects.Corr]sentMessage{}, named: map[string]namedAt{},
			linkUpAt: map[effects.Incarnation]effects.Time{},
			inFlight: map[effects.Conn]int{}, keepBusy: map[int32]effects.Duration{}, keepEnded: map[int32]effects.Time{}}
		s.nodes[c.Node()] = x
	}
	return x
}

// limitsOracle judges the times and the limits of registered blocks.
var limitsOracle = oracle.New("limits of registrations", "blocks are lent as configured", func(l *oracle.Subscriptions[registerLimits]) {
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Command) {
		x := s.of(call)
		if _, registers := e.Body.(*ops.Register); registers {
			x.countReceptions(pd.ClusterOf(call).Nodes[call.Node()])
		}
		x.handleCommand(call, e)
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Deliver) { s.of(call).handleOutcome(call, e) })
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Return) {
		x := s.of(call)
		delete(x.lent, e.Ticket)
		delete(x.receptions, e.Ticket)
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Received) { s.handleMessage(call, e) })
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Reply) { s.handleReply(call, e) })
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Transfer) {
		x := s.of(call)
		for i := range x.waiting {
			w := &x.waiting[i]
			if !w.writing && w.peer == e.Peer && w.grant == e.Grant {
				w.writing, w.writingAt = true, call.LocalTime()
			}
		}
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Send) { s.handleSend(call, e) })
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Replied) {
		s.of(call).handleEnd(call, e.Corr, true)
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Unanswered) {
		s.of(call).handleEnd(call, e.Corr, false)
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, _ *effects.ConnLost) {
		s.of(call).disturbed = call.LocalTime()
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, _ *effects.Open) { s.of(call).opening++ })
	oracle.On(l, func(s *registerLimits, call *oracle.Call, _ *effects.Opened) {
		x := s.of(call)
		x.opening--
		x.disturbed = call.LocalTime()
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e *effects.Observe) {
		if e.Fact != effects.FactLinkUp && e.Fact != effects.FactLinkDown {
			return
		}
		x := s.of(call)
		if x.disturbed = call.LocalTime(); e.Fact == effects.FactLinkUp {
			x.linkUpAt[e.Peer] = call.LocalTime()
		} else {
			clear(x.linkUpAt) // Each link that is up is known by its next handshake.
		}
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, e oracle.StepEnded) {
		x := s.of(call)
		if call.FrozenTime() != x.frozen {
			x.frozen, x.disturbed = call.FrozenTime(), call.LocalTime()
		}
		n := pd.ClusterOf(call).Nodes[call.Node()]
		if n.Custom || n.Busy {
			return
		}
		x.verifyAnswered(call, n)
		if _, isCommand := e.Event.(*effects.Command); isCommand {
			x.verifyCounts(call, n)
		} else if _, isTick := e.Event.(*effects.Tick); isTick {
			x.verifyTimes(call, n)
		}
	})
	oracle.On(l, func(s *registerLimits, call *oracle.Call, _ oracle.IncarnationEnded) { delete(s.nodes, call.Node()) })
})

// nodeOfName returns the node whose present incarnation uses a name, or -1.
func nodeOfName(w *pd.Cluster, name effects.Incarnation) int32 {
	for _, n := range w.Nodes[:w.RankCount] {
		if n.Up && pd.IsNameOf(n, name) {
			return n.ID
		}
	}
	return -1
}

// handleCommand records a command that a node receives.
func (x *nodeLimits) handleCommand(call *oracle.Call, e *effects.Command) {
	w, now := pd.ClusterOf(call), call.LocalTime()
	n := w.Nodes[call.Node()]
	switch b := e.Body.(type) {
	case *ops.Finished:
		lease := b.Lease
		if lease == 0 {
			lease = pd.InfoOf(n).Cfg.RegistrationLease
		}
		x.lent[e.Ticket] = &lentRequest{request: b.Request, transfer: b.Transfer, startedAt: now, endsAt: now.Add(lease),
			frozen: call.FrozenTime()}
	case *ops.Register:
		x.receptions[e.Ticket] = true
	case *ops.Expect:
		x.addErrand(w, e.Ticket, now, b.Request, b.Transfer, b.Producers, false)
		x.expectedAt = now
	case *ops.NotNeeded:
		x.addErrand(w, e.Ticket, now, b.Request, b.Transfer, b.Producers, true)
	}
}

func (x *nodeLimits) addErrand(w *pd.Cluster, t effects.Ticket, now effects.Time, request, transfer []byte, peers []ops.Peer, skip bool) {
	r := &errand{id: transfer, receivedAt: now, isSkip: skip, namedAt: map[effects.Incarnation]effects.Time{}}
	if len(r.id) == 0 {
		r.id = request
	}
	for _, p := range peers {
		for _, n := range w.Nodes[:w.RankCount] {
			if at := n.Addr(effects.ChannelInit); at.Host == p.Host && at.Port == p.InitPort {
				r.peers = append(r.peers, n.ID)
			}
		}
	}
	x.errands[t] = r
}

// handleOutcome judges the outcome of a command.
func (x *nodeLimits) handleOutcome(call *oracle.Call, e *effects.Deliver) {
	w := pd.ClusterOf(call)
	n := w.Nodes[call.Node()]
	if n.Custom {
		return
	}
	cfg, field := &pd.InfoOf(n).Cfg, ""
	if e.Why != nil {
		field = e.Why.Field
	}
	if b := x.lent[e.Ticket]; b != nil {
		b.delivered = true
		switch {
		case e.Code == effects.Expired && field == "register.kv_lease_duration":
			if call.CountJudged(checkLeaseExact); call.LocalTime() < b.endsAt {
				call.FailCheck(checkLeaseExact, "node %d ends the lease of ticket %d %d ns before its time", n.AsSubject(), oracle.Ticket(e.Ticket),
					b.endsAt.Sub(call.LocalTime()))
				return
			}
		case e.Code == effects.TooMany && field == "register.batches":
			if call.CountJudged(checkLentLeast); len(x.lent)-1 < int(cfg.FinishedMax) {
				call.FailCheck(checkLentLeast, "node %d refuses a finished request while %d are lent, and %d are allowed", n.AsSubject(),
					len(x.lent)-1, cfg.FinishedMax)
				return
			}
		}
		if !e.Held {
			delete(x.lent, e.Ticket)
		}
	}
	if x.receptions[e.Ticket] {
		if e.Code == effects.TooMany && field == "register.receptions" {
			x.verifyReceptionRefused(call, n, e.Ticket)
		}
		checkExactMatch(call, w, n, e)
		if !e.Held {
			delete(x.receptions, e.Ticket)
		}
	}
	if r := x.errands[e.Ticket]; r != nil {
		delete(x.errands, e.Ticket)
		if e.Code == effects.TooMany && field == "register.expected" {
			count := len(r.peers)
			for _, o := range x.errands {
				count += len(o.peers)
			}
			if call.CountJudged(checkExpectLeast); count <= int(cfg.ExpectedMax) {
				call.FailCheck(checkExpectLeast, "node %d refuses a request that is expected, or not needed, of %d in all, and %d are allowed",
					n.AsSubject(), count, cfg.ExpectedMax)
			}
		}
	}
}

// countReceptions records how many receptions and parts of receptions the machine has before it handles a command. A
// reception whose blocks are back may wait for the reply to a withdrawal, so the machine is asked for its count.
func (x *nodeLimits) countReceptions(n *world.Node) {
	pd.TablesOf(n, func(name string, rows int, _ table.Rest) {
		switch name {
		case "receptions":
			x.openReceptions = rows
		case "parts of receptions":
			x.openParts = rows
		}
	})
}

// verifyReceptionRefused judges a Register that is refused for lack of room, by the counts before its step: the same step
// may end others.
func (x *nodeLimits) verifyReceptionRefused(call *oracle.Call, n *world.Node, t effects.Ticket) {
	cfg, w := &pd.InfoOf(n).Cfg, pd.ClusterOf(call)
	receptions, parts := x.openReceptions, x.openParts
	more := len(w.Commands[t-1].Body.(*ops.Register).Producers)
	partsMax := max(int(cfg.ProducersMax), int(cfg.ReceptionsMax)*min(int(cfg.ProducersMax), 8))
	if call.CountJudged(checkReceptionLeast); receptions < int(cfg.ReceptionsMax) && parts+more <= partsMax {
		call.FailCheck(checkReceptionLeast, "node %d refuses a registered request with %d of %d open, of %d producer ranks", n.AsSubject(),
			receptions, cfg.ReceptionsMax, parts)
	}
}

// checkExactMatch checks that a request is matched by its exact name if the producers demand that.
func checkExactMatch(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Deliver) {
	c := &w.Commands[e.Ticket-1]
	x := drawRequest(w, &w.Jobs[c.Job])
	if !pd.InfoOf(n).Cfg.ExactIDs || x.namesTransfer {
		return
	}
	own, _ := x.requestNames(true)
	theirs, _ := x.requestNames(false)
	if call.CountJudged(checkExactNames); e.Code == effects.OK && e.Hits > 0 && !bytes.Equal(own, theirs) {
		call.FailCheck(checkExactNames, "node %d receives the blocks of request %q, which the producer knows by another name", n.AsSubject(),
			oracle.Request(w.Jobs[c.Job].Name))
	}
}

// handleMessage records a heartbeat or a registration that a producer receives.
func (s *registerLimits) handleMessage(call *oracle.Call, e *effects.Received) {
	if e.Channel != effects.ChannelRegister || e.Request == 0 {
		return
	}
	w, x := pd.ClusterOf(call), s.of(call)
	n := w.Nodes[call.Node()]
	switch protocol.PushKindOf(e.Body) { //nolint:exhaustive // A withdrawal has no time.
	case protocol.PushKindKeep:
		if s.keep.Decode(e.Body, &pd.WireLimits) != nil {
			return
		}
		var ids [][]byte
		for _, id := range s.keep.Keep {
			ids = append(ids, bytes.Clone(id))
		}
		x.keeps[uint64(e.Request)] = ids
	case protocol.PushKindRegistration:
		m := &s.registration
		if m.Decode(e.Body, &pd.WireLimits) != nil || !m.HasExt ||
			!pd.IsGenuine(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
			return
		}
		r := waitingRegistration{
			request: uint64(e.Request), peer: effects.Incarnation(m.Ext.Incarnation), operation: m.Ext.Operation,
			grant: effects.GrantID(m.Ext.Grant), transfer: bytes.Clone(m.Ext.Transfer),
			arrivedAt: call.LocalTime(), most: effects.Duration(min(m.Ext.PatienceNS, uint64(pd.InfoOf(n).Cfg.RegisterTimeout))),
			frozen: call.FrozenTime(),
		}
		for i := range x.waiting {
			if o := &x.waiting[i]; o.peer == r.peer && o.operation == r.operation { // A retry; the first attempt goes on.
				o.request = r.request
				return
			}
		}
		x.waiting = append(x.waiting, r)
	}
}

// handleReply judges the reply of a producer.
func (s *registerLimits) handleReply(call *oracle.Call, e *effects.Reply) {
	x, w := s.of(call), pd.ClusterOf(call)
	n := w.Nodes[call.Node()]
	if n.Custom {
		return
	}
	m := &s.end
	if ids, ok := x.keeps[uint64(e.Request)]; ok {
		delete(x.keeps, uint64(e.Request))
		if m.Decode(e.Body, &pd.WireLimits) == nil && m.Code == 0 {
			x.renewLeases(call, n, ids)
		}
		return
	}
	i := slices.IndexFunc(x.waiting, func(r waitingRegistration) bool { return r.request == uint64(e.Request) })
	if i < 0 {
		return
	}
	if r := &x.waiting[i]; r.writing && len(r.transfer) > 0 {
		x.answered = append(x.answered, *r)
	}
	x.waiting = slices.Delete(x.waiting, i, i+1)
}

// verifyAnswered checks the requests of the registrations that were answered in this step. Where the consumer has a
// single rank, nothing of such a request is left to be written, whatever the answer was, so that the engine gets its
// outcome in the same step.
func (x *nodeLimits) verifyAnswered(call *oracle.Call, n *world.Node) {
	s := drawShape(pd.ClusterOf(call).SourcePlan)
	for i := range x.answered {
		if s.consumers > 1 {
			break
		}
		r := &x.answered[i]
		call.CountJudged(checkAnswered)
		for t, b := range x.lent {
			if !b.delivered && b.startedAt <= r.writingAt && bytes.Equal(b.transfer, r.transfer) {
				call.FailCheck(checkAnswered, "node %d still lends the blocks of ticket %d, whose only registration was answered",
					n.AsSubject(), oracle.Ticket(t))
				return
			}
		}
	}
	x.answered = x.answered[:0]
}

// renewLeases extends the leases of the requests that a heartbeat names.
func (x *nodeLimits) renewLeases(call *oracle.Call, n *world.Node, ids [][]byte) {
	cfg, now := &pd.InfoOf(n).Cfg, call.LocalTime()
	for _, b := range x.lent {
		for _, id := range ids {
			if bytes.Equal(b.transfer, id) ||
				len(b.transfer) == 0 && bytes.Equal(protocol.TrimRequestSuffix(b.request), protocol.TrimRequestSuffix(id)) {
				b.endsAt = max(b.endsAt, min(now.Add(cfg.RegistrationLease*2/3), b.startedAt.Add(cfg.ReadLeaseMax)))
			}
		}
	}
}

// handleSend judges a message that a consumer sends.
func (s *registerLimits) handleSend(call *oracle.Call, e *effects.Send) {
	x, w := s.of(call), pd.ClusterOf(call)
	n := w.Nodes[call.Node()]
	if n.Custom {
		return
	}
	kind, now, cfg := protocol.PushKindOf(e.Body), call.LocalTime(), &pd.InfoOf(n).Cfg
	switch kind { //nolint:exhaustive // Other messages are not about registrations.
	case protocol.PushKindRegistration:
		m := &s.registration
		if m.Decode(e.Body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		x.sent[e.Corr] = sentMessage{kind: kind, conn: e.Conn, node: -1, sentAt: now}
		x.inFlight[e.Conn]++
		limit := int(cfg.RegisterWindow)
		if call.CountJudged(checkWindow); x.inFlight[e.Conn] > limit {
			call.FailCheck(checkWindow, "node %d has %d registrations in flight with a peer, and %d are allowed", n.AsSubject(),
				x.inFlight[e.Conn], limit)
		}
	case protocol.PushKindWithdrawal:
		if s.withdrawal.Decode(e.Body, &pd.WireLimits) == nil {
			x.sent[e.Corr] = sentMessage{kind: kind, sentAt: now}
		}
	case protocol.PushKindKeep:
		m := &s.keep
		if m.Decode(e.Body, &pd.WireLimits) != nil {
			return
		}
		peer := effects.Incarnation(m.To)
		node := nodeOfName(w, peer)
		x.sent[e.Corr] = sentMessage{kind: kind, conn: e.Conn, node: node, sentAt: now}
		if call.CountJudged(checkKeepNames); len(m.Keep)+len(m.Skip) > int(cfg.NamesMax) || len(m.Keep)+len(m.Skip) == 0 {
			call.FailCheck(checkKeepNames, "node %d names %d requests in a heartbeat, and %d are allowed", n.AsSubject(),
				len(m.Keep)+len(m.Skip), cfg.NamesMax)
			return
		}
		if x.verifyTurns(call, n, m, node); w.Failure != nil {
			return
		}
		for _, id := range m.Keep {
			key := string(peer[:]) + string(id)
			last, known := x.named[key]
			if known && last.at > x.expectedAt {
				if call.CountJudged(checkKeepOften); now.Sub(last.at) < cfg.RegistrationLease/6 {
					call.FailCheck(checkKeepOften, "node %d repeats a heartbeat for %q after %d ns, and the interval is %d ns", n.AsSubject(), id,
						now.Sub(last.at), cfg.RegistrationLease/6)
					return
				}
			} else if known {
				call.CountVoid(checkKeepOften) // Each request that is expected begins a round of heartbeats.
			}
			x.named[key] = namedAt{now, x.keepBusy[node]}
		}
	}
}

// verifyTurns checks that a message to a peer does not name a request again while another errand, which the node had
// received before the message that named the request last, was in no message yet. What two errands name is not judged,
// because a message does not say which of them it means. A peer that has restarted knows of no errand, so that what is
// named to it is named for the first time, whatever was named to its former process.
func (x *nodeLimits) verifyTurns(call *oracle.Call, n *world.Node, m *protocol.PushKeep, node int32) {
	now, peer := call.LocalTime(), effects.Incarnation(m.To)
	names := func(ids [][]byte, r *errand) bool {
		return slices.ContainsFunc(ids, func(id []byte) bool { return bytes.Equal(id, r.id) })
	}
	latest := effects.Time(math.MinInt64) // when a request that is named again was named last
	for _, r := range x.errands {
		if at, again := r.namedAt[peer]; again && !r.isSkip && names(m.Keep, r) && !x.isNamedTwice(r) {
			latest = max(latest, at)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(x.errands)) {
		r, ids := x.errands[t], m.Keep
		if r.isSkip {
			ids = m.Skip
		}
		if !slices.Contains(r.peers, node) {
			continue
		}
		if names(ids, r) {
			r.namedAt[peer] = now
			r.namedTo = append(slices.DeleteFunc(r.namedTo, func(n int32) bool { return n == node }), node)
		}
		if latest == math.MinInt64 {
			call.CountVoid(checkKeepTurn)
		} else if call.CountJudged(checkKeepTurn); !slices.Contains(r.namedTo, node) && r.receivedAt < latest {
			call.FailCheck(checkKeepTurn, "node %d names requests to node %d again, and has not named %q, %d ns after the command",
				n.AsSubject(), oracle.Node(node), r.id, now.Sub(r.receivedAt))
			return
		}
	}
}

// isNamedTwice reports whether two errands of a kind have the same name.
func (x *nodeLimits) isNamedTwice(r *errand) bool {
	for _, o := range x.errands {
		if o != r && o.isSkip == r.isSkip && bytes.Equal(o.id, r.id) {
			return true
		}
	}
	return false
}

// handleEnd records the reply to a message, or its lack.
func (x *nodeLimits) handleEnd(call *oracle.Call, corr effects.Corr, replied bool) {
	m, ok := x.sent[corr]
	if !replied || ok && m.kind == protocol.PushKindWithdrawal {
		x.disturbed = call.LocalTime()
	}
	if !ok {
		return
	}
	delete(x.sent, corr)
	switch m.kind { //nolint:exhaustive // See handleSend.
	case protocol.PushKindRegistration:
		x.inFlight[m.conn]--
	case protocol.PushKindKeep:
		x.keepBusy[m.node] += call.LocalTime().Sub(m.sentAt)
		x.keepEnded[m.node] = call.LocalTime()
	}
}

// verifyCounts checks, after a command, how many commands the node has accepted.
func (x *nodeLimits) verifyCounts(call *oracle.Call, n *world.Node) {
	cfg, expected := &pd.InfoOf(n).Cfg, 0
	for _, r := range x.errands {
		if !r.isSkip { // A peer that was told leaves the table.
			expected += len(r.peers)
		}
	}
	call.CountJudged(checkLentMost, checkReceptionsMost, checkExpectMost)
	switch {
	case len(x.lent) > int(cfg.FinishedMax):
		call.FailCheck(checkLentMost, "node %d lends %d finished requests, and %d are allowed", n.AsSubject(), len(x.lent), cfg.FinishedMax)
	case len(x.receptions) > int(cfg.ReceptionsMax):
		call.FailCheck(checkReceptionsMost, "node %d has %d registered requests, and %d are allowed", n.AsSubject(), len(x.receptions),
			cfg.ReceptionsMax)
	case expected > int(cfg.ExpectedMax):
		call.FailCheck(checkExpectMost, "node %d expects %d requests of producer ranks, and %d are allowed", n.AsSubject(), expected,
			cfg.ExpectedMax)
	}
}

// verifyTimes checks, after a step that handled deadlines, that no time is over.
func (x *nodeLimits) verifyTimes(call *oracle.Call, n *world.Node) {
	now := call.LocalTime()
	for t, b := range x.lent {
		if b.delivered {
			continue
		}
		if call.CountJudged(checkLeaseOverdue); now > b.endsAt.Add(pd.Grace+call.FrozenTime()-b.frozen) {
			call.FailCheck(checkLeaseOverdue, "node %d still lends the blocks of ticket %d, %d ns after the end of the lease", n.AsSubject(),
				oracle.Ticket(t), now.Sub(b.endsAt))
			return
		}
	}
	for i := range x.waiting {
		r := &x.waiting[i]
		if r.writing {
			continue
		}
		if call.CountJudged(checkWaitOver); now > r.arrivedAt.Add(r.most+pd.Grace+call.FrozenTime()-r.frozen) {
			call.FailCheck(checkWaitOver, "node %d lets a registration wait for %d ns, and may do so for %d ns", n.AsSubject(),
				now.Sub(r.arrivedAt), r.most)
			return
		}
	}
	x.verifyHeartbeats(call, n)
}

// verifyHeartbeats checks that each expected request was named to each of its peers in time, while the link was up and
// nothing was lost. A message without a reply delays the next one.
func (x *nodeLimits) verifyHeartbeats(call *oracle.Call, n *world.Node) {
	if len(x.errands) == 0 {
		return
	}
	if x.opening > 0 {
		call.CountVoid(checkKeepDue)
		return
	}
	w, now, interval := pd.ClusterOf(call), call.LocalTime(), pd.InfoOf(n).Cfg.RegistrationLease/6
	for _, m := range x.sent {
		if m.kind != protocol.PushKindRegistration {
			call.CountVoid(checkKeepDue)
			return
		}
	}
	for _, r := range x.errands {
		for _, node := range r.peers {
			up, linked := effects.Time(0), false
			for name, at := range x.linkUpAt {
				if pd.IsNameOf(w.Nodes[node], name) {
					up, linked = at, true
				}
			}
			if r.isSkip || !linked || !w.Nodes[node].Up {
				continue
			}
			// How long heartbeats waited for replies is known since each heartbeat, but not since other events.
			since, busy := max(up, r.receivedAt, x.disturbed, x.keepEnded[node]), x.keepBusy[node]
			named := max(up, r.receivedAt, x.disturbed)
			for key, last := range x.named {
				if strings.HasSuffix(key, string(r.id)) && len(key) == len(effects.Incarnation{})+len(r.id) &&
					pd.IsNameOf(w.Nodes[node], effects.Incarnation([]byte(key[:len(effects.Incarnation{})]))) && last.at >= named {
					since, busy = last.at, last.busy
				}
			}
			if call.CountJudged(checkKeepDue); now.Sub(since) > 2*interval+pd.Grace+x.keepBusy[node]-busy {
				call.FailCheck(checkKeepDue, "node %d sent node %d no heartbeat for %q for %d ns, and the interval is %d ns", n.AsSubject(),
					w.Nodes[node].AsSubject(), r.id, now.Sub(since), interval)
				return
			}
		}
	}
}
