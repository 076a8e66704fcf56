package world

import (
	"slices"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Conn is a client connection with the behaviour of a ZMQ socket. The connection may exist before the peer does, and
// finds a restarted peer by itself. Window limits the number of requests in flight. If a request or a reply is lost,
// the connection stays silent until its owner closes it.
type Conn struct {
	Proves Proof `snap:"skip"` // by the client, when it connected, if its machine is a user's
	// OnlyTo is the identity to which the client wants to send; 0: any.
	OnlyTo            effects.Principal `snap:"skip"`
	ID                uint64            `snap:"skip"`
	Name              plan.Subject      // in draws
	Client            int32
	Incarnation       uint32 // incarnation of the client
	Channel           effects.Channel
	Server            int32  // plan.NoNode: no node has that address
	Host              string `snap:"skip"` // by which the client addressed the server
	reachedServer     bool   // a server has received from the client
	serverIncarnation uint32 // the server's incarnation that last received from the client
	Closed            bool
	Dead              bool  // nothing arrives any more, except for Stragglers
	OpenReported      bool  `snap:"skip"` // the client was notified that it is open
	OpenReportedAt    int64 `snap:"skip"` // when the client was notified whether it is open; 0: not yet
	Window            uint16
	Requests          []sentRequest   `snap:"skip"` // includes ended requests that may still get a reply
	Opened            effects.Time    `snap:"skip"` // on the client's clock
	lastReplyAt       int64           `snap:"skip"` // when the newest reply leaves the client's mailbox
	requestsUntil     int64           `snap:"skip"` // when the last request reaches its server
	postsUntil        int64           `snap:"skip"` // when the last post reaches a user's machine, also of those that arrive twice
	lastPostAt        int64           `snap:"skip"` // when the newest post reaches a user's machine, which receives posts in order
	SentCount         uint64          // number of messages sent on the connection
	Offer             effects.GrantID // the offer that the newest request is about
	CarriesOffers     bool            // the connection carries offers
	OpenRequests      uint16          // requests that the client does not know to have ended

	Stragglers    []sentRequest `snap:"skip"` // requests in flight when the connection broke that arrive all the same
	StragglersFor uint32        // the server's incarnation at which the stragglers arrive
}

// sentRequest is a Send on a connection.
type sentRequest struct {
	Corr         effects.Corr
	SentAt       effects.Time    // when it was sent, on the client's clock
	nth          uint64          // its number on the connection
	Offer        effects.GrantID // the offer that it is about
	Parked       []byte          // the message, while the server is down
	RepeatsField bool            // it gives a field twice
	Ended        bool            // unanswered, or answered; the reply may still be in the mailbox
}

// FindRequest returns the request with the given Corr, or nil.
func (c *Conn) FindRequest(corr effects.Corr) *sentRequest {
	for i := range c.Stragglers {
		if c.Stragglers[i].Corr == corr {
			return &c.Stragglers[i]
		}
	}
	for i := range c.Requests {
		if c.Requests[i].Corr == corr {
			return &c.Requests[i]
		}
	}
	return nil
}

// removeRequest removes a request that cannot get a reply any more.
func (c *Conn) removeRequest(corr effects.Corr) {
	c.Requests = slices.DeleteFunc(c.Requests, func(q sentRequest) bool { return q.Corr == corr })
}

// PendingCount returns the number of requests that have not ended.
func (c *Conn) PendingCount() (n uint16) {
	for i := range c.Requests {
		if !c.Requests[i].Ended {
			n++
		}
	}
	return n
}

// HasParked reports whether a request is parked for a server that is down.
func (c *Conn) HasParked() bool {
	return slices.ContainsFunc(c.Requests, func(q sentRequest) bool { return q.Parked != nil })
}

// Request is a received message that may be answered once.
type Request struct {
	Conn         *Conn
	Corr         effects.Corr    `snap:"skip"`
	SentAt       effects.Time    `snap:"skip"` // when it was sent, on its client's clock
	nth          uint64          `snap:"skip"` // its number on the connection
	Offer        effects.GrantID `snap:"skip"` // the offer that it is about
	Node         int32
	Incarnation  uint32
	Channel      effects.Channel
	Replied      bool
	NeedsNoReply bool             // the server knows that the client is gone, or the client has repeated the request
	IsNoise      bool             // sent by a stranger
	isForbidden  bool             // it must change nothing, and oracles are not told of it
	repeatsField bool             // it gives a field twice
	Tenants      *effects.Tenants `snap:"share"` // the tenants of its client; nil: all
	Realm        effects.Realm    // the trust domain of its client
	VanillaJob   int              // the job of the plain sender that sent it, from 1
	Grant        effects.GrantID  // the grant that was made for it
	At           int64            `snap:"skip"`
}

// IsFromNode reports whether a node sent the request, and neither a vanilla process nor a stranger.
func (r *Request) IsFromNode() bool { return r.Conn != nil }

// ConnOf returns the connection with the given id, or nil.
func (w *World) ConnOf(id uint64) *Conn {
	if id == 0 || id > uint64(len(w.Conns)) {
		return nil
	}
	return w.Conns[id-1]
}

// ClientConnID returns the id by which the client knows a connection, given the id by which either end knows it.
func ClientConnID(id uint64) uint64 { return id & (1<<32 - 1) }

// IsNoiseConn reports whether an id stands for a connection of a stranger, which is no connection of the world.
func IsNoiseConn(id uint64) bool { return id>>50 != 0 }

// serverConnID returns the id by which the server knows c. The id differs in each of the server's incarnations.
func (c *Conn) serverConnID() uint64 { return 1<<40 | uint64(c.serverIncarnation)<<32 | c.ID }

// MovedOrigin is added to the origin of a node that runs on its other host.
const MovedOrigin = 1 << 16

// strangerOrigin is above the origins of all nodes in plans. The strangers that prove the same are on one host.
const strangerOrigin = 1 << 20

// OriginOf returns the origin of a connection to n, given the id by which n knows it. Ranks know the origins that the
// plan lists. A process that proves the identity of a node acts from the node's host.
func (w *World) OriginOf(n *Node, serverConn uint64) effects.Origin {
	all := w.SourcePlan.Topology.Origins
	switch {
	case n.Custom:
		return w.originOf(serverConn)
	case len(all) == 0:
		return 0
	case IsNoiseConn(serverConn):
		proof := StrangerProof(serverConn >> proofShift)
		if i := int(proof) - int(FirstNodeProof); i >= 0 && i < len(all) {
			return effects.Origin(all[i])
		}
		return strangerOrigin + effects.Origin(proof)
	}
	if c := w.ConnOf(ClientConnID(serverConn)); c != nil && c.Client >= 0 && int(c.Client) < len(all) {
		return effects.Origin(all[c.Client])
	}
	return 0
}

// originOf returns the origin of a connection to a user's node, given the id by which its server knows it. Each node is
// a host of its own, or runs on two hosts in turn. The origin of messages that do not arrive on a connection of the world
// is unknown.
func (w *World) originOf(serverConn uint64) effects.Origin {
	if kind := serverConn >> 40; kind != 1 && kind != 2 {
		return 0
	}
	c := w.ConnOf(ClientConnID(serverConn))
	if c == nil {
		return 0
	}
	if c.Client >= 0 && w.Nodes[c.Client].ChangesHost && c.Incarnation%2 == 1 {
		return effects.Origin(c.Client) + 1 + MovedOrigin
	}
	return effects.Origin(c.Client) + 1
}

// DrawForConn draws for the newest message of a connection.
func (w *World) DrawForConn(l draw.Label, c *Conn) draw.Value { return c.drawNth(w, l, c.SentCount) }

// drawNth draws for the nth message of a connection.
func (c *Conn) drawNth(w *World, l draw.Label, nth uint64) draw.Value {
	return draw.Hash(w.Seed, l, uint64(c.Name), nth)
}

// findServer returns the node that listens at an address on a channel.
func (w *World) findServer(a effects.Addr, ch effects.Channel) int32 {
	if ch == effects.ChannelProxy && a.Host == w.ProxyHost {
		return w.Proxy
	}
	if ch == ChannelDispatch && a.Host == EnginesHost && w.HasEngines {
		return plan.Engines
	}
	if a.Host == OutsiderHost {
		return plan.Outsider
	}
	if n := w.NodeAt(a, ch); n != nil && n.listensOn(ch) {
		return n.ID
	}
	return plan.NoNode
}

// openConn carries out an [effects.Open].
func (n *Node) openConn(w *World, e *effects.Open) {
	if !e.Channel.AllowsWindow(e.Window) {
		w.Fail("contract", "node %d opens %v with a window of %d", n.AsSubject(), e.Channel, e.Window)
		return
	}
	c := w.Arenas.conns.AllocCopy(Conn{ID: uint64(len(w.Conns) + 1), Client: n.ID, Incarnation: n.Incarnation, Channel: e.Channel,
		Window: max(e.Window, 1), Server: w.findServer(e.Addr, e.Channel), Opened: w.ReadClock(n), Host: e.Addr.Host,
		Proves: n.Proof, OnlyTo: e.Principal})
	c.Name = plan.AboutConn(n.ID, n.Incarnation, c.Server, e.Channel, 0)
	n.connCounts[c.Name]++
	c.Name = plan.AboutConn(n.ID, n.Incarnation, c.Server, e.Channel, n.connCounts[c.Name])
	w.Conns = append(w.Conns, c)
	w.Active.Conns.Add(c)
	OnOpeningConn.Report(&w.Panel, n.ID, OpeningConn{n, c})
	d := n.nextDraw(w, draw.Open)
	code, delay := effects.OK, effects.Duration(0)
	if r, yes := w.DrawStrike(plan.FaultMessageDelayed, c.Name, 0); yes {
		delay = r.Duration(0, effects.Second)
	}
	if r, yes := w.DrawStrike(plan.FaultEffectRefused, c.Name, 0); yes {
		c.Closed = true
		w.QueueForNode(n, 0, Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(drawRefusal(contract.Opening, r))})
		return
	}
	if c.Server >= 0 && !w.ServerProof(c).Principal.MayActFor(e.Principal) {
		c.Closed = true
		w.QueueForNode(n, delay+d.HeavyTail(w.Conditions.MessageTime),
			Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(effects.Unreachable)})
		return
	}
	if c.Server == plan.NoNode && d.Rehash().Rehash().ChancePermille(500) {
		c.Dead = true // Some transports connect in the background without ever giving up.
	} else if c.Server == plan.NoNode || c.Server >= 0 && !w.Nodes[c.Server].Up && d.Rehash().ChancePermille(300) {
		code, c.Closed = effects.Unreachable, true
		w.QueueForNode(n, delay+d.HeavyTail(w.Conditions.MessageTime), Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(code)})
		return
	}
	w.QueueForNode(n, delay+d.HeavyTail(w.Conditions.MessageTime), Delivery{Kind: KindOpened, A: uint64(e.Corr), B: c.ID, C: uint64(code)})
}

// CloseConn carries out an [effects.Close].
func (w *World) CloseConn(n *Node, e *effects.Close) {
	c := w.ConnOf(uint64(e.Conn))
	if c == nil || c.Client != n.ID || c.Incarnation != n.Incarnation || c.Closed {
		w.Fail("contract", "node %d closes connection %d, which it does not have", n.AsSubject(), oracle.Conn(e.Conn))
		return
	}
	c.Closed = true
	c.endRequests(w, n, 0, effects.Closed)
	c.notifyServer(w, false)
}

// endRequests ends all requests of a connection, in order. The requests stay in the list, because replies may still
// arrive.
func (c *Conn) endRequests(w *World, n *Node, delay effects.Duration, code effects.Code) {
	for i := range c.Requests {
		if q := &c.Requests[i]; !q.Ended {
			q.Ended = true
			w.QueueForNode(n, delay, Delivery{Kind: KindUnanswered, A: uint64(q.Corr), B: uint64(code)})
		}
	}
}

// notifyServer lets the server notice that its client has disconnected. Transports need not report the disconnect; if
// always is set, the report is not omitted. A transport reports the end of a connection after all messages of the connection
// (control.Server.ReportLost). Example: a worker crashes just after it has sent a heartbeat. If the directory heard the
// worker on the connection after its end, the worker would count as connected for ever.
func (c *Conn) notifyServer(w *World, always bool) {
	if c.Channel == effects.ChannelFeed && c.Server >= 0 && w.Nodes[c.Server].Custom && c.SentCount > 0 {
		w.QueueAfter(max(0, effects.Duration(c.postsUntil-w.Now))+feedLostDelay,
			Delivery{Kind: KindPostArrives, Node: plan.NoNode, A: c.ID, B: postsEnded})
		return
	}
	if c.Server < 0 || !c.reachedServer || c.Channel.Order() == effects.OneWay || !w.Nodes[c.Server].Custom {
		return // A rank does not ask its transport for these reports.
	}
	s := w.Nodes[c.Server]
	d := w.DrawForConn(draw.Notice, c)
	// A directory uses a transport that reports the end of each connection; if the network loses the end, keepalive does.
	isWatched, delay := c.Channel == effects.ChannelDirectory || c.Channel == effects.ChannelHeartbeat, effects.Duration(0)
	switch isNoticed := always || d.ChancePermille(500); {
	case isNoticed, isWatched && !c.Dead:
	case isWatched:
		delay = keepaliveTime
	default:
		return
	}
	if s.Up && s.Incarnation == c.serverIncarnation {
		delay = max(delay+d.Rehash().HeavyTail(w.Conditions.MessageTime), effects.Duration(c.requestsUntil-w.Now)+1)
		w.QueueForNode(s, delay, Delivery{Kind: KindConnLost, A: c.serverConnID()})
	}
}

// keepaliveTime is how long a connection on which nothing arrives any more is taken for open by a directory's transport.
const keepaliveTime = effects.Second

var checkWindow = oracle.NewCheck("contract", "window of a connection")

// sendRequest carries out an [effects.Send].
func (n *Node) sendRequest(w *World, e *effects.Send) {
	c := w.ConnOf(uint64(e.Conn))
	if c == nil || c.Client != n.ID || c.Incarnation != n.Incarnation || c.Closed {
		w.Fail("contract", "node %d sends on connection %d, which it does not have", n.AsSubject(), oracle.Conn(e.Conn))
		return
	}
	w.CountJudged(checkWindow)
	if waits := c.PendingCount(); waits >= c.Window {
		w.FailCheck(checkWindow, "node %d sends on connection %d while %d of %d requests are in flight on it: "+
			"wait for Replied or Unanswered, close it and open another, or open it with a larger Window",
			n.AsSubject(), oracle.Conn(e.Conn), waits, c.Window)
		return
	}
	OnSendingRequest.Report(&w.Panel, n.ID, SendingRequest{n, c, e.Corr, e.Body})
	c.SentCount++
	c.OpenRequests++
	w.Result.Messages++
	if r, yes := w.DrawStrike(plan.FaultEffectRefused, c.Name, c.SentCount); yes {
		w.QueueForNode(n, 0, Delivery{Kind: KindUnanswered, A: uint64(e.Corr), B: uint64(drawRefusal(contract.Sending, r))})
		return
	}
	if !n.Custom {
		w.OverhearMessage(e.Body)
	}
	c.Requests = append(c.Requests, sentRequest{Corr: e.Corr, SentAt: w.ReadClock(n), nth: c.SentCount, Offer: c.Offer})
	if c.Dead || w.DrawLoss(c, plan.FaultRequestLost, c.SentCount) {
		return
	}
	if delay, ok := c.drawTransit(w, draw.Request, ToServer, c.SentCount); ok {
		c.requestsUntil = max(c.requestsUntil, w.Now+int64(delay))
		w.QueueAfter(delay, Delivery{Kind: KindRequestArrives, Node: plan.NoNode, A: c.ID, B: uint64(e.Corr),
			Body: w.CopyBody(w.System.RequestInTransit(n, c, e.Body))})
	}
}

// DrawLoss draws whether the nth message of c, or its reply, is lost. The connection is silent from then on.
func (w *World) DrawLoss(c *Conn, f plan.Fault, nth uint64) bool {
	if w.IsStruck(f, c.Name, nth) {
		c.Dead = true
	}
	return c.Dead
}

// handleRequestArrival delivers a request to its server.
func (w *World) handleRequestArrival(d Delivery) {
	c := w.Conns[d.A-1]
	if c.IsCutOff() || c.Dead && w.Nodes[c.Server].Incarnation != c.StragglersFor {
		w.RecycleBody(d.Body)
		return
	}
	if c.Server == plan.Outsider {
		w.System.HandleOutsiderRequest(c, effects.Corr(d.B), d.Body)
		w.RecycleBody(d.Body)
		return
	}
	if c.Server == plan.Engines {
		w.System.HandleDispatch(c, effects.Corr(d.B), d.Body)
		w.RecycleBody(d.Body)
		return
	}
	s := w.Nodes[c.Server]
	if !s.Up { // ZMQ keeps the message until the peer is up again.
		if c.Closed {
			w.RecycleBody(d.Body)
			return
		}
		c.FindRequest(effects.Corr(d.B)).Parked = d.Body
		return
	}
	isFirst := !c.reachedServer
	c.reachedServer, c.serverIncarnation = true, s.Incarnation
	q := c.FindRequest(effects.Corr(d.B))
	w.Requests = append(w.Requests, Request{Conn: c, Corr: q.Corr, SentAt: q.SentAt, nth: q.nth, Offer: q.Offer,
		Node: s.ID, Incarnation: s.Incarnation, Channel: c.Channel, repeatsField: q.RepeatsField, At: w.Now})
	w.QueueForNode(s, 0, Delivery{Kind: KindReceived, A: c.serverConnID(), B: uint64(c.Channel), C: uint64(len(w.Requests)),
		Body: d.Body})
	if isFirst && c.Closed { // The client was gone before its first message arrived. The end arrives behind the message.
		c.notifyServer(w, false)
	}
}

// sendReply carries out an [effects.Reply].
func (n *Node) sendReply(w *World, e *effects.Reply) {
	if e.Request == 0 || uint64(e.Request) > uint64(len(w.Requests)) {
		w.Fail("S10", "node %d answers request %d, which does not exist", n.AsSubject(), oracle.Message(e.Request))
		return
	}
	r := &w.Requests[e.Request-1]
	switch {
	case r.Node != n.ID || r.Incarnation != n.Incarnation:
		w.Fail("S12", "node %d answers request %d of another incarnation or node", n.AsSubject(), oracle.Message(e.Request))
		return
	case r.Replied:
		w.Fail("S10", "node %d answers request %d twice", n.AsSubject(), oracle.Message(e.Request))
		return
	}
	r.Replied = true
	if !r.isForbidden {
		OnSendingReply.Report(&w.Panel, n.ID, SendingReply{n, uint64(e.Request), e.Body})
	}
	if r.VanillaJob != 0 {
		w.System.HandleOutsiderReply(r, e.Body)
		return
	}
	c := r.Conn
	if c == nil || c.Dead || c.Closed || w.DrawLoss(c, plan.FaultReplyLost, r.nth) {
		return
	}
	body := w.System.MessageInTransit(n, plan.FaultReplyCorrupted, c, ToClient, r.nth, e.Body)
	if c.Channel == effects.ChannelInit && w.IsStruck(plan.FaultHandshakeRefused, c.Name, r.nth) {
		body = w.System.UnrelatedReply()
	}
	if delay, ok := c.drawTransit(w, draw.Reply, ToClient, r.nth); ok {
		w.QueueAfter(delay, Delivery{Kind: KindReplyArrives, Node: plan.NoNode, A: c.ID, B: uint64(r.Corr), Body: w.CopyBody(body)})
	}
}

// handleReplyArrival puts a reply into the mailbox of its client.
func (w *World) handleReplyArrival(d Delivery) {
	c := w.Conns[d.A-1]
	n := w.Nodes[c.Client]
	q := c.FindRequest(effects.Corr(d.B))
	if c.Dead || c.Closed || n.Incarnation != c.Incarnation || !n.Up || q == nil || q.Ended {
		w.RecycleBody(d.Body)
		return
	}
	// The reply is in the mailbox now, so the request has ended, although the machine may close the connection before
	// it reads the mailbox.
	q.Ended = true
	delay := effects.Duration(0)
	if m := c.drawNth(w, draw.Mailbox, q.nth); m.ChancePermille(200) {
		delay = m.Rehash().HeavyTail(w.Conditions.MessageTime)
	}
	c.lastReplyAt = max(c.lastReplyAt, w.Now+int64(delay))
	w.QueueForNode(n, delay, Delivery{Kind: KindReplied, A: d.B, B: c.ID, Body: d.Body})
}

// handleReply records that a reply reaches its client's machine, which may have closed the connection in the meantime.
func (c *Conn) handleReply(w *World, n *Node, corr effects.Corr, body []byte) {
	c.OpenRequests--
	OnReplyReceived.Report(&w.Panel, n.ID, ReplyReceived{n, c, corr, body})
	c.removeRequest(corr)
}

// IsCutOff reports whether nothing sent on c arrives any more.
func (c *Conn) IsCutOff() bool { return c.Dead && len(c.Stragglers) == 0 }

// drawStragglers draws whether messages that are in flight when c breaks arrive at the server all the same. A server
// still reads what its kernel has received on a connection that was lost for the client. On the remaining channels
// requests also end by time, so late messages occur there without stragglers.
func (c *Conn) drawStragglers(w *World) bool {
	if c.Channel != effects.ChannelLookup || c.Server < 0 || w.Nodes[c.Server].Custom || !w.Nodes[c.Server].Up {
		return false
	}
	return draw.IsFixed(w.Seed) || w.DrawForConn(draw.Cut, c).Rehash().ChancePermille(500)
}

// CutConn breaks c. The client notices the break unless unnoticed is set, and the server may also notice the break.
func (w *World) CutConn(c *Conn, unnoticed bool) {
	if c.Closed || c.Dead {
		return
	}
	c.Dead = true
	if c.drawStragglers(w) && !unnoticed {
		c.Stragglers, c.StragglersFor = append(c.Stragglers[:0], c.Requests...), w.Nodes[c.Server].Incarnation
	} else {
		c.notifyServer(w, !unnoticed)
	}
	if unnoticed {
		return
	}
	n := w.Nodes[c.Client]
	at := max(w.DrawForConn(draw.Cut, c).HeavyTail(w.Conditions.MessageTime), effects.Duration(c.lastReplyAt-w.Now))
	c.endRequests(w, n, at, effects.PeerLost)
	w.QueueForNode(n, at, Delivery{Kind: KindConnLost, A: c.ID})
}
