package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Want is what a command of an engine is for.
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

// Wants is room for the kinds of commands that have names of their own: these, and those of [NewWant].
const Wants = 32

var wantNames = [Wants]string{"none", "reserve", "put", "release", "abort", "get", "unpin", "contains", "abandon",
	"drain", "conflict", "fetch", "look"}

// wantSends says of those of systems whether they are about pages that an engine fills.
var wantSends [Wants]bool

// NewWant names a kind of commands of one system. Draws go by its number, so that is the system's for good. It is for
// variables of packages: after those are there, nobody may name more.
func NewWant(number uint8, name string, ofSender bool) Want {
	if number < uint8(wantsHere) || int(number) >= Wants || wantNames[number] != "" {
		panic(fmt.Sprintf("BUG: commands %q have number %d: give one of their own from %d to %d", name, number, wantsHere,
			Wants-1))
	}
	wantNames[number], wantSends[number] = name, ofSender
	return Want(number)
}

const unnamedWant = "command"

// Named says whether some system gives such commands.
func (w Want) Named() bool { return w > 0 && int(w) < Wants && wantNames[w] != "" }

func (w Want) String() string {
	if int(w) < Wants && wantNames[w] != "" {
		return wantNames[w]
	}
	return unnamedWant + strconv.Itoa(int(w))
}

// wantNamed is the kind of commands of that name.
func wantNamed(name string) (Want, bool) {
	if x := slices.Index(wantNames[1:], name); x >= 0 && name != "" {
		return Want(x + 1), true
	}
	x, ok := numberAfter(name, unnamedWant)
	return Want(x), ok && Want(x).String() == name
}

// numberAfter is the number of what has no other name, after a word that says what it is.
func numberAfter(name, word string) (uint8, bool) {
	digits, ok := strings.CutPrefix(name, word)
	n, err := strconv.ParseUint(digits, 10, 8)
	return uint8(n), ok && err == nil
}

// OfSender says whether w is about pages that an engine fills.
func (w Want) OfSender() bool {
	return w == WantReserve || w == WantPut || w == WantRelease || int(w) < Wants && wantSends[w]
}
