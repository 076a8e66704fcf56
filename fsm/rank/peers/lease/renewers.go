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
	cfg    RenewersConfig `snap:"share"`
	of     []renewer      // indexed by fairness class
	asks   protocol.RenewRequest
	answer protocol.RenewResponse
}

// RenewersConfig is the configuration of Renewers.
type RenewersConfig struct {
	// how long to wait for a reply before the connection is closed
	ReplyTimeout           effects.Duration
	BackoffMin, BackoffMax effects.Duration // bounds of the exponential delay between attempts
	AddressesOnly          bool             // senders must announce a numeric address, not a host name
	Most                   int              // the largest number of leases in one request
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
// Invariant: at most leftMax+1 completions are outstanding, including the completion that owed stands for.
type renewer struct {
	text   []byte // the address for renewals, as the sender announced it
	addr   effects.Addr
	epoch  uint64 // number of the current address; a completion of an earlier epoch is stale
	since  uint64 // first epoch of the sender that has the class now
	conn   effects.Conn
	asking bool // a request is in flight
	// A completion is outstanding, perhaps for a former address; no request is sent until the completion arrives.
	owed   bool
	left   uint8        // outstanding completions for senders that had the class before
	wanted bool         // a request is to be sent
	from   int32        // offer slot at which the round continues; 0: no round is in progress
	began  int32        // slot at which the round continues if the request in flight gets no reply
	again  bool         // another round follows, because the current round may have passed leases that need time
	asked  effects.Time // when the request in flight was sent
	tries  uint32       // failed attempts since the last reply
	timer  table.Handle // the deadline of a reply, or the time of the next attempt
}

// leftMax is the number of completions of former senders of a class that may be outstanding when the class's present
// sender is asked. A connection attempt to an unreachable sender may take long, and must not cost the next sender any
// leases.
const leftMax = 1

// Kinds of completions.
const (
	kindOpenRenew uint8 = 1 + iota
	kindRenew
)

// IsOpening reports whether a completion of this package belongs to the opening of a connection. If not, the completion
// belongs to a request.
func IsOpening(ref kernel.Ref) bool { return ref.Kind == kindOpenRenew }

// Emptied returns Renewers for the given number of classes, none of which has an address yet. It reuses the memory of
// r, which must not be used afterwards.
func (r *Renewers) Emptied(cfg RenewersConfig, classes int) Renewers {
	return Renewers{cfg: cfg, of: table.Zeroed(r.of, classes)}
}

// Announced records the address at which a sender accepts renewals. Announced reports false if the sender accepts none:
// the sender announced no address, or an address that is malformed, unspecified, or a host name where only numeric
// addresses are allowed. A new address replaces the former address, and the connection to the former address is closed.
func (r *Renewers) Announced(v *env.Env, class int, text []byte) bool {
	if len(text) == 0 {
		return false
	}
	x := &r.of[class]
	if bytes.Equal(x.text, text) {
		return true
	}
	at, err := protocol.ParseEndpoint(string(text))
	if err != nil || at.Unspecified() || r.cfg.AddressesOnly && !at.Numeric() {
		v.Out.Mark(Marks.RenewNowhere)
		return false
	}
	r.hangUp(v, x)
	*x = renewer{
		text: append(x.text[:0], text...), addr: effects.Addr{Host: at.Host, Port: at.Port}, epoch: x.epoch + 1,
		since: x.since, owed: x.owed, left: x.left, wanted: x.wanted || x.asking,
	}
	return true
}

// Left records that a class belongs to another sender from now on. A completion that is still outstanding for the
// former sender delays the new sender only if more than leftMax completions of former senders are outstanding.
func (r *Renewers) Left(v *env.Env, class int) {
	x := &r.of[class]
	r.hangUp(v, x)
	left := x.left
	if x.owed {
		left++
	}
	*x = renewer{text: x.text[:0], epoch: x.epoch + 1, since: x.epoch + 1, left: left}
}

// hangUp stops the renewer's timer and closes the connection, if there is a connection.
func (r *Renewers) hangUp(v *env.Env, x *renewer) {
	v.Timers.Stop(&x.timer)
	if x.conn != 0 {
		v.Conns.Unbind(x.conn)
		v.Out.Close(x.conn)
		x.conn = 0
	}
}

// Want schedules a request for more time to the sender of a class. If a round is in progress, another round follows.
func (r *Renewers) Want(class int) {
	x := &r.of[class]
	x.wanted, x.again = true, x.from > 0
}

// From returns the offer slot from which the caller collects the grants for the next request.
func (r *Renewers) From(class int) int32 { return r.of[class].from }

// Ready reports whether a request can be sent to the sender of a class now. If only the connection is missing, Ready
// opens it and reports false.
func (r *Renewers) Ready(v *env.Env, class int) bool {
	x := &r.of[class]
	if !x.wanted || x.owed || x.left > leftMax || x.timer != 0 {
		return false
	}
	if x.conn == 0 {
		x.owed = true
		v.Out.Open(effects.Open{
			Corr: v.Corrs.Open(x.ref(kindOpenRenew, class)), Channel: effects.ChannelInit, Addr: x.addr,
		})
		return false
	}
	return true
}

// Most returns the largest number of leases that a request may name.
func (r *Renewers) Most() int { return r.cfg.Most }

// List returns an empty slice, with reused memory, for the grants that the caller passes to Ask.
func (r *Renewers) List() []uint64 { return r.asks.Grants[:0] }

// Ask sends a request for more time for the given grants of a sender, or nothing if there are none. If more is
// positive, further leases follow from that slot on, and the next request continues there.
func (r *Renewers) Ask(v *env.Env, class int, grants []uint64, us, peer effects.Incarnation, more int32) {
	x, m := &r.of[class], &r.asks
	*m = protocol.RenewRequest{
		Version: link.VersionMax, Operation: m.Operation + 1, Incarnation: protocol.UUID(us), To: protocol.UUID(peer),
		Grants: grants, Done: m.Done[:0], Stamps: protocol.Stamps{ClockNS: int64(v.Now)},
	}
	x.began, x.from, x.wanted = x.from, more, more > 0 || x.again
	x.again = x.again && more > 0
	if len(m.Grants) == 0 {
		return
	}
	x.asking, x.owed, x.asked = true, true, v.Now
	v.Out.Send(effects.Send{
		Corr: v.Corrs.Open(x.ref(kindRenew, class)), Conn: x.conn, Body: v.Out.Cut(m.Append(v.Out.Arena())),
	})
	v.Timers.Set(&x.timer, v.Now.Add(r.cfg.ReplyTimeout), x.ref(0, class))
}

// ref returns the reference by which a completion of the given kind finds its renewer. Kind 0 is the renewer's timer.
func (x *renewer) ref(kind uint8, class int) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLease, Kind: kind, Attempt: x.epoch, Subject: table.Handle(class)}
}

// Completed accounts for a completion, and reports false if the completion is stale because it belongs to a former
// address or to a former sender of the class.
func (r *Renewers) Completed(v *env.Env, ref kernel.Ref) bool {
	x := &r.of[ref.Subject]
	if ref.Attempt < x.since {
		x.left--
	} else {
		x.owed = false
	}
	if x.epoch == ref.Attempt {
		return true
	}
	v.Out.Mark(Marks.RenewStale)
	return false
}

// Opened handles the completion of a connection attempt. After a failure the attempt is repeated with a delay.
func (r *Renewers) Opened(v *env.Env, class int, ev *effects.Opened) {
	if ev.Code != effects.OK {
		r.later(v, class)
		return
	}
	x := &r.of[class]
	x.conn = ev.Conn
	v.Conns.Bind(x.conn, x.ref(0, class))
}

// Unanswered handles a request that got no reply. The outcome of the request is unknown, so no lease gets more time.
// The connection is closed and the request is repeated later, from the same slot.
func (r *Renewers) Unanswered(v *env.Env, class int) {
	v.Out.Mark(Marks.RenewUnanswered)
	r.of[class].asking = false
	r.hangUp(v, &r.of[class])
	r.later(v, class)
}

// later schedules another attempt after an exponential delay. The attempt continues at the slot of the failed request.
func (r *Renewers) later(v *env.Env, class int) {
	x := &r.of[class]
	x.again = x.again || x.wanted && x.from == 0 && x.began > 0
	x.wanted, x.from = true, x.began
	x.tries++
	delay := min(r.cfg.BackoffMin<<min(x.tries-1, 20), r.cfg.BackoffMax)
	v.Timers.Set(&x.timer, v.Now.Add(delay), x.ref(0, class))
}

// Due handles the timer of a renewer. If a request is in flight, the reply is overdue and Due closes the connection. If
// not, the next attempt may begin.
func (r *Renewers) Due(v *env.Env, class int) {
	x := &r.of[class]
	x.timer = 0
	if x.asking {
		r.hangUp(v, x)
	}
}

// Lost handles the loss of a class's connection and reports whether it dropped the connection. While a request is in
// flight Lost does nothing, because the request's own completion reports the loss.
func (r *Renewers) Lost(v *env.Env, class int) bool {
	x := &r.of[class]
	if x.asking {
		return false
	}
	r.hangUp(v, x)
	return true
}

// Answered decodes the reply to the request in flight. Answered returns the time from which the extension counts and
// the length of the extension in nanoseconds. A malformed reply is treated as a missing reply, and ok is false.
func (r *Renewers) Answered(v *env.Env, class int, body []byte) (asked effects.Time, ns uint64, ok bool) {
	x := &r.of[class]
	v.Timers.Stop(&x.timer)
	x.asking = false
	if err := r.answer.Decode(body, &r.cfg.Wire); err != nil {
		r.Unanswered(v, class)
		return 0, 0, false
	}
	x.tries, x.began = 0, x.from
	slices.Sort(r.answer.Extended)
	slices.Sort(r.answer.Gone)
	return x.asked, r.answer.LeaseNS, true
}

// Prolongs reports whether the reply that was decoded last extends a grant of the given incarnation of the peer.
func (r *Renewers) Prolongs(grant uint64, peer effects.Incarnation) bool {
	return effects.Incarnation(r.answer.Incarnation) == peer && has(r.answer.Extended, grant)
}

// Ends reports whether the last reply states that a grant is gone. The statement of another incarnation counts too,
// because it proves that the incarnation that granted the lease has ended.
func (r *Renewers) Ends(grant uint64) bool { return has(r.answer.Gone, grant) }

// has reports whether a sorted list contains an id.
func has(sorted []uint64, id uint64) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}
