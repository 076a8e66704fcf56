package lease

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Renewers ask senders for more time for the leases that this node holds. There is a renewer for each fairness class.
// The caller lists the grants to extend. Renewers know nothing of the offers behind the grants.
type Renewers struct {
	cfg     RenewersConfig `snap:"share"`
	byClass []renewer      // indexed by fairness class
	request protocol.RenewRequest
	reply   protocol.RenewResponse
}

// RenewersConfig is the configuration of Renewers.
type RenewersConfig struct {
	// how long to wait for a reply before the connection is closed
	ReplyTimeout           effects.Duration
	BackoffMin, BackoffMax effects.Duration // bounds of the exponential delay between attempts
	AddressesOnly          bool             // senders must announce a numeric address, not a host name
	LeasesMax              int              // the largest number of leases in one request
	Wire                   protocol.Limits
}

// renewer asks the sender of a class for more time. The renewer asks for all leases of that sender under which chunks
// have not been read yet, as soon as half of the time of any of these leases is over. The new time counts from the
// instant before the request that was answered was sent, so a reply that is late or lost extends nothing that the
// sender did not extend (rule M4).
//
// There is a single request in flight at a time. If a request cannot name all leases, further requests follow at once
// for the rest. Together these requests are a round.
//
// Invariant: at most formerMax+1 completions are outstanding, including the completion that owed stands for.
type renewer struct {
	addrText   []byte // the address for renewals, as the sender announced it
	addr       effects.Addr
	epoch      uint64 // number of the current address; a completion of an earlier epoch is stale
	sinceEpoch uint64 // first epoch of the sender that has the class now
	conn       effects.Conn
	inFlight   bool // a request is in flight
	// A completion is outstanding, perhaps for a former address; no request is sent until the completion arrives.
	outstanding       bool
	formerOutstanding uint8        // outstanding completions for senders that had the class before
	requested         bool         // a request is to be sent
	nextSlot          int32        // offer slot at which the round continues; 0: no round is in progress
	retrySlot         int32        // slot at which the round continues if the request in flight gets no reply
	anotherRound      bool         // another round follows, because the current round may have passed leases that need time
	sentAt            effects.Time // when the request in flight was sent
	failures          uint32       // failed attempts since the last reply
	timer             table.Handle // the deadline of a reply, or the time of the next attempt
}

// formerMax is the number of completions of former senders of a class that may be outstanding when the class's present
// sender is asked. A connection attempt to an unreachable sender may take long, and must not cost the next sender any
// leases.
const formerMax = 1

// Kinds of completions.
const (
	kindOpenRenew uint8 = 1 + iota
	kindRenew
)

// IsOpening reports whether a completion of this package belongs to the opening of a connection. If not, the completion
// belongs to a request.
func IsOpening(ref kernel.Ref) bool { return ref.Kind == kindOpenRenew }

// Recycle returns Renewers for the given number of classes, none of which has an address yet. It reuses the memory of
// r, which must not be used afterwards.
func (r *Renewers) Recycle(cfg RenewersConfig, classes int) Renewers {
	return Renewers{cfg: cfg, byClass: table.RecycleSlice(r.byClass, classes)}
}

// SetAddress records the address at which a sender accepts renewals. SetAddress reports false if the sender accepts
// none: the sender announced no address, or an address that is malformed, unspecified, or a host name where only
// numeric addresses are allowed. A new address replaces the former address, and the connection to the former address is
// closed.
func (r *Renewers) SetAddress(v *env.Env, class int, text []byte) bool {
	if len(text) == 0 {
		return false
	}
	x := &r.byClass[class]
	if bytes.Equal(x.addrText, text) {
		return true
	}
	at, err := protocol.ParseEndpoint(string(text))
	if err != nil || at.IsUnspecified() || r.cfg.AddressesOnly && !at.IsNumeric() {
		v.Out.Mark(Marks.RenewNowhere)
		return false
	}
	r.closeConn(v, x)
	*x = renewer{
		addrText: append(x.addrText[:0], text...), addr: effects.Addr{Host: at.Host, Port: at.Port}, epoch: x.epoch + 1,
		sinceEpoch: x.sinceEpoch, outstanding: x.outstanding, formerOutstanding: x.formerOutstanding, requested: x.requested || x.inFlight,
	}
	return true
}

// OnClassReassigned records that a class belongs to another sender from now on. A completion that is still outstanding
// for the former sender delays the new sender only if more than formerMax completions of former senders are
// outstanding.
func (r *Renewers) OnClassReassigned(v *env.Env, class int) {
	x := &r.byClass[class]
	r.closeConn(v, x)
	formerOutstanding := x.formerOutstanding
	if x.outstanding {
		formerOutstanding++
	}
	*x = renewer{addrText: x.addrText[:0], epoch: x.epoch + 1, sinceEpoch: x.epoch + 1, formerOutstanding: formerOutstanding}
}

// closeConn stops the renewer's timer and closes the connection, if there is a connection.
func (r *Renewers) closeConn(v *env.Env, x *renewer) {
	v.Timers.Stop(&x.timer)
	if x.conn != 0 {
		v.Conns.Unbind(x.conn)
		v.Out.Close(x.conn)
		x.conn = 0
	}
}

// RequestRenewal schedules a request for more time to the sender of a class. If a round is in progress, another round
// follows.
func (r *Renewers) RequestRenewal(class int) {
	x := &r.byClass[class]
	x.requested, x.anotherRound = true, x.nextSlot > 0
}

// NextSlot returns the offer slot from which the caller collects the grants for the next request.
func (r *Renewers) NextSlot(class int) int32 { return r.byClass[class].nextSlot }

// EnsureReady reports whether a request can be sent to the sender of a class now. If only the connection is missing,
// EnsureReady opens it and reports false.
func (r *Renewers) EnsureReady(v *env.Env, class int) bool {
	x := &r.byClass[class]
	if !x.requested || x.outstanding || x.formerOutstanding > formerMax || x.timer != 0 {
		return false
	}
	if x.conn == 0 {
		x.outstanding = true
		v.Out.Open(effects.Open{
			Corr: v.Corrs.Open(x.refOf(kindOpenRenew, class)), Channel: effects.ChannelInit, Addr: x.addr,
		})
		return false
	}
	return true
}

// LeasesMax returns the largest number of leases that a request may name.
func (r *Renewers) LeasesMax() int { return r.cfg.LeasesMax }

// GrantBuffer returns an empty slice, with reused memory, for the grants that the caller passes to SendRequest.
func (r *Renewers) GrantBuffer() []uint64 { return r.request.Grants[:0] }

// SendRequest sends a request for more time for the given grants of a sender, or nothing if there are none. If nextSlot
// is positive, further leases follow from that slot on, and the next request continues there.
func (r *Renewers) SendRequest(v *env.Env, class int, grants []uint64, selfID, peer effects.Incarnation, nextSlot int32) {
	x, m := &r.byClass[class], &r.request
	*m = protocol.RenewRequest{
		Version: link.VersionMax, Operation: m.Operation + 1, Incarnation: protocol.UUID(selfID), To: protocol.UUID(peer),
		Grants: grants, Done: m.Done[:0], Stamps: protocol.Stamps{ClockNS: int64(v.Now)},
	}
	x.retrySlot, x.nextSlot, x.requested = x.nextSlot, nextSlot, nextSlot > 0 || x.anotherRound
	x.anotherRound = x.anotherRound && nextSlot > 0
	if len(m.Grants) == 0 {
		return
	}
	x.inFlight, x.outstanding, x.sentAt = true, true, v.Now
	v.Out.Send(effects.Send{
		Corr: v.Corrs.Open(x.refOf(kindRenew, class)), Conn: x.conn, Body: v.Out.Cut(m.Append(v.Out.Arena())),
	})
	v.Timers.Set(&x.timer, v.Now.Add(r.cfg.ReplyTimeout), x.refOf(0, class))
}

// refOf returns the reference by which a completion of the given kind finds its renewer. Kind 0 is the renewer's timer.
func (x *renewer) refOf(kind uint8, class int) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLease, Kind: kind, Attempt: x.epoch, Subject: table.Handle(class)}
}

// CountsAsCurrent accounts for a completion, and reports false if the completion is stale because it belongs to a
// former address or to a former sender of the class.
func (r *Renewers) CountsAsCurrent(v *env.Env, ref kernel.Ref) bool {
	x := &r.byClass[ref.Subject]
	if ref.Attempt < x.sinceEpoch {
		x.formerOutstanding--
	} else {
		x.outstanding = false
	}
	if x.epoch == ref.Attempt {
		return true
	}
	v.Out.Mark(Marks.RenewStale)
	return false
}

// OnOpened handles the completion of a connection attempt. After a failure the attempt is repeated with a delay.
func (r *Renewers) OnOpened(v *env.Env, class int, ev *effects.Opened) {
	if ev.Code != effects.OK {
		r.scheduleRetry(v, class)
		return
	}
	x := &r.byClass[class]
	x.conn = ev.Conn
	v.Conns.Bind(x.conn, x.refOf(0, class))
}

// OnUnanswered handles a request that got no reply. The outcome of the request is unknown, so no lease gets more time.
// The connection is closed and the request is repeated later, from the same slot.
func (r *Renewers) OnUnanswered(v *env.Env, class int) {
	v.Out.Mark(Marks.RenewUnanswered)
	r.byClass[class].inFlight = false
	r.closeConn(v, &r.byClass[class])
	r.scheduleRetry(v, class)
}

// scheduleRetry schedules another attempt after an exponential delay. The attempt continues at the slot of the failed
// request.
func (r *Renewers) scheduleRetry(v *env.Env, class int) {
	x := &r.byClass[class]
	x.anotherRound = x.anotherRound || x.requested && x.nextSlot == 0 && x.retrySlot > 0
	x.requested, x.nextSlot = true, x.retrySlot
	x.failures++
	delay := min(r.cfg.BackoffMin<<min(x.failures-1, 20), r.cfg.BackoffMax)
	v.Timers.Set(&x.timer, v.Now.Add(delay), x.refOf(0, class))
}

// OnTimer handles the timer of a renewer. If a request is in flight, the reply is overdue and OnTimer closes the
// connection. If not, the next attempt may begin.
func (r *Renewers) OnTimer(v *env.Env, class int) {
	x := &r.byClass[class]
	x.timer = 0
	if x.inFlight {
		r.closeConn(v, x)
	}
}

// OnConnLost handles the loss of a class's connection and reports whether it dropped the connection. While a request is
// in flight OnConnLost does nothing, because the request's own completion reports the loss.
func (r *Renewers) OnConnLost(v *env.Env, class int) bool {
	x := &r.byClass[class]
	if x.inFlight {
		return false
	}
	r.closeConn(v, x)
	return true
}

// HandleReply decodes the reply to the request in flight. HandleReply returns the time from which the extension counts
// and the length of the extension in nanoseconds. A malformed reply is treated as a missing reply, and ok is false.
func (r *Renewers) HandleReply(v *env.Env, class int, body []byte) (sentAt effects.Time, ns uint64, ok bool) {
	x := &r.byClass[class]
	v.Timers.Stop(&x.timer)
	x.inFlight = false
	if err := r.reply.Decode(body, &r.cfg.Wire); err != nil {
		r.OnUnanswered(v, class)
		return 0, 0, false
	}
	x.failures, x.retrySlot = 0, x.nextSlot
	slices.Sort(r.reply.Extended)
	slices.Sort(r.reply.Gone)
	return x.sentAt, r.reply.LeaseNS, true
}

// IsExtended reports whether the reply that was decoded last extends a grant of the given incarnation of the peer.
func (r *Renewers) IsExtended(grant uint64, peer effects.Incarnation) bool {
	return effects.Incarnation(r.reply.Incarnation) == peer && containsID(r.reply.Extended, grant)
}

// IsGone reports whether the last reply states that a grant is gone. The statement of another incarnation counts too,
// because it proves that the incarnation that granted the lease has ended.
func (r *Renewers) IsGone(grant uint64) bool { return containsID(r.reply.Gone, grant) }

// containsID reports whether a sorted list contains an id.
func containsID(sorted []uint64, id uint64) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}
