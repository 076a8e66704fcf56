package link

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// Link is the state of the data-plane connection to a peer, in either direction: the planes that both ends have, the
// plane that is being imported, and the resulting link.
//
// The two directions handle the end of an import differently. To an outbound peer the import is a stage of the
// handshake: the Outbound counts completions and attempts, sets a deadline, and fails as a whole. To an inbound peer
// the link is made when the first offer arrives, without a deadline, and the outcome is reported to the receiver
// (reach.go). There the Link itself counts completions and attempts.
type Link struct {
	state   linkState
	attempt uint64       // inbound: number of the attempt, across all users of the slot; earlier completions are stale
	owed    bool         // inbound: a completion is outstanding
	id      effects.Link // the link, or zero
	plane   int          // index into offers of the plane that is being imported
	planes  []byte       // the import data that offers refer to
	offers  []offer      // the planes that both ends have, in this node's order of preference
	tried   string       // planes that could not be connected in this attempt, with their errors
}

type linkState uint8

const (
	unlinked linkState = iota
	linking
	linked
)

// offer is a plane that both ends have. The peer's import data is Link.planes[from:to].
type offer struct {
	ours     int // index into Config.PlaneNames
	from, to int
}

// emptied returns a Link without planes in the same memory. The attempt number continues, so that completions of former
// attempts stay recognizable.
func (k *Link) emptied() Link {
	return Link{attempt: k.attempt, planes: k.planes[:0], offers: k.offers[:0]}
}

// learn records the planes that both ends have, in this node's order of preference.
func (k *Link) learn(ours, theirs, blobs [][]byte) {
	k.planes, k.offers = k.planes[:0], k.offers[:0]
	for i, name := range ours {
		for j, same := range theirs {
			if bytes.Equal(name, same) && j < len(blobs) {
				from := len(k.planes)
				k.planes = append(k.planes, blobs[j]...)
				k.offers = append(k.offers, offer{ours: i, from: from, to: len(k.planes)})
			}
		}
	}
}

// begin starts an attempt with the first plane.
func (k *Link) begin() { k.state, k.plane, k.tried = linking, 0, "" }

// left reports whether there is another plane to try.
func (k *Link) left() bool { return k.plane < len(k.offers) }

// try requests the import of the current plane. The completion (Imported) will name corr.
func (k *Link) try(v *env.Env, corr effects.Corr, ours [][]byte, who, us effects.Incarnation) {
	o := k.offers[k.plane]
	v.Out.Import(effects.Import{
		Corr: corr, Peer: who, Us: us, Plane: string(ours[o.ours]), Blob: k.planes[o.from:o.to],
	})
}

// failed records that the current plane could not be connected, and moves on to the next plane.
func (k *Link) failed(ours [][]byte, code effects.Code) {
	this := effects.Words(ours[k.offers[k.plane].ours]) + " (" + code.String() + ")"
	if k.tried != "" {
		this = k.tried + ", " + this
	}
	k.tried = this
	k.plane++
}
