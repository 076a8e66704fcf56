package contract

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// Verb is a kind of effect that has a completion.
type Verb uint8

// The verbs. Settling is the second completion of a Transfer or Copy, if the first completion was not settled.
const (
	Opening Verb = iota + 1
	Asking       // Send
	Telling      // Post
	Importing
	Dropping
	Revoking
	Transferring
	Settling
	Scattering
	Copying
	verbEnd
)

// String returns the verb as in reports.
func (v Verb) String() string {
	switch v {
	case Opening:
		return "open"
	case Asking:
		return "send"
	case Telling:
		return "post"
	case Importing:
		return "import"
	case Dropping:
		return "drop"
	case Revoking:
		return "revoke"
	case Transferring:
		return "transfer"
	case Settling:
		return "settle"
	case Scattering:
		return "scatter"
	case Copying:
		return "copy"
	case verbEnd:
	}
	return "invalid"
}

// An Ending is a way in which an effect can be completed. A Send that was Replied ends as OK, and an Unanswered Send
// ends with its code.
type Ending struct {
	Of        Verb
	Code      effects.Code
	Unsettled bool // of a Transfer or Copy: one Settled follows
}

// String returns for example "send peer_lost" or "transfer cancelled, unsettled".
func (e Ending) String() string {
	s := e.Of.String() + " " + e.Code.String()
	if e.Unsettled {
		s += ", unsettled"
	}
	return s
}

// EndingOf returns the ending that a completion reports; ok is false for events that complete nothing.
func EndingOf(ev effects.Event) (end Ending, ok bool) {
	switch ev := ev.(type) {
	case *effects.Opened:
		return Ending{Of: Opening, Code: ev.Code}, true
	case *effects.Replied:
		return Ending{Of: Asking}, true
	case *effects.Unanswered:
		return Ending{Of: Asking, Code: ev.Code}, true
	case *effects.SendDone:
		return Ending{Of: Telling, Code: ev.Code}, true
	case *effects.Imported:
		return Ending{Of: Importing, Code: ev.Code}, true
	case *effects.Dropped:
		return Ending{Of: Dropping}, true
	case *effects.Revoked:
		return Ending{Of: Revoking}, true
	case *effects.TransferDone:
		return Ending{Of: Transferring, Code: ev.Code, Unsettled: !ev.Settled}, true
	case *effects.Settled:
		return Ending{Of: Settling, Code: ev.Code}, true
	case *effects.CopyDone:
		return Ending{Of: Copying, Code: ev.Code, Unsettled: !ev.Settled}, true
	case *effects.Scattered:
		return Ending{Of: Scattering, Code: ev.Code}, true
	default: // The other events complete nothing.
		return Ending{}, false
	}
}

// legal lists the codes that may complete each effect of a machine that keeps its part of the contract. Invalid is not
// among the codes of Send and Post, because only a broken machine gets that code there.
//
//kvferry:table
var legal = [verbEnd][]effects.Code{
	// An address comes from configuration, so the address may be invalid.
	Opening: {effects.OK, effects.Unreachable, effects.TooMany, effects.Invalid, effects.Closed},
	// Malformed: a reply arrived, but its frames do not fit the channel. TooMany: the driver's own queue is full.
	Asking:  {effects.OK, effects.Closed, effects.PeerLost, effects.Refused, effects.Malformed, effects.TooMany},
	Telling: {effects.OK, effects.Refused, effects.PeerLost, effects.Closed},
	// Unsupported: the driver has no plane of that name. The remaining codes come from the plane, or from the peer
	// through the plane.
	Importing: {effects.OK, effects.Unreachable, effects.Stale, effects.Refused, effects.Malformed, effects.TooMany,
		effects.Faulted, effects.Unsupported, effects.Closed},
	Dropping: {effects.OK},
	Revoking: {effects.OK},
	// On fenced planes the owner of the pages checks each request, or a reader that needs no help of the owner does:
	// Stale to NotFound are the results of that check. For a push, Withdrawn and Faulted may also come from the
	// target's machine. Mismatch ends no read, because a read may take less than was granted.
	Transferring: {effects.OK, effects.Expired, effects.Cancelled, effects.PeerLost, effects.Withdrawn, effects.Faulted,
		effects.Closed,
		effects.Stale, effects.Refused, effects.TooMany, effects.TooLarge, effects.Mismatch, effects.Invalid,
		effects.NotFound},
	// OK: the device reported that the operation did complete. Otherwise the code of the first completion.
	Settling: {effects.OK, effects.Expired, effects.Cancelled, effects.PeerLost, effects.Withdrawn, effects.Faulted,
		effects.Closed,
		effects.Stale, effects.Refused, effects.TooMany, effects.TooLarge, effects.Mismatch, effects.Invalid,
		effects.NotFound},
	// Unsupported: the driver was given no device code. Closed: the driver ends before the turn of the scatter.
	Scattering: {effects.OK, effects.Faulted, effects.Unsupported, effects.Closed},
	// Faulted: the device reported an error. Closed: the driver ends before the turn of the copy.
	Copying: {effects.OK, effects.Faulted, effects.Cancelled, effects.Closed},
}

// LegalEndings returns every ending that an effect may have, in a stable order.
func Legal() (all []Ending) {
	for v := Opening; v < verbEnd; v++ {
		for _, c := range legal[v] {
			all = append(all, Ending{Of: v, Code: c})
		}
	}
	// A plane or device may access local pages for some time after the plane or the peer gave up. OK is always settled.
	for _, v := range []Verb{Transferring, Copying} {
		for _, c := range legal[v] {
			if c != effects.OK {
				all = append(all, Ending{Of: v, Code: c, Unsettled: true})
			}
		}
	}
	return all
}

// Codes returns the legal codes of a verb, from which a simulated driver chooses its refusals.
func Codes(v Verb) []effects.Code { return legal[v] }

// IsLegal reports whether an effect may have this ending.
func (e Ending) Legal() bool {
	if e.Of >= verbEnd || e.Unsettled && (e.Of != Transferring && e.Of != Copying || e.Code == effects.OK) {
		return false
	}
	return slices.Contains(legal[e.Of], e.Code)
}
