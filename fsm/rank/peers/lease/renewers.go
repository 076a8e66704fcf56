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

// Renewers ask senders for more time. They are handed what is to be prolonged, and know no offer.
type Renewers struct {
	cfg    RenewersConfig `snap:"share"`
	of     []renewer      // by class
	asks   protocol.RenewRequest
	answer protocol.RenewResponse
}

// RenewersConfig is what renewers go by.
type RenewersConfig struct {
	ReplyTimeout           effects.Duration
	BackoffMin, BackoffMax effects.Duration
	AddressesOnly          bool // senders say where they take renewals by address, not by name
	Most                   int  // leases that one request speaks of
	Wire                   protocol.Limits
}

// A renewer asks one sender for more time, for all that it offered and that was not read, when half of the time of
// any is over. The new time counts from the instant before the request that was answered left: an answer that never
// comes, or comes late, gives nothing that the sender did not give. There is one request at a time. If one does not
// speak of all, others follow at once that speak of the rest: together they are a round.
//
// Invariant: at most leftMax+1 completions are outstanding, that of owed included.
type renewer struct {
	text   []byte // where it asks, as the sender announces it
	addr   effects.Addr
	epoch  uint64 // completions of a former address are stale
	since  uint64 // the first epoch of the sender that has the class now
	conn   effects.Conn
	asking bool
	owed   bool  // a completion is outstanding, perhaps one of a former address: until it came nothing is asked
	left   uint8 // completions outstanding of senders that had the class before
	wanted bool
	from   int32 // where the round goes on; 0: none is under way
	began  int32 // where it goes on if the request that is under way gets no answer
	again  bool  // another round follows, because of what the one that is under way may have passed
	asked  effects.Time
	tries  uint32
	timer  table.Handle // when the answer is overdue, or when to try again
}

// leftMax is how many completions of senders that had a class before may be outstanding when its sender is asked: a
// connection to one that is out of reach may take long, and must not cost the next sender its leases.
const leftMax = 1

// Kinds of completions.
const (
	kindOpenRenew uint8 = 1 + iota
	kindRenew
)

// IsOpening says whether a completion of this room is that of a connection, not of a question.
func IsOpening(ref kernel.Ref) bool { return ref.Kind == kindOpenRenew }

// Emptied returns one for each class, that asks nobody, in the memory of r, which is not used any more.
func (r *Renewers) Emptied(cfg RenewersConfig, classes int) Renewers {
	return Renewers{cfg: cfg, of: table.Zeroed(r.of, classes)}
}

// Announced notes where a sender takes renewals, and says whether it does.
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

// Left notes that a class is another sender's from now on. What the former one still owes keeps the new one from being
// asked only if more than one before it owes something, too.
func (r *Renewers) Left(v *env.Env, class int) {
	x := &r.of[class]
	r.hangUp(v, x)
	left := x.left
	if x.owed {
		left++
	}
	*x = renewer{text: x.text[:0], epoch: x.epoch + 1, since: x.epoch + 1, left: left}
}

func (r *Renewers) hangUp(v *env.Env, x *renewer) {
	v.Timers.Stop(&x.timer)
	if x.conn != 0 {
		v.Conns.Unbind(x.conn)
		v.Out.Close(x.conn)
		x.conn = 0
	}
}

// Want notes that a sender is to be asked for more time.
func (r *Renewers) Want(class int) {
	x := &r.of[class]
	x.wanted, x.again = true, x.from > 0
}

// From is where the grants are looked for of which the next request speaks.
func (r *Renewers) From(class int) int32 { return r.of[class].from }

// Ready says whether a sender is to be asked now. What that takes is begun: a connection.
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

// Most is how many leases one request may speak of.
func (r *Renewers) Most() int { return r.cfg.Most }

// List is where the grants are listed that ask speaks of.
func (r *Renewers) List() []uint64 { return r.asks.Grants[:0] }

// Ask asks a sender for more time for these grants of its own. If there are more, from a slot on, it is asked for them
// next.
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

// ref is whose the completion of one of a renewer's effects is, or of kind 0 its deadline.
func (x *renewer) ref(kind uint8, class int) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLease, Kind: kind, Attempt: x.epoch, Subject: table.Handle(class)}
}

// Completed notes a completion, and says whether it is not one of a former address, or sender.
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

// Opened handles the completion of the Open of a connection.
func (r *Renewers) Opened(v *env.Env, class int, ev *effects.Opened) {
	if ev.Code != effects.OK {
		r.later(v, class)
		return
	}
	x := &r.of[class]
	x.conn = ev.Conn
	v.Conns.Bind(x.conn, x.ref(0, class))
}

// Unanswered handles a request that got no answer: nothing is known of what it asked for.
func (r *Renewers) Unanswered(v *env.Env, class int) {
	v.Out.Mark(Marks.RenewUnanswered)
	r.of[class].asking = false
	r.hangUp(v, &r.of[class])
	r.later(v, class)
}

func (r *Renewers) later(v *env.Env, class int) {
	x := &r.of[class]
	x.again = x.again || x.wanted && x.from == 0 && x.began > 0
	x.wanted, x.from = true, x.began
	x.tries++
	delay := min(r.cfg.BackoffMin<<min(x.tries-1, 20), r.cfg.BackoffMax)
	v.Timers.Set(&x.timer, v.Now.Add(delay), x.ref(0, class))
}

// Due closes a connection whose answer is overdue, or lets it be tried again.
func (r *Renewers) Due(v *env.Env, class int) {
	x := &r.of[class]
	x.timer = 0
	if x.asking {
		r.hangUp(v, x)
	}
}

// Lost forgets the connection of a class, which is gone, unless the completion of what was asked says so; and says
// whether it did.
func (r *Renewers) Lost(v *env.Env, class int) bool {
	x := &r.of[class]
	if x.asking {
		return false
	}
	r.hangUp(v, x)
	return true
}

// Answered reads the answer to what was asked, and says since when the time counts that it gives, and how long that
// is.
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

// Prolongs says whether the answer that was read last gives a grant of a peer more time.
func (r *Renewers) Prolongs(grant uint64, peer effects.Incarnation) bool {
	return effects.Incarnation(r.answer.Incarnation) == peer && has(r.answer.Extended, grant)
}

// Ends says whether it calls a grant gone. The word of another incarnation counts too: it is proof that the one that
// leased is over.
func (r *Renewers) Ends(grant uint64) bool { return has(r.answer.Gone, grant) }

func has(sorted []uint64, id uint64) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}
