package link

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// A Link is what we have of a peer's data planes, in either direction: those that both ends have, which of them is
// being imported, and the link that came of it.
//
// What the end of an import means is its user's to say. To a peer that we send to it is a stage of the handshake: the
// peer counts its completions and attempts, sets a deadline, and fails as a whole. One that sends to us is linked when
// its first offer comes, without a deadline, and what waits for it is told (reach.go): there the Link itself counts.
type Link struct {
	state   linkState
	attempt uint64 // inbound: of all that had this slot; the completion of a former one is stale
	owed    bool   // inbound: a completion is outstanding
	id      effects.Link
	plane   int // which of offers is being imported
	planes  []byte
	offers  []offer
	tried   string // planes that could not be connected in this attempt
}

type linkState uint8

const (
	unlinked linkState = iota
	linking
	linked
)

// An offer is a plane that both ends have, with the peer's blob in Link.planes.
type offer struct {
	ours     int
	from, to int
}

// emptied is a Link without anything, in the same memory. Attempts go on.
func (k *Link) emptied() Link {
	return Link{attempt: k.attempt, planes: k.planes[:0], offers: k.offers[:0]}
}

// learn finds the planes that both ends have, the one that we prefer first.
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

// begin starts anew, with the first plane.
func (k *Link) begin() { k.state, k.plane, k.tried = linking, 0, "" }

// left says whether there is a plane to try.
func (k *Link) left() bool { return k.plane < len(k.offers) }

// try asks for the import of the plane whose turn it is. corr is the one that Imported will name.
func (k *Link) try(v *env.Env, corr effects.Corr, ours [][]byte, who, us effects.Incarnation) {
	o := k.offers[k.plane]
	v.Out.Import(effects.Import{
		Corr: corr, Peer: who, Us: us, Plane: string(ours[o.ours]), Blob: k.planes[o.from:o.to],
	})
}

// failed adds the plane, which could not be connected, to those of this attempt. The next one has its turn.
func (k *Link) failed(ours [][]byte, code effects.Code) {
	this := effects.Words(ours[k.offers[k.plane].ours]) + " (" + code.String() + ")"
	if k.tried != "" {
		this = k.tried + ", " + this
	}
	k.tried = this
	k.plane++
}
