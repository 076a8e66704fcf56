package sim

import (
	"fmt"
	"strings"
)

// A Fault is one kind of thing that goes wrong, or that an engine does against
// expectation. Each has an intensity of its own in the plan; each is counted by its
// name in [Result.Faults].
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

	faultKinds
)

type faultForm struct {
	name      string
	scheduled bool
}

var faultForms = [faultKinds]faultForm{
	FaultCrash:        {"crash", true},
	FaultPause:        {"pause", true},
	FaultCutConn:      {"connection cut", true},
	FaultCutLink:      {"link cut", true},
	FaultNoise:        {"noise", true},
	FaultRequestLost:  {"request lost", false},   // its connection is silently dead
	FaultReplyLost:    {"reply lost", false},     // likewise
	FaultUnnoticed:    {"loss unnoticed", false}, // nobody is told of a lost connection
	FaultImport:       {"import failed", false},
	FaultPushRefused:  {"push refused", false},
	FaultDMA:          {"dma failed", false},        // a transfer stops half-way
	FaultLateStore:    {"late store", false},        // on a leased plane, by up to seconds
	FaultRevokeHeldUp: {"revoke held up", false},    // on a leased plane, while faults last
	FaultAbort:        {"command aborted", false},   // by its engine
	FaultAgain:        {"released again", false},    // what was released already
	FaultAbandon:      {"request abandoned", false}, // by the reader's engine
}

// String is the name, as in plans and summaries.
func (f Fault) String() string {
	if f == 0 || f >= faultKinds {
		return fmt.Sprintf("fault %d", uint8(f))
	}
	return faultForms[f].name
}

// MarshalText gives the name.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText takes a name; the error lists all of them.
func (f *Fault) UnmarshalText(text []byte) error {
	for k := Fault(1); k < faultKinds; k++ {
		if faultForms[k].name == string(text) {
			*f = k
			return nil
		}
	}
	return fmt.Errorf("fault %q is unknown: use one of %s", text, strings.Join(faultNames(), ", "))
}

func faultNames() []string {
	var names []string
	for _, form := range faultForms[1:] {
		names = append(names, form.name)
	}
	return names
}
