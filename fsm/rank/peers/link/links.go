// Package link manages the connections of a rank to peers. The package connects to a peer's address, performs the
// handshake, negotiates the protocol version and the data plane, detects a new incarnation of the peer, and reconnects
// with growing, jittered delays.
//
// The package distinguishes two directions. An Outbound is a peer that this node connects to. An inbound peer is a peer
// that has shaken hands with this node. What is known of an incarnation of a peer is kept in an Incarnation, in one
// table for both directions. If an inbound peer offers pages, this node reaches the pages through a data plane of the
// peer, which it imports when the first offer arrives (reach.go).
//
// A flow may rely on the following:
//
//   - A request that was sent to one incarnation is never answered by another (rules M2 and M6 in docs/safety.md).
//   - A link that is ready leads to the incarnation that completed the handshake.
//   - A peer stays in the table as long as a caller wants it (AcquirePeer).
//   - An inbound peer for which the rank keeps something is not replaced by another inbound peer.
//
// Example: a sender has a put for a new receiver and calls AcquirePeer. The state of the Outbound becomes Opening while
// the init connection is opened, Greeting after the hello was sent, Importing while the data plane connects, Listing
// while the receiver is asked for buffers, and then Ready. NextChanged now returns the peer, and the flow calls
// AcquireLane to get a connection for an allocation request. Later the receiver restarts and the data plane reports the
// lost link. The link fails, the state becomes Backoff, and a timer starts the next handshake, which finds another
// incarnation of the receiver. A completion of the first attempt that arrives now is stale and is ignored.
package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// The range of versions of kvferry's protocol extensions that this code speaks.
const (
	VersionMin = 3
	VersionMax = 3
)

// Config is the part of the rank's configuration that links need.
type Config struct {
	Settings
	// Layout of a chunk, or of one layer if Layers is set; both ends must agree.
	Layout      protocol.Layout
	PageBytes   uint64        // size of a page
	Pages       uint32        // number of pages of the buffer
	Buffer      protocol.UUID // identifier of the buffer
	Device      protocol.UUID // identifier of a second buffer with DevicePages pages; zero: there is none
	DevicePages uint32
	Key         identity.Key // of this incarnation: derives the names of this node and the tokens of its planes
	PlaneNames  [][]byte     // the data planes of this node, in order of preference
	PlaneBlobs  [][]byte     // for each plane, the part of the import data that is the same for all peers
	Bearer      bool         // the planes serve peers without kvferry's extensions
	Offers      bool         // this node offers pages, so peers need the import data of its planes
	Renews      bool         // this node accepts renewals of its read leases
	Recalls     bool         // this node answers which of its chunks may be read back
	// Number of layers of a chunk, if each has a page of its own; 0: a page holds a whole chunk.
	Layers         uint32
	TakesLayers    bool     // this node also accepts single layers
	LookupAddr     []byte   // host:port for lookups of shared chunks; empty: this node shares none
	Lookups        uint16   // lookups in flight at a peer that shares chunks
	Geometry       []uint64 // what lies in which page of this node; empty: no blocks are registered here
	RegisterWindow uint16   // with Geometry: registrations in flight at one peer
	// Largest number of chunk bytes in an allocation request, if both ends support it; 0: none.
	Carries uint32
	// Requests in flight on one connection to an alloc port, if both ends support it; 0 means 1.
	Window       uint16
	ReplyTimeout effects.Duration // limit for each stage of a handshake
	BackoffMin   effects.Duration // smallest delay before the next attempt after a failure
	BackoffMax   effects.Duration // largest delay between attempts
	Directions   uint32           // 1, or 2 if the rank has both outbound and inbound peers
	InboundTTL   effects.Duration // an inbound peer that was silent for longer keeps no pages from the rest
	LeftoversMax uint32           // with more completions of former attempts than this, no new attempt begins
	// Number of peers without extensions at a time, each with a fairness class of its own.
	PlainsMax       uint32
	ProvenPeerBonus effects.Duration // how much longer an inbound peer keeps its row once it has used its name
	Wire            protocol.Limits
}

// Links holds the outbound peers, the inbound peers, and the table with the incarnations of both. The methods of Links
// are the interface for the rest of the rank; each part is modified only by its own methods.
type Links struct {
	cfg  Config       `snap:"share"`
	rows incarnations // incarnations of both directions
	out  outbounds
	in   inbounds
}

// New returns Links without any peer. The seed is a secret of this rank.
func New(cfg Config, seed uint64) Links { return new(Links).Recycle(cfg, seed) }

// Recycle returns the same as New, but reuses the memory of l, which must not be used afterwards.
func (l *Links) Recycle(cfg Config, seed uint64) Links {
	e := Links{
		cfg: cfg, rows: l.rows.recycle(int(cfg.PeersMax * cfg.Directions)),
		out: l.out.recycle(&cfg, seed), in: l.in.recycle(seed),
	}
	if cfg.Bearer {
		e.in.vanillas = table.RecycleSlice(l.in.vanillas, int(cfg.PlainsMax))
	}
	return e
}

// IncarnationOf returns what is known of the incarnation of an outbound peer. The result is valid during the current
// call and must not be stored.
func (l *Links) IncarnationOf(peer table.Handle) *Incarnation {
	return l.rows.get(l.out.peers.Get(peer).row)
}

// IncarnationByClass returns the incarnation that has a fairness class, or nil if there is none. The result must not be
// stored.
func (l *Links) IncarnationByClass(class int) *Incarnation {
	return l.rows.get(l.rows.rowOfClass(class))
}

// CountClasses returns the number of fairness classes: class 0, which belongs to no peer, the classes of incarnations,
// and the classes of peers without extensions.
func (l *Links) CountClasses() int { return l.rows.firstVanillaClass() + len(l.in.vanillas) }

// PeerID returns the peer that has a class, or zero if there is none.
func (l *Links) PeerID(class int) effects.Incarnation {
	if x := l.IncarnationByClass(class); x != nil {
		return x.peerID
	}
	return effects.Incarnation{}
}

// PeerName returns the readable name that the peer of a class stated, or "" if there is no such peer.
func (l *Links) PeerName(class int) string {
	if x := l.IncarnationByClass(class); x != nil {
		return x.name
	}
	return ""
}

// ByLink returns the outbound peer that a link leads to, or zero.
func (l *Links) ByLink(link effects.Link) table.Handle {
	if x := l.rows.get(l.rows.rowByLink(link)); x != nil {
		return x.outbound
	}
	return 0
}
