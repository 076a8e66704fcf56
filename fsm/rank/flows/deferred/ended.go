package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// An EndedOffer describes an offer that has ended: no chunk is left, and no fetch is reading.
type EndedOffer struct {
	Class int
	// Operation, Address and ExpiresAt are those of the offer; see Offer.
	Operation uint64
	Address   table.Handle
	ExpiresAt effects.Time
	Requester table.Handle // the row of the requester, if this rank requested the chunks
	DoneReport
}

// A DoneReport holds the contents of a done message, which reports that an offer is not read any more.
type DoneReport struct {
	Pull   [16]byte
	SelfID effects.Incarnation // the incarnation of this rank that the sender knows
	PeerID effects.Incarnation
	Grant  uint64
	Code   effects.Code
	// Missing is the number of chunks that left without having been read for their request.
	Missing uint32
}

// maybeEndOffer ends an offer if no chunk is left and no fetch is reading. Invariant: only then are the pages the
// sender's own again (M2).
func (d *Offers) maybeEndOffer(v *env.Env, h table.Handle, o *Offer) {
	if o.ChunksLeft > 0 || o.readers > 0 {
		return
	}
	v.Timers.Stop(&o.timer)
	d.FinishCondemned(h)
	end := EndedOffer{
		Class: o.Class, Operation: o.Operation, Address: o.Address, ExpiresAt: o.ExpiresAt, Requester: o.Origin.Requester,
		DoneReport: DoneReport{Pull: o.Pull, SelfID: o.SelfID, PeerID: o.Peer, Grant: o.Grant, Code: o.Code, Missing: o.missingChunks},
	}
	if d.byClass[o.Class].offers--; o.Origin.Peer != 0 {
		d.endedPrefixes = append(d.endedPrefixes, end)
	} else {
		d.endedOffers = append(d.endedOffers, end)
		d.byOperation.Remove(table.Hash(o.Operation, o.Peer[:]), h)
	}
	o.items, o.PresentChunks = table.TrimSlice(o.items), table.TrimSlice(o.PresentChunks)
	d.rows.Remove(h)
}

// EndedOffers returns the offers that ended since the last ClearEndedOffers, in order.
func (d *Offers) EndedOffers() []EndedOffer { return d.endedOffers }

// ClearEndedOffers clears the list of EndedOffers, when all senders have been notified.
func (d *Offers) ClearEndedOffers() { d.endedOffers = d.endedOffers[:0] }

// EndedPrefixes returns the prefixes requested by this rank that ended since the last ClearEndedPrefixes.
func (d *Offers) EndedPrefixes() []EndedOffer { return d.endedPrefixes }

// ClearEndedPrefixes clears the list of EndedPrefixes, when all requesters have been notified.
func (d *Offers) ClearEndedPrefixes() { d.endedPrefixes = d.endedPrefixes[:0] }
