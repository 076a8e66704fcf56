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
	Sending      // Send
	Posting      // Post
	Importing
	Dropping
	Revoking
	Transferring
	Settling
	Scattering
	Copying
	Verifying
	verbCount
)

// String returns the verb as in reports.
func (v Verb) String() string {
	switch v {
	case Opening:
		return "open"
	case Sending:
		return "send"
	case Posting:
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
	case Verifying:
		return "verify"
	case verbCount:
	}
	return "invalid"
}

// An Ending is a way in which an effect can be completed. A Send that was Replied ends as OK, and an Unanswered Send
// ends with its code.
type Ending struct {
	Verb      Verb
	Code      effects.Code
	Unsettled bool // of a Transfer or Copy: one Settled follows
}

// String returns for example "send peer_lost" or "transfer cancelled, unsettled".
func (e Ending) String() string {
	s := e.Verb.String() + " " + e.Code.String()
	if e.Unsettled {
		s += ", unsettled"
	}
	return s
}

// EndingOf returns the ending that a completion reports; ok is false for events that complete nothing.
func EndingOf(ev effects.Event) (end Ending, ok bool) {
	switch ev := ev.(type) {
	case *effects.Opened:
		return Ending{Verb: Opening, Code: ev.Code}, true
	case *effects.Replied:
		return Ending{Verb: Sending}, true
	case *effects.Unanswered:
		return Ending{Verb: Sending, Code: ev.Code}, true
	case *effects.SendDone:
		return Ending{Verb: Posting, Code: ev.Code}, true
	case *effects.Imported:
		return Ending{Verb: Importing, Code: ev.Code}, true
	case *effects.Dropped:
		return Ending{Verb: Dropping}, true
	case *effects.Revoked:
		return Ending{Verb: Revoking}, true
	case *effects.TransferDone:
		return Ending{Verb: Transferring, Code: ev.Code, Unsettled: !ev.Settled}, true
	case *effects.Settled:
		return Ending{Verb: Settling, Code: ev.Code}, true
	case *effects.CopyDone:
		return Ending{Verb: Copying, Code: ev.Code, Unsettled: !ev.Settled}, true
	case *effects.Scattered:
		return Ending{Verb: Scattering, Code: ev.Code}, true
	case *effects.Verified:
		if ev.Corrupt > 0 {
			return Ending{Verb: Verifying, Code: effects.Corrupt}, true
		}
		return Ending{Verb: Verifying}, true
	default: // The other events complete nothing.
		return Ending{}, false
	}
}

// legalCodes lists the codes that may complete each effect of a machine that keeps its part of the contract. Invalid is
// not among the codes of Send and Post, because only a broken machine gets that code there.
//
//kvferry:table
var legalCodes = [verbCount][]effects.Code{
	// An address comes from configuration, so the address may be invalid.
	Opening: {effects.OK, effects.Unreachable, effects.TooMany, effects.Invalid, effects.Closed},
	// Malformed: a reply arrived, but its frames do not fit the channel. TooMany: the driver's own queue is full.
	Sending: {effects.OK, effects.Closed, effects.PeerLost, effects.Refused, effects.Malformed, effects.TooMany},
	Posting: {effects.OK, effects.Refused, effects.PeerLost, effects.Closed},
	// Unsupported: the driver has no plane of that name. The remaining codes come from the plane, or from the peer
	// through the plane.
	Importing: {effects.OK, effects.Unreachable, effects.Stale, effects.Refused, effects.Malformed, effects.TooMany,
		effects.Faulted, effects.Unsupported, effects.Closed},
	Dropping: {effects.OK},
	Revoking: {effects.OK},
	// On fenced planes the owner of the pages checks each request, or a reader that needs no help of the owner does:
	// Stale to NotFound are the results of that check. For a push, Withdrawn and Faulted may also come from the
	// target's machine. Mismatch ends no read, because a read may take less than was granted. Corrupt: what was stored or
	// read does not have its checksum.
	Transferring: {effects.OK, effects.Expired, effects.Cancelled, effects.PeerLost, effects.Withdrawn, effects.Faulted,
		effects.Closed,
		effects.Stale, effects.Refused, effects.TooMany, effects.TooLarge, effects.Mismatch, effects.Invalid,
		effects.NotFound, effects.Corrupt},
	// OK: the device reported that the operation did complete. Otherwise the code of the first completion.
	Settling: {effects.OK, effects.Expired, effects.Cancelled, effects.PeerLost, effects.Withdrawn, effects.Faulted,
		effects.Closed,
		effects.Stale, effects.Refused, effects.TooMany, effects.TooLarge, effects.Mismatch, effects.Invalid,
		effects.NotFound, effects.Corrupt},
	// Unsupported: the driver was given no device code. Closed: the driver ends before the turn of the scatter.
	Scattering: {effects.OK, effects.Faulted, effects.Unsupported, effects.Closed},
	// Faulted: the device reported an error. Closed: the driver ends before the turn of the copy.
	Copying: {effects.OK, effects.Faulted, effects.Cancelled, effects.Closed},
	// Corrupt: at least one page does not have its checksum.
	Verifying: {effects.OK, effects.Corrupt},
}

// LegalEndings returns every ending that an effect may have, in a stable order.
func LegalEndings() (all []Ending) {
	for v := Opening; v < verbCount; v++ {
		for _, c := range legalCodes[v] {
			all = append(all, Ending{Verb: v, Code: c})
		}
	}
	// A plane or device may access local pages for some time after the plane or the peer gave up. OK is always settled.
	for _, v := range []Verb{Transferring, Copying} {
		for _, c := range legalCodes[v] {
			if c != effects.OK {
				all = append(all, Ending{Verb: v, Code: c, Unsettled: true})
			}
		}
	}
	return all
}

// LegalCodes returns the legal codes of a verb, from which a simulated driver chooses its refusals.
func LegalCodes(v Verb) []effects.Code { return legalCodes[v] }

// IsLegal reports whether an effect may have this ending.
func (e Ending) IsLegal() bool {
	if e.Verb >= verbCount || e.Unsettled && (e.Verb != Transferring && e.Verb != Copying || e.Code == effects.OK) {
		return false
	}
	return slices.Contains(legalCodes[e.Verb], e.Code)
}
