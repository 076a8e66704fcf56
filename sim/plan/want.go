package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Want is a kind of command that engines give.
type Want uint8

const (
	WantReserve Want = iota + 1
	WantPut
	WantRelease
	WantAbort
	WantGet
	WantUnpin
	WantContains
	WantAbandon
	WantDrain
	WantConflict
	WantFetch
	WantLook
	wantsHere
)

// CommandKindLimit is greater than the number of every kind that has a name, whether the kind is declared in this
// package or with [NewWant].
const Wants = 32

var wantNames = [Wants]string{"none", "reserve", "put", "release", "abort", "get", "unpin", "contains", "abandon",
	"drain", "conflict", "fetch", "look"}

// wantSends records which of the kinds of systems concern pages that an engine fills.
var wantSends [Wants]bool

// NewCommandKind declares a kind of command of a system. Draws depend on the number, which therefore must never change.
// NewCommandKind may only be called to initialize package variables. It panics if the number is in use or out of range.
func NewWant(number uint8, name string, ofSender bool) Want {
	if number < uint8(wantsHere) || int(number) >= Wants || wantNames[number] != "" {
		panic(fmt.Sprintf("BUG: commands %q have number %d: give one of their own from %d to %d", name, number, wantsHere,
			Wants-1))
	}
	wantNames[number], wantSends[number] = name, ofSender
	return Want(number)
}

// unnamedWant is the beginning of the names of kinds that were given no name.
const unnamedWant = "command"

// Named reports whether a system gives commands of this kind.
func (w Want) Named() bool { return w > 0 && int(w) < Wants && wantNames[w] != "" }

// String returns the name of the kind.
func (w Want) String() string {
	if int(w) < Wants && wantNames[w] != "" {
		return wantNames[w]
	}
	return unnamedWant + strconv.Itoa(int(w))
}

// wantNamed returns the kind with a name.
func wantNamed(name string) (Want, bool) {
	if x := slices.Index(wantNames[1:], name); x >= 0 && name != "" {
		return Want(x + 1), true
	}
	x, ok := numberAfter(name, unnamedWant)
	return Want(x), ok && Want(x).String() == name
}

// numberAfter returns the number in a name that consists of a word and a number.
func numberAfter(name, word string) (uint8, bool) {
	digits, ok := strings.CutPrefix(name, word)
	n, err := strconv.ParseUint(digits, 10, 8)
	return uint8(n), ok && err == nil
}

// OfSender reports whether commands of this kind concern pages that an engine fills.
func (w Want) OfSender() bool {
	return w == WantReserve || w == WantPut || w == WantRelease || int(w) < Wants && wantSends[w]
}
