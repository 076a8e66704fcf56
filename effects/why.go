package effects

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Why explains what the code of an outcome leaves open: which peer was involved, which stage the operation had
// reached, what both ends have configured, and what the peer reports. A machine creates a Why only for a failure, and
// never changes it afterwards, so a driver may keep a Why. A Why is for people: no machine reads a Why to decide
// anything.
//
// A Why contains no secret: at most the first 4 bytes of an incarnation's name leave a node in a Why, and no grant and
// no token.
type Why struct {
	Addr   Addr        // where the peer listens; empty if the peer called this rank, or if there is no peer
	Name   string      // the name that a calling peer gives itself: a claim, not a proof of identity
	Peer   Incarnation // the peer's incarnation, if known
	Stage  Stage       // the stage that the operation had reached
	Field  string      // the field that does not match, by its name in the configuration or the message
	Ours   string      // the value at this rank, or the value that would have been accepted
	Theirs string      // the value at the peer, or the value that was given
	Said   string      // the peer's own text, sanitized
	Remedy string      // what helps, if RemedyOf the code does not state it
}

// Stage is the point that a command or a peer's request had reached.
type Stage uint8

// The stages.
const (
	StageNone     Stage = iota // not stated
	StageCommand               // the command itself; no peer was involved
	StageMemory                // waiting for pages of this node
	StageConnect               // a connection to the peer
	StageHello                 // the first message of the handshake
	StagePlane                 // selecting a data plane that both ends have
	StageBuffers               // the last message of the handshake
	StageAsk                   // requesting pages: AllocRequest
	StageOffer                 // offering pages to be read: PullReadyNotif
	StageTransfer              // bytes in flight
	StageCommit                // reporting that the bytes have arrived
	StageScatter               // the engine's device code
	StageProxy                 // notifying the proxy
	StageLink                  // between requests
	StageEnd                   // reporting how a request ended
	stageCount
)

// stageNames are stable: they appear in logs and JSON.
//
//kvferry:table
var stageNames = [stageCount]string{
	"", "command", "memory", "connect", "hello", "plane", "buffers", "allocation", "offer", "transfer", "commit", "scatter",
	"proxy", "link", "end",
}

// String returns the stable name of the stage.
func (s Stage) String() string {
	if s < stageCount {
		return stageNames[s]
	}
	return "invalid"
}

// remedies state what helps if only the code is known. docs/errors.md has them in full.
//
//kvferry:table
var remedies = [CodeCount]string{
	Expired:     "retry, or raise the timeout if the peer is well",
	Refused:     "see the log of the peer, which says by which rule",
	PeerLost:    "retry: a peer that comes back is found again",
	Unreachable: "check that it runs, and host, ports and transfer_channel of both ends",
	NoMemory:    "retry later, or enlarge the pool of the end that says so",
	TooLarge:    "send smaller batches, or raise the bound named",
	TooMany:     "retry later, or raise the bound",
	Malformed:   "look for another version, or another kind of program, at that address",
	Stale:       "retry: the next attempt shakes hands anew",
	Mismatch:    "make the configurations of both ends agree",
	Faulted:     "retry; the log has the device's own words",
	NotFound:    "compute it",
	Invalid:     "mend the caller",
	Draining:    "use another node: that one is shutting down",
	Ended:       "use a new request id",
	Withdrawn:   "retry",
	Unsupported: "run kvferry at both ends, of one version",
	BackedOff:   "use another receiver, or retry later",
	Lapsed:      "compute it; raise retention above the longest wait in the engine's queue",
	Failed:      "an assertion failed in this rank, which does nothing any more: use another node, and look at its report",

	SenderFailed: "compute it; the sender's log says more",
	NotSent:      "compute it; make both engines name chunks alike: the model, its revision, dtype, chunk size and hash",
	Forbidden:    "give the identity its role in the policy of the end that refuses, or restart a process whose identity changed",
	Corrupt:      "compute it; if it happens again, test the memory and the network of both ends",
}

// RemedyOf returns what helps if only the code is known, or an empty text if nothing needs to be done.
func RemedyOf(c Code) string {
	if int(c) < len(remedies) {
		return remedies[c]
	}
	return ""
}

// PeerName returns a short name of the peer: the address on which the peer listens, or else the name that the peer
// gives itself, or else the start of the peer's incarnation. The result is empty if the Why names no peer.
func (w *Why) PeerName() string {
	switch {
	case w.Addr.Host != "":
		return w.Addr.String()
	case w.Name != "":
		return w.Name
	case w.Peer != Incarnation{}:
		return hex.EncodeToString(w.Peer[:4])
	}
	return ""
}

// Facts returns, in one line, the stage, the field with both values, and the peer's own text, but neither the peer's
// name nor the remedy. The result may be empty.
func (w *Why) Facts() string {
	var parts []string
	if w.Field != "" || w.Ours != "" || w.Theirs != "" {
		here, there := " here", " there"
		if w.PeerName() == "" {
			here, there = "", ""
		}
		parts = append(parts, w.valuesText(here, there))
	}
	if w.Said != "" {
		parts = append(parts, "it says "+strconv.Quote(w.Said))
	}
	text := strings.Join(parts, "; ")
	if w.Stage > StageCommand {
		return joinTexts(w.Stage.String(), ": ", text)
	}
	return text
}

// Reason returns the text that is sent to a peer: the field with both values, and the Remedy of this Why. The remedy
// that follows from the code alone is left out, because the peer knows that remedy. The text has at most PeerTextMax
// bytes, and is empty if the code alone explains the failure.
func (w *Why) Reason() []byte {
	text := []byte(joinTexts(w.valuesText(" here", " there"), "; ", w.Remedy))
	if isPlain(text) {
		return text
	}
	return []byte(SanitizeText(text))
}

// valuesText returns the field and the two values. If no peer was involved, here and there are empty, and the text
// names only the given value and the expected value.
func (w *Why) valuesText(here, there string) string {
	switch {
	case w.Ours == "" && w.Theirs == "":
		return w.Field
	case w.Theirs == "":
		return joinTexts(w.Field, " is ", w.Ours+here)
	case w.Ours == "":
		return joinTexts(w.Field, " is ", w.Theirs+there)
	case here == "":
		return joinTexts(w.Field, " is ", w.Theirs+", want "+w.Ours)
	}
	return joinTexts(w.Field, " is ", w.Ours+here+", "+w.Theirs+there)
}

// Text returns a line with the peer, the Facts and the remedy. If the Why has no Remedy, the remedy of the code is
// used.
func (w *Why) Text(c Code) string {
	remedy := w.Remedy
	if remedy == "" {
		remedy = RemedyOf(c)
	}
	return joinTexts(joinTexts(w.PeerName(), ", ", w.Facts()), "; ", remedy)
}

// joinTexts puts the separator between two texts if neither is empty.
func joinTexts(a, separator, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}

// String returns host:port as in a URL: an IPv6 host is in brackets.
func (a Addr) String() string {
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(a.Port))
}

// PeerTextMax bounds the part of a peer's text that is kept and reported, in bytes.
const PeerTextMax = 240

// SanitizeText returns a peer's text about itself or about a failure in a form that is safe to show: one line of
// printable characters, at most PeerTextMax bytes. The text is for people only: no decision depends on the text.
func SanitizeText(b []byte) string {
	if isPlain(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(min(len(b), PeerTextMax))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if !isPrintable(r) {
			r = '?'
		}
		if s.Len()+utf8.RuneLen(r) > PeerTextMax {
			break
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// isPlain reports whether a text is short and consists of printable ASCII, as nearly all texts do. Such a text needs no
// sanitizing.
func isPlain(b []byte) bool {
	if len(b) > PeerTextMax {
		return false
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// isPrintable reports whether a rune is shown as itself, alone, in any terminal.
func isPrintable(r rune) bool {
	return r != utf8.RuneError && strconv.IsPrint(r) && (r < 0x80 || !isConfusing(r))
}

// isConfusing reports whether a rune changes the direction of text, joins other runes, or has no width.
func isConfusing(r rune) bool {
	return r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff
}
