package plan

import (
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
	WantRecall
)

// Wants is above every kind of command that has a name of its own.
const Wants = int(WantRecall) + 1

//kvferry:table
var wantNames = [Wants]string{"none", "reserve", "put", "release", "abort", "get", "unpin", "contains", "abandon",
	"drain", "conflict", "fetch", "look", "recall"}

const unnamedWant = "command"

func (w Want) String() string {
	if int(w) < Wants {
		return wantNames[w]
	}
	return unnamedWant + strconv.Itoa(int(w))
}

// wantNamed is the kind of commands of that name.
func wantNamed(name string) (Want, bool) {
	if x := slices.Index(wantNames[1:], name); x >= 0 {
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
	return w == WantReserve || w == WantPut || w == WantRelease || w == WantRecall
}
