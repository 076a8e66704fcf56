package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CommandKind is a kind of command that engines give.
type CommandKind uint8

const (
	CommandReserve CommandKind = iota + 1
	CommandPut
	CommandRelease
	CommandAbort
	CommandGet
	CommandUnpin
	CommandContains
	CommandAbandon
	CommandDrain
	CommandConflict
	CommandFetch
	CommandLookup
	builtinKindEnd
)

// CommandKindLimit is greater than the number of every kind that has a name, whether the kind is declared in this
// package or with [NewCommandKind].
const CommandKindLimit = 32

var commandKindNames = [CommandKindLimit]string{"none", "reserve", "put", "release", "abort", "get", "unpin", "contains", "abandon",
	"drain", "conflict", "fetch", "look"}

// commandKindOfSender records which of the kinds of systems concern pages that an engine fills.
var commandKindOfSender [CommandKindLimit]bool

// NewCommandKind declares a kind of command of a system. Draws depend on the number, which therefore must never change.
// NewCommandKind may only be called to initialize package variables. It panics if the number is in use or out of range.
func NewCommandKind(number uint8, name string, ofSender bool) CommandKind {
	if number < uint8(builtinKindEnd) || int(number) >= CommandKindLimit || commandKindNames[number] != "" {
		panic(fmt.Sprintf("BUG: command kind %q has number %d: use an unused number from %d to %d", name, number, builtinKindEnd,
			CommandKindLimit-1))
	}
	commandKindNames[number], commandKindOfSender[number] = name, ofSender
	return CommandKind(number)
}

// unnamedKindPrefix is the beginning of the names of kinds that were given no name.
const unnamedKindPrefix = "command"

// IsNamed reports whether a system gives commands of this kind.
func (w CommandKind) IsNamed() bool {
	return w > 0 && int(w) < CommandKindLimit && commandKindNames[w] != ""
}

// String returns the name of the kind.
func (w CommandKind) String() string {
	if int(w) < CommandKindLimit && commandKindNames[w] != "" {
		return commandKindNames[w]
	}
	return unnamedKindPrefix + strconv.Itoa(int(w))
}

// findCommandKind returns the kind with a name.
func findCommandKind(name string) (CommandKind, bool) {
	if x := slices.Index(commandKindNames[1:], name); x >= 0 && name != "" {
		return CommandKind(x + 1), true
	}
	x, ok := numberAfter(name, unnamedKindPrefix)
	return CommandKind(x), ok && CommandKind(x).String() == name
}

// numberAfter returns the number in a name that consists of a word and a number.
func numberAfter(name, word string) (uint8, bool) {
	digits, ok := strings.CutPrefix(name, word)
	n, err := strconv.ParseUint(digits, 10, 8)
	return uint8(n), ok && err == nil
}

// IsOfSender reports whether commands of this kind concern pages that an engine fills.
func (w CommandKind) IsOfSender() bool {
	return w == CommandReserve || w == CommandPut || w == CommandRelease || int(w) < CommandKindLimit && commandKindOfSender[w]
}
