package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
)

// This file judges the gateway's limits on consumers and on what they register.

// passNotification gives a notification of a plain engine to the gateway, and judges what becomes of it.
func (h *host) passNotification(a machine.Agent, f *frame, out *effects.Effects) {
	about := h.ledger.agentsOf[a]
	if a != machine.Front {
		h.ledger.recordCompletion(a, f.from, f.body)
	}
	h.callGateway(out, &about, func(o *machine.Effects) {
		h.g.OnNotification(h.now, a, f.from, f.body, o)
		if a == machine.Front && protocol.NotificationKindOf(f.body) == protocol.NixlRegistration {
			h.verifyTaken(&about, f, o, out)
		}
		if a == machine.Front && protocol.NotificationKindOf(f.body) == protocol.NixlHeartbeat {
			h.verifyHeartbeat(f, o, out)
		}
	})
}

// verifyHeartbeat judges what becomes of a heartbeat: it is passed to the rank, or waits for a hello that is in flight.
func (h *host) verifyHeartbeat(f *frame, o *machine.Effects, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var m protocol.PushHeartbeat
	if m.Decode(f.body, &limits) != nil || len(m.RequestIDs) == 0 {
		return
	}
	l := &h.ledger
	l.heartbeat, l.heartbeatWaits = m.RequestIDs, !isHeartbeatPassed(o)
	if l.heartbeatWaits && len(l.hellos) == 0 && !slices.ContainsFunc(o.Events, func(ev effects.Event) bool {
		e, is := ev.(*effects.Received)
		return is && e.Channel == effects.ChannelInit
	}) {
		observe(out, factHeartbeat, effects.Invalid,
			fmt.Sprintf("a heartbeat of %s is not passed to the rank, and no hello is in flight", f.from))
		return
	}
	observe(out, factHeartbeat, effects.OK, "")
}

// isHeartbeatPassed reports whether the gateway passes a heartbeat to the rank.
func isHeartbeatPassed(o *machine.Effects) bool {
	return slices.ContainsFunc(o.Events, func(ev effects.Event) bool {
		e, is := ev.(*effects.Received)
		return is && protocol.PushKindOf(e.Body) == protocol.PushKindKeep
	})
}

// verifyKept judges what the rank is asked to keep: the requests that the latest heartbeat names. If the rank called a
// heartbeat stale, there was a hello since.
func (h *host) verifyKept(e *effects.Received, m *protocol.PushKeep, out *effects.Effects) {
	l := &h.ledger
	l.keeps[e.Request] = l.hellosOf[heartbeatRecord]
	switch {
	case !slices.EqualFunc(m.Keep, l.heartbeat, bytes.Equal):
		observe(out, factHeartbeat, effects.Invalid, fmt.Sprintf("the rank is asked to keep %q, and the latest heartbeat names %q", m.Keep,
			l.heartbeat))
		return
	case l.hellosOf[heartbeatRecord] <= l.staleKeep:
		observe(out, factHeartbeat, effects.Invalid, "a heartbeat is passed to the rank, which called one stale, without a hello")
		return
	}
	l.heartbeatWaits = false
	observe(out, factHeartbeat, effects.OK, "")
}

// verifyGreeting judges the incarnation in a hello of a consumer's rank: it is of one record of the gateway.
func (h *host) verifyGreeting(hello *protocol.HixlInitRequest, conn effects.Conn, out *effects.Effects) {
	l := &h.ledger
	incarnation, key := effects.Incarnation(hello.Ext.Incarnation), keyOf(hello.Ext.Blobs[0])
	l.recordOf[conn] = key
	l.hellosOf[key]++
	l.repeats[key]++
	if former, is := l.keys[incarnation]; is && former != key {
		observe(out, factGreeting, effects.Invalid, fmt.Sprintf("%s says hello as the incarnation that it was with another writer",
			hello.LocalID))
		return
	}
	l.keys[incarnation] = key
	l.greetings[l.senders[incarnation]]++
	observe(out, factGreeting, effects.OK, "")
}

// verifyTaken judges whether a registration of a consumer is taken, or refused for a reason that there is.
func (h *host) verifyTaken(about *subject, f *frame, o *machine.Effects, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var m protocol.PushRegistration
	if m.Decode(f.body, &limits) != nil {
		return
	}
	l := &h.ledger
	key := f.from + " " + string(m.RequestID)
	reasons := h.refusals(key, &m) // Each ends the registration.
	unknown := l.refusalsOfUnknown(f.from, &m)
	refused, why := refusalIn(o)
	switch {
	case l.blurred:
		observe(out, factTaken, unjudged, "")
	case refused && !slices.Contains(reasons, why) && !slices.Contains(unknown, why):
		observe(out, factTaken, effects.Invalid, fmt.Sprintf("registration %s is refused for its %s, and there are %d open and %d engines "+
			"that are not known", key, why, len(l.taken), l.countUnknown()))
		return
	case !refused && len(reasons) > 0 || !refused && len(o.Queries) > 0 && len(unknown) > 0:
		observe(out, factTaken, effects.Invalid, fmt.Sprintf("registration %s is taken in spite of %v", key,
			slices.Concat(reasons, unknown)))
		return
	default:
		observe(out, factTaken, effects.OK, "")
	}
	if !refused {
		l.take(key, f.from, &m, len(o.Queries) > 0, h.now)
		if len(o.Queries) > 0 {
			about.attempt = l.attempts[len(l.attempts)-1].number
		}
	}
}

// refusalIn returns the field for which a registration is refused.
func refusalIn(o *machine.Effects) (refused bool, field string) {
	for i := range o.Reports {
		return true, o.Reports[i].Why.Field
	}
	return false, ""
}

// refusals returns the fields for which a registration of any consumer is refused.
func (h *host) refusals(key string, m *protocol.PushRegistration) (fields []string) {
	l := &h.ledger
	blocks := 0
	for _, list := range m.Blocks {
		blocks += len(list)
	}
	if blocks > h.shape.blocksMax {
		fields = append(fields, "PUSH_REG")
	}
	if n := string(m.Remote.EngineID); n != "" && n != hostName {
		fields = append(fields, "remote_engine_id")
	}
	if l.findTaken(key) != nil || slices.Contains(l.ended, key) {
		fields = append(fields, "request_id")
	}
	if len(l.taken) >= l.limits.pending {
		fields = append(fields, "gateway.waiting")
	}
	if int(m.TPSize) > h.shape.ranksMax { // The node has one rank, so each rank of the engine exchanges data with it.
		fields = append(fields, "consumer's decode_tp_size", "decode_tp_size")
	}
	return fields
}

// refusalsOfUnknown returns the fields for which a registration is refused if its engine is not known.
func (l *ledger) refusalsOfUnknown(sender string, m *protocol.PushRegistration) (fields []string) {
	if l.countUnknown() >= l.limits.engines {
		fields = append(fields, "gateway.engines")
	}
	if slices.ContainsFunc(l.taken, func(x takenRegistration) bool {
		t := l.attemptOf(x.attempt)
		return x.sender == sender && t != nil && !t.ready
	}) {
		fields = append(fields, "decode_engine_id")
	}
	return fields
}

// take records a registration that the gateway has taken. If the gateway sends a query, it begins to query the engine.
func (l *ledger) take(key, sender string, m *protocol.PushRegistration, begins bool, now effects.Time) {
	x := takenRegistration{key: key, sender: sender, arrived: now}
	if begins {
		l.lastAttempt++
		l.attempts = append(slices.Clone(l.attempts), attempt{number: l.lastAttempt, engine: string(m.EngineID), host: string(m.Host),
			port: m.Port, ranks: m.TPSize})
		x.attempt = l.lastAttempt
	} else {
		candidates := 0
		for i := range l.attempts {
			t := &l.attempts[i]
			if t.engine != string(m.EngineID) || t.host != string(m.Host) || t.port != m.Port || t.ranks != m.TPSize || t.over ||
				t.ready && !slices.Contains(t.agents, sender) {
				continue
			}
			candidates++
			x.attempt = t.number
		}
		l.blurred = l.blurred || candidates != 1
	}
	l.taken = append(slices.Clone(l.taken), x)
}

// verifyTries judges what follows when a query to a consumer has failed.
func (h *host) verifyTries(t *attempt, again bool, out *effects.Effects) {
	t.failures++
	switch {
	case again && t.failures >= h.shape.triesMax:
		observe(out, factPassed, effects.Invalid,
			fmt.Sprintf("the gateway queries %s once more after %d failures and no new registration", t.engine, t.failures))
	case !again && t.failures < h.shape.triesMax:
		observe(out, factTries, effects.Invalid, fmt.Sprintf("the gateway gives up %s after %d failures, and TriesMax is %d", t.engine,
			t.failures, h.shape.triesMax))
	default:
		observe(out, factTries, effects.OK, "")
	}
}

// recordLoaded records that metadata of a consumer was loaded. When that of all its ranks is, the consumer is ready,
// unless the gateway gives it up.
func (h *host) recordLoaded(number int, name string, code effects.Code, o *machine.Effects) {
	t := h.ledger.attemptOf(number)
	if t == nil || code != effects.OK {
		return
	}
	t.agents = append(slices.Clone(t.agents), name)
	t.ready = len(t.agents) == int(t.ranks) && !slices.ContainsFunc(o.Reports, func(r machine.Report) bool { return isGivenUp(&r) })
}

// isGivenUp reports whether a report says that a consumer is given up.
func isGivenUp(r *machine.Report) bool {
	return strings.HasPrefix(r.Text, "an engine cannot be written to; what it registered")
}

// recordReport records what a report says about the registrations of consumers.
func (h *host) recordReport(about *subject, r *machine.Report, out *effects.Effects) {
	l := &h.ledger
	switch {
	case isGivenUp(r):
		if r.Why.Field == "gateway.engines" {
			h.verifyBusy(about.attempt, out)
		}
		l.endTaken(func(x *takenRegistration) bool { return x.attempt == about.attempt })
		if t := l.attemptOf(about.attempt); t != nil {
			t.over = true
			if _, exists := l.agentsOf[t.writer]; !exists {
				l.attempts = slices.DeleteFunc(slices.Clone(l.attempts), func(x attempt) bool { return x.number == about.attempt })
			}
		}
	case strings.HasPrefix(r.Text, "a registration is of no rank that its engine has"):
		l.endTaken(func(x *takenRegistration) bool { return x.attempt == about.attempt && x.sender == r.Why.Theirs })
	}
}

// verifyBusy judges whether there is no place for a consumer that has become known: all others have registrations that
// have not ended.
func (h *host) verifyBusy(number int, out *effects.Effects) {
	l := &h.ledger
	ready := 0
	for i := range l.attempts {
		t := &l.attempts[i]
		if x := h.agents[t.writer]; !t.ready || t.over || t.number == number || x == nil || x.closing {
			continue
		}
		if ready++; !l.isBusy(t.number) && !l.blurred {
			observe(out, factEngine, effects.Invalid, fmt.Sprintf("a consumer is given up for want of room, and %s is idle", t.engine))
			return
		}
	}
	if ready < l.limits.engines {
		observe(out, factEngine, effects.Invalid,
			fmt.Sprintf("a consumer is given up for want of room with %d others, and EnginesMax is %d",
				ready, l.limits.engines))
		return
	}
	observe(out, factEngine, effects.OK, "")
}

// verifyPassed judges what the gateway sends to the rank in the name of a consumer's rank. Hellos state the window, and are
// sent one at a time. A registration has been taken and has not ended, the rank does not have it already, it is passed
// again at most TriesMax times, each time after a hello, and the rank is told how long it may still wait.
func (h *host) verifyPassed(e *effects.Received, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	l := &h.ledger
	var hello protocol.HixlInitRequest
	if e.Channel == effects.ChannelInit { // The first or the last message of a hello.
		l.hellos[e.Request] = helloPart{e.Conn, true}
		if hello.Decode(e.Body, &limits) == nil && hello.HasExt && len(hello.Ext.Blobs) == 1 {
			l.hellos[e.Request] = helloPart{e.Conn, false}
			if len(l.hellos) > 1 {
				observe(out, factPassed, effects.Invalid,
					fmt.Sprintf("a hello of %s is sent to the rank while another one is in flight, and "+
						"may replace it", hello.LocalID))
			}
			h.verifyWindow(&hello.Ext, out)
			if r, ok := h.g.FindRoute(keyOf(hello.Ext.Blobs[0])); ok {
				l.senders[effects.Incarnation(hello.Ext.Incarnation)], l.greeted[e.Conn] = r.Name, r.Name
			}
			h.verifyGreeting(&hello, e.Conn, out)
		}
		return
	}
	var kept protocol.PushKeep
	if protocol.PushKindOf(e.Body) == protocol.PushKindKeep && kept.Decode(e.Body, &limits) == nil {
		h.verifyKept(e, &kept, out)
		return
	}
	var m protocol.PushRegistration
	if protocol.PushKindOf(e.Body) != protocol.PushKindRegistration || m.Decode(e.Body, &limits) != nil {
		return
	}
	key := l.senders[effects.Incarnation(m.Ext.Incarnation)] + " " + string(m.RequestID)
	x := l.findTaken(key)
	h.asked[e.Request] = key
	switch {
	case x == nil && l.blurred:
		return
	case x == nil:
		observe(out, factPassed, effects.Invalid, fmt.Sprintf("the gateway passes registration %s to the rank after its end", key))
		return
	case x.passed:
		observe(out, factPassed, effects.Invalid, fmt.Sprintf("the gateway passes registration %s to the rank twice", key))
		return
	case x.passes > 0 && l.greetings[x.sender] == x.greeting:
		observe(out, factPassed, effects.Invalid, fmt.Sprintf("the gateway passes registration %s to the rank again, which does not know "+
			"its peer, without a hello", key))
		return
	}
	x.passed, x.greeting = true, l.greetings[x.sender]
	observe(out, factPassed, effects.OK, "")
	if x.passes++; x.passes > 1+h.shape.triesMax {
		observe(out, factTries, effects.Invalid, fmt.Sprintf("the gateway passes registration %s %d times, and TriesMax is %d", key,
			x.passes,
			h.shape.triesMax))
		return
	}
	left := max(1, x.arrived.Add(h.shape.registrationTimeout).Sub(h.now))
	if m.Ext.PatienceNS != uint64(left) || m.Ext.LeaseNS < m.Ext.PatienceNS {
		observe(out, factPatience, effects.Invalid, fmt.Sprintf("registration %s may wait for %d ns and write for %d ns, want %d ns", key,
			m.Ext.PatienceNS, m.Ext.LeaseNS, left))
		return
	}
	observe(out, factPatience, effects.OK, "")
}

// passReply gives a reply of the rank to the gateway, and records what it ends.
func (h *host) passReply(e *effects.Reply, out *effects.Effects) {
	l := &h.ledger
	key, isRegistration := h.asked[e.Request]
	delete(h.asked, e.Request)
	hello, isHello := l.hellos[e.Request]
	delete(l.hellos, e.Request)
	l.recordKept(e)
	h.callGateway(out, &subject{}, func(o *machine.Effects) {
		h.g.HandleReply(h.now, e, o)
		x := l.findTaken(key)
		if isRegistration && x != nil {
			h.verifyEnd(x, e.Body, o, out)
		}
		failed := slices.ContainsFunc(o.Reports, func(r machine.Report) bool {
			return strings.HasPrefix(r.Text, "what an engine registered is not taken")
		})
		if isHello {
			h.verifyHelloReply(hello, e.Body, o, out)
		}
		if sender := l.greeted[hello.conn]; isHello && failed {
			l.blurred = l.blurred || sender == ""
			l.endTaken(func(x *takenRegistration) bool {
				t := l.attemptOf(x.attempt)
				return x.sender == sender && !x.passed && (t == nil || t.ready)
			})
		}
	})
}

// heartbeatRecord is the record of the peer in whose name heartbeats are passed to the rank.
const heartbeatRecord = 0

// recordKept records the answer of the rank to a heartbeat.
func (l *ledger) recordKept(e *effects.Reply) {
	hellos, is := l.keeps[e.Request]
	delete(l.keeps, e.Request)
	limits := protocol.DefaultLimits()
	var m protocol.PushEnd
	if is && m.Decode(e.Body, &limits) == nil && effects.CodeFromWire(m.Code) == effects.Stale {
		l.staleKeep = max(l.staleKeep, hellos)
	}
}

// verifyHelloReply judges what follows from the rank's answer to a hello. If the rank does not know the hello any more when
// its last message arrives, the hello is repeated, TriesMax times in a row. When the hello of the heartbeats' peer ends
// well, the heartbeat that waits is passed on.
func (h *host) verifyHelloReply(x helloPart, body []byte, o *machine.Effects, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var first protocol.HixlInitResponse
	var last protocol.HixlMemInfoResponse
	l := &h.ledger
	key := l.recordOf[x.conn]
	switch {
	case !x.isLast && first.Decode(body, &limits) == nil && first.HasExt && first.Ext.Code == 0:
		return // The last message follows.
	case x.isLast && last.Decode(body, &limits) == nil:
		if key == heartbeatRecord && l.heartbeatWaits && !isHeartbeatPassed(o) {
			observe(out, factHeartbeat, effects.Invalid, "a heartbeat has waited for a hello, and is not passed to the rank after it")
		}
	case x.isLast && key != heartbeatRecord:
		again := slices.ContainsFunc(o.Events, func(ev effects.Event) bool {
			e, is := ev.(*effects.Received)
			var hello protocol.HixlInitRequest
			return is && hello.Decode(e.Body, &limits) == nil && len(hello.Ext.Blobs) == 1 && keyOf(hello.Ext.Blobs[0]) == key
		})
		if n := l.repeats[key]; again != (n <= h.shape.triesMax) {
			observe(out, factTries, effects.Invalid,
				fmt.Sprintf("the rank has forgotten %d hellos of %s in a row, TriesMax is %d, and another "+
					"one follows: %t", n, l.greeted[x.conn], h.shape.triesMax, again))
			return
		}
		observe(out, factTries, effects.OK, "")
		if again {
			return
		}
	default: // The rank refuses it.
	}
	l.repeats[key] = 0
}

// verifyEnd judges what follows from the rank's answer to a registration: a registration that the rank does not know
// the peer of is passed again, TriesMax times, and any other has ended.
func (h *host) verifyEnd(x *takenRegistration, body []byte, o *machine.Effects, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var m protocol.PushEnd
	isDecoded := m.Decode(body, &limits) == nil
	isStale := isDecoded && effects.CodeFromWire(m.Code) == effects.Stale
	if x.passed = false; x.rival {
		h.verifyRival(x, isDecoded && effects.CodeFromWire(m.Code) == effects.OK, out)
	}
	refused := slices.ContainsFunc(o.Reports, func(r machine.Report) bool {
		return strings.HasPrefix(r.Text, "what an engine registered is not written")
	})
	if isStale && x.passes <= h.shape.triesMax {
		if refused {
			observe(out, factTries, effects.Invalid, fmt.Sprintf("the gateway gives up registration %s after %d passes, and TriesMax is %d",
				x.key, x.passes, h.shape.triesMax))
			return
		}
		observe(out, factTries, effects.OK, "")
		return
	}
	key := x.key
	h.ledger.endTaken(func(x *takenRegistration) bool { return x.key == key })
}

// markRivals marks the registrations of several consumers that the rank has when the node finishes a request with a name
// that equals theirs but for the end. Registrations that may end for want of time at any moment do not count.
func (h *host) markRivals(name string) {
	var all []*takenRegistration
	engines := map[string]bool{}
	for i := range h.ledger.taken {
		x := &h.ledger.taken[i]
		_, request, _ := strings.Cut(x.key, " ")
		if !x.passed || string(protocol.TrimRequestSuffix([]byte(request))) != name ||
			h.now.Sub(x.arrived) > h.shape.registrationTimeout/2 {
			continue
		}
		all = append(all, x)
		engines[nodeOf(x.sender)] = true
	}
	for _, x := range all {
		x.rival = x.rival || len(engines) > 1
	}
}

// verifyRival judges the end of a registration of a request that another consumer had registered, too: nobody knows which
// of them the finished request belongs to.
func (h *host) verifyRival(x *takenRegistration, isWritten bool, out *effects.Effects) {
	if isWritten {
		observe(out, factRival, effects.Invalid, fmt.Sprintf("registration %s is told that its request was written, and another consumer "+
			"waited for a request of the same name", x.key))
		return
	}
	observe(out, factRival, effects.OK, "")
}
