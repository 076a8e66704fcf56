package plan

import (
	"fmt"
	"strings"
)

// A Fault is a kind of thing that goes wrong, or that an engine does unexpectedly. The intensity of each fault is drawn
// separately for each seed. [Result.Faults] counts the strikes of each fault by name.
type Fault uint8

// The kinds of faults. Scheduled faults have an instant in the plan; the remaining faults are drawn at the occasions
// where they can happen (see [Strike]). A new fault is added before FaultCount, with a row in faultInfos. The numbers
// are part of what a seed means.
const (
	// Scheduled.
	FaultCrash Fault = iota + 1
	FaultPause
	FaultCutConn
	FaultCutLink
	FaultNoise

	// Drawn on the fly.
	FaultRequestLost
	FaultReplyLost
	FaultLossUnnoticed
	FaultImportFailed
	FaultPushRefused
	FaultDMAFailed
	FaultLateStore
	FaultRevokeDelayed
	FaultCommandAborted
	FaultReleasedTwice
	FaultRequestAbandoned
	FaultEffectRefused

	// Scheduled.
	FaultDoubleCrash
	FaultFreeze
	FaultSlowNode
	FaultDrain
	FaultPartition
	FaultOneWayPartition
	FaultFlappingPartition
	FaultConnsReset
	FaultHostileMessage

	// Drawn on the fly.
	FaultHandshakeRefused
	FaultMessageDelayed
	FaultPostDoubled
	FaultRequestCorrupted
	FaultReplyCorrupted
	FaultHalfPage
	FaultCopyStalled
	FaultSettledEarly
	FaultConflictingCommand
	FaultPagesRefilled
	FaultPagesKeptLong
	FaultDoneLost

	// Scheduled.
	FaultDoneForged

	// Drawn on the fly.
	FaultFetchDelayed

	// Scheduled.
	FaultGreedyPeer
	FaultRankAlone

	// Of planes of communicators, drawn on the fly.
	FaultCommUnproven
	FaultCommStays
	FaultCommGoneEarly

	// Drawn on the fly.
	FaultForeignEncoding
	FaultFieldRepeated

	// Scheduled.
	FaultHelloCrowd

	// Drawn on the fly, where checksums are stated.
	FaultBitFlippedStored
	FaultBitFlippedRead
	FaultMemoryFlipped

	FaultCount // above every fault
)

// faultInfo describes a fault: its name in plans and summaries, and the range of intensities from which a seed draws.
// The intensity of a scheduled fault is the number of its occurrences. The intensity of another fault is its rate in
// strikes per thousand occasions.
type faultInfo struct {
	name          string
	scheduled     bool
	lo, hi        int
	always        bool // drawn for each seed; faults without this flag are off in most seeds
	pull          bool // only where senders offer their chunks to be read
	delay         bool // only where receivers keep offers
	communicators bool // only on planes of communicators
	foreign       bool // only where nodes may use another implementation's encoder
	special       bool // only in seeds that a profile makes for this fault
	calm          bool // also in profile calm: done by engines, or after another fault
}

// faultInfos describes each fault.
var faultInfos = [FaultCount]faultInfo{
	FaultCrash:   {name: "crash", scheduled: true, lo: 1, hi: 4},
	FaultPause:   {name: "pause", scheduled: true, lo: 1, hi: 4},
	FaultCutConn: {name: "connection cut", scheduled: true, lo: 1, hi: 8},
	FaultCutLink: {name: "link cut", scheduled: true, lo: 1, hi: 6},
	FaultNoise:   {name: "noise", scheduled: true, lo: 1, hi: 12},
	// After a lost request or reply the connection is silently dead.
	FaultRequestLost: {name: "request lost", lo: 5, hi: 150},
	FaultReplyLost:   {name: "reply lost", lo: 5, hi: 150},
	// No notification of a lost connection.
	FaultLossUnnoticed: {name: "loss not reported", lo: 0, hi: 1000, always: true, calm: true},
	FaultImportFailed:  {name: "import failed", lo: 5, hi: 100},
	FaultPushRefused:   {name: "push refused", lo: 5, hi: 100},
	FaultDMAFailed:     {name: "dma failed", lo: 10, hi: 300}, // the transfer stops half-way
	// On leased planes only.
	FaultLateStore:     {name: "late store", lo: 10, hi: 300},
	FaultRevokeDelayed: {name: "revoke delayed", lo: 50, hi: 500},
	// Actions of engines.
	FaultCommandAborted:   {name: "command aborted", lo: 20, hi: 400},
	FaultReleasedTwice:    {name: "released twice", lo: 100, hi: 900, calm: true},
	FaultRequestAbandoned: {name: "request abandoned", lo: 50, hi: 500, calm: true},
	// Refusals of control transports for reasons of their own.
	FaultEffectRefused: {name: "effect refused", lo: 5, hi: 80},

	FaultDoubleCrash:       {name: "double crash", scheduled: true, lo: 1, hi: 2},
	FaultFreeze:            {name: "frozen beyond its lease", scheduled: true, lo: 1, hi: 2},
	FaultSlowNode:          {name: "slow consumer", scheduled: true, lo: 1, hi: 3},
	FaultDrain:             {name: "drain", scheduled: true, lo: 1, hi: 2},
	FaultPartition:         {name: "partition", scheduled: true, lo: 1, hi: 3},
	FaultOneWayPartition:   {name: "one-way partition", scheduled: true, lo: 1, hi: 3}, // what the node sends does not arrive
	FaultFlappingPartition: {name: "flapping partition", scheduled: true, lo: 1, hi: 2},
	FaultConnsReset:        {name: "all connections reset", scheduled: true, lo: 1, hi: 3},
	FaultHostileMessage:    {name: "hostile message", scheduled: true, lo: 2, hi: 20}, // a real message, changed by a stranger

	FaultHandshakeRefused: {name: "handshake refused", lo: 5, hi: 150}, // at any step
	FaultMessageDelayed:   {name: "message delayed", lo: 5, hi: 150},   // by up to a second, so that other messages overtake
	FaultPostDoubled:      {name: "notification doubled", lo: 10, hi: 300},
	FaultRequestCorrupted: {name: "request corrupted", lo: 5, hi: 100},
	FaultReplyCorrupted:   {name: "reply corrupted", lo: 5, hi: 100},
	FaultHalfPage:         {name: "page half stored", lo: 5, hi: 100},
	FaultCopyStalled:      {name: "copy stalled", lo: 5, hi: 100}, // or the next submission, for up to seconds
	// A peer may continue to read pages that have become useless.
	FaultSettledEarly:       {name: "settled early", lo: 100, hi: 1000},
	FaultConflictingCommand: {name: "conflicting command", lo: 20, hi: 300},
	FaultPagesRefilled:      {name: "pages refilled", lo: 50, hi: 500},
	FaultPagesKeptLong:      {name: "pages kept long", lo: 20, hi: 300}, // by an engine, so that requests find no free pages
	FaultDoneLost:           {name: "done lost", pull: true, lo: 10, hi: 300},

	// By an engine, until offers may have expired.
	FaultFetchDelayed: {name: "fetch delayed", delay: true, lo: 100, hi: 600, calm: true},

	// A stranger sends a done message for an offer.
	FaultDoneForged: {name: "done forged", pull: true, scheduled: true, lo: 2, hi: 20},

	FaultGreedyPeer: {name: "greedy peer", scheduled: true, lo: 1, hi: 3}, // connects and requests pages without end

	FaultCommUnproven:  {name: "communicator unproven", communicators: true, lo: 5, hi: 60},        // the process is restarted
	FaultCommStays:     {name: "communicator not destroyed", communicators: true, lo: 20, hi: 300}, // at its target
	FaultCommGoneEarly: {name: "communicator gone early", communicators: true, lo: 10, hi: 200},

	FaultRankAlone: {name: "rank failed alone", scheduled: true, lo: 1, hi: 3}, // the process continues, and the memory stays

	FaultForeignEncoding: {name: "message in foreign encoding", foreign: true, lo: 20, hi: 500}, // as another encoder writes it
	FaultFieldRepeated:   {name: "field repeated", foreign: true, lo: 5, hi: 60},                // in a request

	// A plane or a memory changes a bit. Pages of which the source states no checksum are spared.
	FaultBitFlippedStored: {name: "bit flipped in a store", special: true, lo: 20, hi: 300}, // by the plane, in a push
	FaultBitFlippedRead:   {name: "bit flipped in a read", special: true, lo: 20, hi: 300},
	FaultMemoryFlipped:    {name: "bit flipped at the source", special: true, lo: 20, hi: 200}, // in memory, before a transfer

	FaultHelloCrowd: {name: "crowd of hellos", scheduled: true, special: true, lo: 1, hi: 4}, // strangers that only send hellos
}

// PickDrainTwice is the pick of a drain that is requested once more when the patience of the engine ends. Drawn picks
// are smaller.
const PickDrainTwice = 1000

// String returns the name, as in plans and summaries.
func (f Fault) String() string {
	if f == 0 || f >= FaultCount {
		return fmt.Sprintf("fault %d", uint8(f))
	}
	return faultInfos[f].name
}

// MarshalText returns the name.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses a name. The error lists all names.
func (f *Fault) UnmarshalText(text []byte) error {
	for _, k := range Faults() {
		if faultInfos[k].name == string(text) {
			*f = k
			return nil
		}
	}
	var names []string
	for _, k := range Faults() {
		names = append(names, k.String())
	}
	return fmt.Errorf("fault %q is unknown: use one of %s", text, strings.Join(names, ", "))
}

// IsScheduled reports whether the fault has an instant in a plan. A fault that is not scheduled has a rate.
func (f Fault) IsScheduled() bool { return f < FaultCount && faultInfos[f].scheduled }

// Faults returns all kinds of faults, in the order of their numbers.
func Faults() []Fault {
	all := make([]Fault, 0, FaultCount)
	for f := Fault(1); f < FaultCount; f++ {
		all = append(all, f)
	}
	return all
}

// IsCalm reports whether the fault also strikes in profile calm: an engine may do so, or the fault needs another fault.
func (f Fault) IsCalm() bool { return faultInfos[f].calm }
