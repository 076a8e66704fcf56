// Package link knows the peers of a rank: it finds them, shakes hands, negotiates, notices a new incarnation, and comes
// back with growing, jittered delays. One that we call is an Outbound; what is known of a life of a peer, whoever
// called, is its Incarnation. An inbound peer that offers pages is reached through a plane that the receiver imports in
// turn.
package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// Version is the range of our extensions that this code speaks.
const (
	VersionMin = 2
	VersionMax = 2
)

// Config is the part of the rank's configuration that links need.
type Config struct {
	LocalID      string
	Layout       protocol.Layout
	PageBytes    uint64
	Pages        uint32
	Buffer       protocol.UUID
	Key          identity.Key // of this life: our names, and what peers prove themselves with on our planes
	PlaneNames   [][]byte
	PlaneBlobs   [][]byte // what is the same for all peers
	Bearer       bool     // the planes serve peers without our extensions
	Offers       bool     // we offer pages: peers need our planes' blobs
	Renews       bool     // we take renewals of what we lent
	DriftPPM     uint32
	ReplyTimeout effects.Duration
	BackoffMin   effects.Duration
	BackoffMax   effects.Duration
	UnfitBackoff effects.Duration // for peers of another kind
	PeersMax     uint32           // in each direction
	Directions   uint32           // 1, or 2 where peers that we send to and such that send to us are of one rank
	InboundTTL   effects.Duration // an inbound peer unheard of for so long keeps no pages from others
	Wire         protocol.Limits
}

// Links is the room.
type Links struct {
	cfg    Config `snap:"share"`
	seed   uint64
	random uint64

	peers   table.Slab[Outbound]
	byAddr  table.Index
	orphans uint32 // completions outstanding of peers that had to go
	// changed lists peers whose waiters should look again; drained by Changed.
	changed []table.Handle

	rows     table.Slab[Incarnation] // of peers and of inbound peers
	inbound  uint32                  // how many of these are inbound peers
	byName   table.Index
	byLink   table.Index // of rows that are linked
	byConn   table.Index `snap:"skip"` // of inbound peers, by where they said hello
	present  table.List  // inbound peers that are, those unseen for longest first
	replaced int         // the class that the last hello took
	reached  []Reached   // for the receiver to take
	plains   []plain     // empty where the planes serve none

	init  protocol.HixlInitRequest     `snap:"scratch"`
	inits protocol.HixlInitResponse    `snap:"scratch"`
	mem   protocol.HixlMemInfoRequest  `snap:"scratch"`
	mems  protocol.HixlMemInfoResponse `snap:"scratch"`
	ready protocol.HixlReadyRequest    `snap:"scratch"`

	readied protocol.HixlReadyResponse

	offered [][]byte // scratch of blobs
}

// New returns the room without any peer. seed is a secret of this rank.
func New(cfg Config, seed uint64) Links {
	l := Links{
		cfg: cfg, seed: seed, random: seed | 1,
		peers: table.NewSlab[Outbound](int(cfg.PeersMax)),
		rows:  table.NewSlab[Incarnation](int(cfg.PeersMax * cfg.Directions)),
	}
	if cfg.Bearer {
		l.plains = make([]plain, PlainMax)
	}
	return l
}

// jitter draws from [d/2, d]: peers that failed together do not come back together.
func (l *Links) jitter(d effects.Duration) effects.Duration {
	l.random ^= l.random << 13
	l.random ^= l.random >> 7
	l.random ^= l.random << 17
	half := uint64(d / 2)
	return d/2 + effects.Duration(l.random%(half+1))
}

// backoff is the delay after so many failures in a row.
func (l *Links) backoff(failures uint32) effects.Duration {
	d := l.cfg.BackoffMin
	for range min(failures-1, 30) {
		if d >= l.cfg.BackoffMax/2 {
			return l.jitter(l.cfg.BackoffMax)
		}
		d *= 2
	}
	return l.jitter(min(d, l.cfg.BackoffMax))
}

func timerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Subject: h}
}
