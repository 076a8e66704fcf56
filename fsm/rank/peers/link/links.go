// Package link knows the peers of a rank: it finds them, shakes hands, negotiates, notices a new incarnation, and comes
// back with growing, jittered delays. One that we call is an Outbound; what is known of an incarnation, whoever called,
// is its Incarnation. An inbound peer that offers pages is reached through a plane that the receiver imports in turn.
//
// A flow may rely on this: what was asked of one incarnation is never answered by another; a link that is ready is one
// to the incarnation that shook hands; a peer that anybody wants (Want) is kept; and an inbound peer for whom something
// is kept does not give way to another.
package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// Version is the range of our extensions that this code speaks.
const (
	VersionMin = 3
	VersionMax = 3
)

// Config is the part of the rank's configuration that links need.
type Config struct {
	LocalID      string
	Layout       protocol.Layout
	PageBytes    uint64
	Pages        uint32
	Buffer       protocol.UUID
	Device       protocol.UUID // of a second buffer, of DevicePages; zero: there is none
	DevicePages  uint32
	Key          identity.Key // of this life: our names, and what peers prove themselves with on our planes
	PlaneNames   [][]byte
	PlaneBlobs   [][]byte // what is the same for all peers
	Bearer       bool     // the planes serve peers without our extensions
	Offers       bool     // we offer pages: peers need our planes' blobs
	Renews       bool     // we take renewals of what we lent
	Recalls      bool     // we answer which chunks of ours may be read back
	Layers       uint32   // of a chunk, each in a page of its own; 0: a page has a whole chunk
	TakesLayers  bool     // also one by one
	Lookup       []byte   // host:port where peers ask which chunks we share; empty: we share none
	Lookups      uint16   // questions at a time to a peer that shares
	Geometry     []uint64 // what lies in which of our pages; none: nobody registers blocks here
	Registers    uint16   // with Geometry: registrations at a time with one peer
	Carries      uint32   // most bytes of chunks in a request to an alloc port, where both ends have it; 0: none
	Window       uint16   // requests at a time on one connection to an alloc port, where both ends have it; 0 is 1
	DriftPPM     uint32
	ReplyTimeout effects.Duration
	BackoffMin   effects.Duration
	BackoffMax   effects.Duration
	UnfitBackoff effects.Duration // for peers of another kind
	PeersMax     uint32           // in each direction
	Directions   uint32           // 1, or 2 where peers that we send to and such that send to us are of one rank
	InboundTTL   effects.Duration // an inbound peer unheard of for so long keeps no pages from others
	LeftoversMax uint32           // completions of former attempts at a peer beyond which none is begun
	PlainsMax    uint32           // peers without our extensions at a time, each with a class of its own
	SpokeFor     effects.Duration // how much longer an inbound peer keeps its place once it has spoken
	Wire         protocol.Limits
}

// Links is the room: whom we call, who calls us, and the one table of what is known of either. Its methods are what
// others ask of it; what they do is done by its parts, each of which alone touches what it has.
type Links struct {
	cfg  Config       `snap:"share"`
	rows incarnations // of both
	out  outbounds
	in   inbounds
}

// New returns the room without any peer. seed is a secret of this rank.
func New(cfg Config, seed uint64) Links { return new(Links).Emptied(cfg, seed) }

// Emptied returns what New does, in the memory of l, which is not used any more.
func (l *Links) Emptied(cfg Config, seed uint64) Links {
	e := Links{
		cfg: cfg, rows: l.rows.emptied(int(cfg.PeersMax * cfg.Directions)),
		out: l.out.emptied(&cfg, seed), in: l.in.emptied(seed),
	}
	if cfg.Bearer {
		e.in.plains = table.Zeroed(l.in.plains, int(cfg.PlainsMax))
	}
	return e
}

// Of is what is known of the life of a peer that we call, to look at now: nobody keeps it.
func (l *Links) Of(peer table.Handle) *Incarnation { return l.rows.get(l.out.peers.Get(peer).row) }

// OfClass is who has a class, or nil; to look at now as well.
func (l *Links) OfClass(class int) *Incarnation { return l.rows.get(l.rows.ofClass(class)) }

// Classes is the number of fairness classes: those of incarnations, nobody's, and those of peers without extensions.
func (l *Links) Classes() int { return l.rows.firstPlain() + len(l.in.plains) }

// Who is the peer of a class; zero if there is none.
func (l *Links) Who(class int) effects.Incarnation {
	if x := l.OfClass(class); x != nil {
		return x.who
	}
	return effects.Incarnation{}
}

// Name is what the peer of a class calls itself, for people.
func (l *Links) Name(class int) string {
	if x := l.OfClass(class); x != nil {
		return x.name
	}
	return ""
}

// ByLink is the peer that a link leads to, or zero.
func (l *Links) ByLink(link effects.Link) table.Handle {
	if x := l.rows.get(l.rows.behind(link)); x != nil {
		return x.peer
	}
	return 0
}
