package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Incarnation is what is known of one incarnation of a peer. An outbound peer has an Incarnation from when it is wanted
// until it is evicted. An inbound peer has an Incarnation from its hello until another inbound peer replaces it. Both
// directions share one table, so that each peer and direction has a fairness class of its own: the number of its row.
// Class 0 belongs to no peer. The classes after those of the rows belong to peers without kvferry's extensions.
//
// An inbound peer is identified by two names: the name that the peer uses towards this node, and the name that this
// node uses towards the peer. Each name was told to the other end only. A hello under another name belongs to another
// peer, which is given another name of this node (rule M2).
type Incarnation struct {
	// The name that the peer uses towards this node; of an outbound peer, known once the hello was answered.
	peerID       effects.Incarnation
	selfID       effects.Incarnation // the name that this node uses towards the peer
	formerPeerID effects.Incarnation // the value of peerID at the last completed hello; kept when the link fails
	name         string              // the peer's readable name
	caps         uint64              // capabilities (protocol.Cap...)
	newestStamp  int64               // the newest clock stamp of the peer
	anchor       anchor              // relation of the two clocks; zero: none is known (M4)
	buffers      []effects.Buffer    // the buffers that the peer listed
	link         Link                // the data-plane link to the peer's pages
	// The identity that the peer proved when the names were exchanged; 0: none. Messages under the names are accepted
	// only from this identity (S29).
	principal effects.Principal
	// The tenants of which the peer may have chunks and keys, and the trust domain that it proved, as of the hello (S31).
	tenants *effects.Tenants `snap:"share"`
	realm   effects.Realm

	outbound   table.Handle // the Outbound; zero: an inbound peer
	seenAt     effects.Time `snap:"skip"` // inbound: when the peer was seen last; only matters when the table is full
	usedName   bool         // inbound: the peer has sent a message under the name that it was given
	helloConn  effects.Conn // inbound: the connection of the last hello
	helloStamp int64        // inbound: the clock stamp of that hello; 0: it had none
	linkLost   bool         // inbound: the peer's link to this node's pages is lost

	geometry []uint64 // what lies in which page of the peer, as the peer stated

	layers      uint32 // outbound: number of layers of a chunk, if the peer has a page for each layer
	wholeChunks bool   // outbound: the peer's pages hold all layers of a chunk, and this node's pages one
	window      uint16 // outbound: requests in flight on one connection to the alloc port; 0 means 1
	carryBytes  uint32 // outbound: largest number of chunk bytes in a request to the alloc port
}

func (x *Incarnation) isInbound() bool { return x.outbound == 0 }

// Link returns the link and the peer's incarnation, as a transfer needs them. The link is zero if there is none.
func (x *Incarnation) Link() (effects.Link, effects.Incarnation) { return x.link.id, x.peerID }

// Principal returns the identity that the peer proved when the names were exchanged, or 0 if it proved none.
func (x *Incarnation) Principal() effects.Principal { return x.principal }

// CheckReceiver returns nil if this node may send the peer a chunk of a tenant, or the key of one, and otherwise the
// reason. The engine chooses the peer, on the word of a client, so the peer's rights are checked before a key is sent.
func (x *Incarnation) CheckReceiver(v *env.Env, tenant effects.Tenant) *effects.Why {
	if x.tenants.Has(tenant) {
		return nil
	}
	v.Out.Mark(Marks.PeerLacksTenant)
	return &effects.Why{
		Field: "tenant", Ours: tenant.String(), Theirs: x.tenants.String(),
		Remedy: "use a peer of the tenant, or give the tenant to the peer's identity in security.policy of this node",
	}
}

// CheckOwner returns nil if this node may read chunks of a tenant back from the peer. Besides what CheckReceiver checks,
// the peer must be of this node's trust domain: a chunk that is read back is taken for a chunk of this domain.
func (x *Incarnation) CheckOwner(v *env.Env, tenant effects.Tenant) *effects.Why {
	if x.realm != 0 {
		v.Out.Mark(Marks.PeerOfOtherDomain)
		return &effects.Why{Field: "trust domain", Ours: "the trust domain of this node", Theirs: "another, or none was proved"}
	}
	return x.CheckReceiver(v, tenant)
}

// HasTenant reports whether the inbound peer of a class may be told of chunks of a tenant.
func (l *Links) HasTenant(class int, tenant effects.Tenant) bool {
	x := l.IncarnationByClass(class)
	return x == nil || x.tenants.Has(tenant)
}

// RealmOf returns the trust domain of the inbound peer of a class, or 0 if there is no such peer.
func (l *Links) RealmOf(class int) effects.Realm {
	if i := class - l.rows.firstVanillaClass(); i >= 0 && i < len(l.in.vanillas) {
		return l.in.vanillas[i].realm
	}
	if x := l.IncarnationByClass(class); x != nil && x.isInbound() {
		return x.realm
	}
	return 0
}

// SelfID returns the name by which the peer knows this node.
func (x *Incarnation) SelfID() effects.Incarnation { return x.selfID }

// HasExtensions reports whether the peer speaks kvferry's extensions.
func (x *Incarnation) HasExtensions() bool { return x.peerID != effects.Incarnation{} }

// AcceptsCommits reports whether the peer accepts commits.
func (x *Incarnation) AcceptsCommits() bool { return x.caps&protocol.CapCommit != 0 }

// AcceptsWithdrawals reports whether the peer accepts withdrawals of offers.
func (x *Incarnation) AcceptsWithdrawals() bool { return x.caps&protocol.CapPull != 0 }

// KeepsLeases reports whether the peer keeps to leases (rule M4).
func (x *Incarnation) KeepsLeases() bool { return x.caps&protocol.CapLease != 0 }

// AnswersRecalls reports whether the peer answers which of its chunks may be read back.
func (x *Incarnation) AnswersRecalls() bool { return x.caps&protocol.CapRecall != 0 }

// Layers returns the number of layers of the peer's chunks if each layer has a page of its own, and 0 if a page holds a
// whole chunk.
func (x *Incarnation) Layers() uint32 { return x.layers }

// HasWholeChunks reports whether the peer's pages hold all layers of a chunk while this node's pages hold one layer
// each.
func (x *Incarnation) HasWholeChunks() bool { return x.wholeChunks }

// Geometry returns what lies in which page of the peer, as the peer stated, or nothing if the peer accepts no
// registrations. The result must not be stored.
func (x *Incarnation) Geometry() []uint64 { return x.geometry }

// CarryBytes returns the largest number of chunk bytes that a request to the peer's alloc port may carry.
func (x *Incarnation) CarryBytes() uint32 { return x.carryBytes }

// PageBytes returns the size of the peer's pages, or zero if the peer listed no buffer.
func (x *Incarnation) PageBytes() uint64 {
	if len(x.buffers) > 0 {
		return x.buffers[0].PageBytes
	}
	return 0
}

// AcceptsLayers reports whether the peer accepts single layers of a chunk.
func (x *Incarnation) AcceptsLayers() bool { return x.caps&protocol.CapLayers != 0 }

// ClockStamps returns the clock stamps for a message that is sent to the peer now.
func (x *Incarnation) ClockStamps(now effects.Time) protocol.Stamps {
	return protocol.Stamps{ClockNS: int64(now), EchoNS: x.newestStamp}
}

// RecordStamps records the clock stamp of a message from the peer.
func (x *Incarnation) RecordStamps(s protocol.Stamps) {
	if s.ClockNS != 0 {
		x.newestStamp = s.ClockNS
	}
}

// HasLostLink reports whether the peer's link to this node's pages was lost and no handshake followed. Such a peer is
// given nothing, but what it returns is accepted.
func (x *Incarnation) HasLostLink() bool { return x.linkLost }

// HasBuffers reports whether the peer has listed its buffers. An inbound peer may not have done so if its messages
// crossed those of a former connection.
func (x *Incarnation) HasBuffers() bool { return len(x.buffers) > 0 }

// FirstBuffer returns the buffer that the peer listed first, or zero if it listed none.
func (x *Incarnation) FirstBuffer() effects.BufferID {
	if len(x.buffers) > 0 {
		return x.buffers[0].ID
	}
	return effects.BufferID{}
}

// FindBuffer returns the peer's buffer with an identifier.
func (x *Incarnation) FindBuffer(id effects.BufferID) (effects.Buffer, bool) {
	for _, b := range x.buffers {
		if b.ID == id {
			return b, true
		}
	}
	return effects.Buffer{}, false
}
