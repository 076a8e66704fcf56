package link

import "fmt"

// maxLinksPerPeer is the number of links that a peer may have: the current link, and some links that have ended
// without our noticing yet.
const maxLinksPerPeer = 4

// addressReserve is the divisor for the part of the links that a single address leaves free for the rest. Limits by
// peer are not enough, because a host can create any number of peers, each with its own token.
const addressReserve = 8

// checkLinkLimits returns an error if there is no room for another link: because of the limit for all links, for the
// links of a peer or for the links of an address. The caller holds the plane's mutex.
func (p *Plane) checkLinkLimits(in *IncomingLink) error {
	var oldest *IncomingLink
	peerLinks, addressLinks, maxLinks := 0, 0, p.env.Bounds.Links
	for _, other := range p.incoming {
		if other.address == in.address {
			addressLinks++
		}
		if other.hello.From != in.hello.From {
			continue
		}
		if peerLinks++; oldest == nil || other.number < oldest.number {
			oldest = other
		}
	}
	switch {
	case peerLinks >= maxLinksPerPeer:
		oldest.Fail() // An honest peer is admitted at the next attempt.
		return fmt.Errorf("this peer has %d links already; the oldest link is closed, and the peer can try again", peerLinks)
	case len(p.incoming) >= maxLinks:
		return fmt.Errorf("%d links are open, which is the limit; raise tables.peers", len(p.incoming))
	case in.address.IsValid() && addressLinks >= maxLinks-maxLinks/addressReserve:
		return fmt.Errorf("%d links of address %v are open, which is the limit for an address; raise tables.peers", addressLinks, in.address)
	}
	return nil
}

// exceedsLimits reports whether the peer would have more in flight than the limits allow, if another request with so
// many pages were admitted. Unconfirmed landings count, because each unconfirmed landing has an event in the machine's
// mailbox, which a peer could otherwise fill by requesting and cancelling pushes. Pages count, because a read may name
// the same page any number of times.
func (in *IncomingLink) exceedsLimits(pages int) bool {
	b := in.plane.env.Bounds
	return len(in.pushes)+len(in.servedReads)+in.landings >= b.Transfers ||
		uint64(in.pages+pages) > uint64(b.PagesPerBatch)+2*uint64(in.plane.env.Pool.Buffer().Pages)
}
