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
	state         linkState
	attempt       uint64        // inbound: number of the attempt, across all users of the slot; earlier completions are stale
	importPending bool          // inbound: a completion is outstanding
	id            effects.Link  // the link, or zero
	planeIndex    int           // index into offers of the plane that is being imported
	planeData     []byte        // the import data that offers refer to
	commonPlanes  []commonPlane // the planes that both ends have, in this node's order of preference
	failedPlanes  string        // planes that could not be connected in this attempt, with their errors
}

type linkState uint8

const (
	linkDown linkState = iota
	linkImporting
	linkUp
)

// commonPlane is a plane that both ends have. The peer's import data is Link.planeData[from:to].
type commonPlane struct {
	planeIndex int // index into Config.PlaneNames
	from, to   int
}

// recycle returns a Link without planes in the same memory. The attempt number continues, so that completions of former
// attempts stay recognizable.
func (k *Link) recycle() Link {
	return Link{attempt: k.attempt, planeData: k.planeData[:0], commonPlanes: k.commonPlanes[:0]}
}

// setCommonPlanes records the planes that both ends have, in this node's order of preference.
func (k *Link) setCommonPlanes(ours, theirs, blobs [][]byte) {
	k.planeData, k.commonPlanes = k.planeData[:0], k.commonPlanes[:0]
	for i, name := range ours {
		for j, same := range theirs {
			if bytes.Equal(name, same) && j < len(blobs) {
				from := len(k.planeData)
				k.planeData = append(k.planeData, blobs[j]...)
				k.commonPlanes = append(k.commonPlanes, commonPlane{planeIndex: i, from: from, to: len(k.planeData)})
			}
		}
	}
}

// startAttempt starts an attempt with the first plane.
func (k *Link) startAttempt() { k.state, k.planeIndex, k.failedPlanes = linkImporting, 0, "" }

// hasNextPlane reports whether there is another plane to try.
func (k *Link) hasNextPlane() bool { return k.planeIndex < len(k.commonPlanes) }

// importPlane requests the import of the current plane. The completion (Imported) will name corr.
func (k *Link) importPlane(v *env.Env, corr effects.Corr, ours [][]byte, peer, selfID effects.Incarnation) {
	o := k.commonPlanes[k.planeIndex]
	v.Out.Import(effects.Import{
		Corr: corr, Peer: peer, Us: selfID, Plane: string(ours[o.planeIndex]), Blob: k.planeData[o.from:o.to],
	})
}

// failPlane records that the current plane could not be connected, and moves on to the next plane.
func (k *Link) failPlane(ours [][]byte, code effects.Code) {
	failure := effects.SanitizeText(ours[k.commonPlanes[k.planeIndex].planeIndex]) + " (" + code.String() + ")"
	if k.failedPlanes != "" {
		failure = k.failedPlanes + ", " + failure
	}
	k.failedPlanes = failure
	k.planeIndex++
}
