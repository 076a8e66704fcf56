// Package kernel is what all rooms of a rank share and none owns: who an outstanding effect, a deadline and a command's
// ticket belong to. A Corr is never given twice, and its completion is taken exactly once. All deadlines stand in one
// heap with true removal, so that nothing ever has to be cancelled outside the machine.
package kernel

import "github.com/kvferry/kvferry/fsm/table"

// An Owner is the room that hears what becomes of something.
type Owner uint8

// The owners. OwnerNone stands where nobody waits.
const (
	OwnerNone Owner = iota
	OwnerRank
	OwnerLink
	OwnerPushSource
	OwnerPullSource
	OwnerPipeline
	OwnerEngine
	OwnerGets
	OwnerStore
	OwnerPending
	OwnerDeferred
	OwnerLease
	OwnerNotices
	OwnerPushTarget
	OwnerPullTarget
	OwnerRecallSource
	OwnerRecallTarget
	OwnerP2POwner
	OwnerP2PRequester
	OwnerP2PTarget
	OwnerRegistrar
	OwnerLookups
	OwnerBundles
	OwnerLayers
	OwnerConsumer
	OwnerProducer
	OwnerEndSource
	OwnerEndTarget
	Owners
)

// A Ref says whose something is, and what of its: a kind of the owner's own, its subject, and the attempt, by which an
// owner tells completions of a former attempt. An owner numbers the attempts of one slot upwards, whoever has it: so an
// attempt tells lives of a subject apart where handles do not any more.
type Ref struct {
	Owner   Owner
	Kind    uint8
	Subject table.Handle
	Attempt uint64
}

// Foreign is what cannot be: who is told of what it never asks for.
func Foreign(who string) { panic("BUG: " + who + " is told of what it never asks for") }
