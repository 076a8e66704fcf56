package plan

import (
	"fmt"
	"strings"
)

// A Fault is one kind of thing that goes wrong, or that an engine does against
// expectation. Each has an intensity of its own, drawn for each seed; each is counted
// by its name in [Result.Faults].
type Fault uint8

// Faults. Scheduled ones have an instant in the plan; the others are drawn where they
// can happen, see strikes. New ones are added before faultKinds, with a row in
// faultForms: their numbers are part of what a seed means.
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
	FaultUnnoticed
	FaultImport
	FaultPushRefused
	FaultDMA
	FaultLateStore
	FaultRevokeHeldUp
	FaultAbort
	FaultAgain
	FaultAbandon
	FaultRefused

	// Scheduled.
	FaultTwice
	FaultFreeze
	FaultSlow
	FaultDrain
	FaultPartition
	FaultDeafPartition
	FaultFlapping
	FaultReset
	FaultHostile

	// Drawn on the fly.
	FaultHandshake
	FaultDelay
	FaultDoubled
	FaultCorruptRequest
	FaultCorruptReply
	FaultHalfPage
	FaultStall
	FaultEarly
	FaultConflict
	FaultRefill
	FaultHoard
	FaultDoneLost

	// Scheduled.
	FaultForged

	// Drawn on the fly.
	FaultPutOff

	// Scheduled.
	FaultGreedy
	FaultAlone

	// Of planes of communicators, drawn on the fly.
	FaultUnproven
	FaultEndStays
	FaultGoneEarly

	// Drawn on the fly.
	FaultForeign
	FaultRepeated

	// Scheduled.
	FaultCrowd

	FaultKinds // above every fault
)

// faultForm is what is to be known of a fault: its name in plans and summaries, and
// the intensities that a seed draws from. That is how many there are of a scheduled
// one, and for the others how often in a thousand occasions.
type faultForm struct {
	name      string
	scheduled bool
	lo, hi    int
	always    bool // drawn for each seed; the others are off in most
	pull      bool // only where senders offer their chunks to be read
	delay     bool // only where receivers keep such offers
	comm      bool // only on planes of communicators
	foreign   bool // only where encoders may be others'
	story     bool // only where a seed is about it
	calm      bool // profile calm keeps it: an engine may do so, or it needs another fault
}

var faultForms = [FaultKinds]faultForm{
	FaultCrash:   {name: "crash", scheduled: true, lo: 1, hi: 4},
	FaultPause:   {name: "pause", scheduled: true, lo: 1, hi: 4},
	FaultCutConn: {name: "connection cut", scheduled: true, lo: 1, hi: 8},
	FaultCutLink: {name: "link cut", scheduled: true, lo: 1, hi: 6},
	FaultNoise:   {name: "noise", scheduled: true, lo: 1, hi: 12},
	// A lost request or reply leaves its connection silently dead.
	FaultRequestLost: {name: "request lost", lo: 5, hi: 150},
	FaultReplyLost:   {name: "reply lost", lo: 5, hi: 150},
	// nobody is told of a lost connection
	FaultUnnoticed:   {name: "loss unnoticed", lo: 0, hi: 1000, always: true, calm: true},
	FaultImport:      {name: "import failed", lo: 5, hi: 100},
	FaultPushRefused: {name: "push refused", lo: 5, hi: 100},
	FaultDMA:         {name: "dma failed", lo: 10, hi: 300}, // it stops half-way
	// On leased planes only.
	FaultLateStore:    {name: "late store", lo: 10, hi: 300},
	FaultRevokeHeldUp: {name: "revoke held up", lo: 50, hi: 500},
	// Of engines.
	FaultAbort:   {name: "command aborted", lo: 20, hi: 400},
	FaultAgain:   {name: "released again", lo: 100, hi: 900, calm: true},
	FaultAbandon: {name: "request abandoned", lo: 50, hi: 500, calm: true},
	// Of control transports, for reasons of their own.
	FaultRefused: {name: "effect refused", lo: 5, hi: 80},

	FaultTwice:         {name: "double crash", scheduled: true, lo: 1, hi: 2},
	FaultFreeze:        {name: "frozen beyond its lease", scheduled: true, lo: 1, hi: 2},
	FaultSlow:          {name: "slow consumer", scheduled: true, lo: 1, hi: 3},
	FaultDrain:         {name: "drained", scheduled: true, lo: 1, hi: 2},
	FaultPartition:     {name: "partition", scheduled: true, lo: 1, hi: 3},
	FaultDeafPartition: {name: "one-way partition", scheduled: true, lo: 1, hi: 3}, // what it sends does not arrive
	FaultFlapping:      {name: "flapping partition", scheduled: true, lo: 1, hi: 2},
	FaultReset:         {name: "all connections reset", scheduled: true, lo: 1, hi: 3},
	FaultHostile:       {name: "hostile message", scheduled: true, lo: 2, hi: 20}, // a real one, changed, from a stranger

	FaultHandshake:      {name: "handshake refused", lo: 5, hi: 150}, // at any of its steps
	FaultDelay:          {name: "message delayed", lo: 5, hi: 150},   // by up to a second: others overtake it
	FaultDoubled:        {name: "notification doubled", lo: 10, hi: 300},
	FaultCorruptRequest: {name: "request corrupted", lo: 5, hi: 100},
	FaultCorruptReply:   {name: "reply corrupted", lo: 5, hi: 100},
	FaultHalfPage:       {name: "page half stored", lo: 5, hi: 100},
	FaultStall:          {name: "copy stalled", lo: 5, hi: 100}, // or the next submission, for up to seconds
	// a peer may go on reading pages that it cannot use any more
	FaultEarly:    {name: "settled while read", lo: 100, hi: 1000},
	FaultConflict: {name: "conflicting command", lo: 20, hi: 300},
	FaultRefill:   {name: "pages filled again", lo: 50, hi: 500},
	FaultHoard:    {name: "pages kept long", lo: 20, hi: 300}, // by an engine: others find none
	FaultDoneLost: {name: "done lost", pull: true, lo: 10, hi: 300},

	// by an engine, until offers may be over
	FaultPutOff: {name: "fetch put off", delay: true, lo: 100, hi: 600, calm: true},

	// a stranger says that an offer has ended
	FaultForged: {name: "done forged", pull: true, scheduled: true, lo: 2, hi: 20},

	FaultGreedy: {name: "greedy peer", scheduled: true, lo: 1, hi: 3}, // it shakes hands and asks for pages without end

	FaultUnproven:  {name: "communicator never proven gone", comm: true, lo: 5, hi: 60}, // its process is restarted
	FaultEndStays:  {name: "communicator stays", comm: true, lo: 20, hi: 300},           // at its target
	FaultGoneEarly: {name: "gone said early", comm: true, lo: 10, hi: 200},

	FaultAlone: {name: "rank failed alone", scheduled: true, lo: 1, hi: 3}, // its process goes on, and its memory stays

	FaultForeign:  {name: "message in other forms", foreign: true, lo: 20, hi: 500}, // as another encoder writes it
	FaultRepeated: {name: "field given twice", foreign: true, lo: 5, hi: 60},        // of a request

	FaultCrowd: {name: "crowd of hellos", scheduled: true, story: true, lo: 1, hi: 4}, // strangers who want nothing else
}

// DrainedAgain is the pick of a drain whose engine says so once more as its patience ends; less is drawn.
const DrainedAgain = 1000

// String is the name, as in plans and summaries.
func (f Fault) String() string {
	if f == 0 || f >= FaultKinds {
		return fmt.Sprintf("fault %d", uint8(f))
	}
	return faultForms[f].name
}

// MarshalText gives the name.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText takes a name; the error lists all of them.
func (f *Fault) UnmarshalText(text []byte) error {
	for _, k := range Faults() {
		if faultForms[k].name == string(text) {
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

// Scheduled says whether it has an instant in a plan; the others have a rate.
func (f Fault) Scheduled() bool { return f < FaultKinds && faultForms[f].scheduled }

// Faults are all kinds, in the order of their numbers.
func Faults() []Fault {
	all := make([]Fault, 0, FaultKinds)
	for f := Fault(1); f < FaultKinds; f++ {
		all = append(all, f)
	}
	return all
}

// Calm says whether it also strikes where all else goes well: an engine may do so, or it needs another fault.
func (f Fault) Calm() bool { return faultForms[f].calm }
