package effects

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Why says what the code of an outcome leaves open: whom it was about, how far things were, what both ends have
// there, and what the peer says of it. A machine makes one only where something failed, and nobody changes it
// afterwards: a driver may keep it. It is for people. No machine ever reads one to decide anything.
//
// Nothing in it is a secret: no name of a life beyond its first 4 bytes leaves a node in one, no grant and no token.
type Why struct {
	Addr   Addr        // where the peer listens; empty where it called us, or where there is none
	Name   string      // what a peer that called us calls itself: its word, and no proof of who it is
	Peer   Incarnation // its life, where that is known
	Stage  Stage       // how far it was
	Field  string      // what does not fit, as the configuration or the message calls it
	Ours   string      // what it is here, or what would have been taken
	Theirs string      // what it is there, or what was given
	Said   string      // the peer's own words, as Words leaves them
	Remedy string      // what helps, where RemedyOf the code would not say it
}

// Stage is how far a command or a peer's request was.
type Stage uint8

// Stages.
const (
	StageNone     Stage = iota // not said
	StageCommand               // the command itself: nobody else had part in it
	StageMemory                // waiting for pages of this node
	StageConnect               // a connection to the peer
	StageHello                 // the first message of the handshake
	StagePlane                 // a data plane that both ends have
	StageBuffers               // the last message of the handshake
	StageAsk                   // asking for pages: AllocRequest
	StageOffer                 // offering pages to be read: PullReadyNotif
	StageTransfer              // bytes on their way
	StageCommit                // the word that they have arrived
	StageScatter               // the engine's device code
	StageProxy                 // telling the proxy
	StageLink                  // between requests
	StageEnd                   // telling how a request ended
	stageEnd
)

// stageNames are stable: they stand in logs and JSON.
//
//kvferry:table
var stageNames = [stageEnd]string{
	"", "command", "memory", "connect", "hello", "plane", "buffers", "allocation", "offer", "transfer", "commit", "scatter",
	"proxy", "link", "end",
}

// String returns the stable name of the stage.
func (s Stage) String() string {
	if s < stageEnd {
		return stageNames[s]
	}
	return "invalid"
}

// remedies say what helps where nothing more is known than the code. They are those of docs/errors.md, in short.
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
}

// RemedyOf says what helps where nothing more is known than the code. It is empty where there is nothing to do.
func RemedyOf(c Code) string {
	if int(c) < len(remedies) {
		return remedies[c]
	}
	return ""
}

// Who names the peer in one word: where it listens, else what it calls itself, else its life; empty where there is
// none.
func (w *Why) Who() string {
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

// Facts is all but who it was and what to do, in one line: the stage, the field with both values, the peer's words. It
// may be empty.
func (w *Why) Facts() string {
	var parts []string
	if w.Field != "" || w.Ours != "" || w.Theirs != "" {
		here, there := " here", " there"
		if w.Who() == "" {
			here, there = "", ""
		}
		parts = append(parts, w.values(here, there))
	}
	if w.Said != "" {
		parts = append(parts, "it says "+strconv.Quote(w.Said))
	}
	text := strings.Join(parts, "; ")
	if w.Stage > StageCommand {
		return join(w.Stage.String(), ": ", text)
	}
	return text
}

// Reason is what a peer is told of it: the field with both values, and what helps unless that is what helps with the
// code, which it knows. It has at most WordsMax bytes, and none where the code says it all.
func (w *Why) Reason() []byte {
	text := []byte(join(w.values(" here", " there"), "; ", w.Remedy))
	if plain(text) {
		return text
	}
	return []byte(Words(text))
}

// values names the field, and what it is. Where no peer had part in it there is no here and there, only what was given
// and what is wanted.
func (w *Why) values(here, there string) string {
	switch {
	case w.Ours == "" && w.Theirs == "":
		return w.Field
	case w.Theirs == "":
		return join(w.Field, " is ", w.Ours+here)
	case w.Ours == "":
		return join(w.Field, " is ", w.Theirs+there)
	case here == "":
		return join(w.Field, " is ", w.Theirs+", want "+w.Ours)
	}
	return join(w.Field, " is ", w.Ours+here+", "+w.Theirs+there)
}

// Text is one line: who, Facts, and what helps.
func (w *Why) Text(c Code) string {
	remedy := w.Remedy
	if remedy == "" {
		remedy = RemedyOf(c)
	}
	return join(join(w.Who(), ", ", w.Facts()), "; ", remedy)
}

// join puts a separator between two texts of which neither is empty.
func join(a, separator, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}

// String is host:port, as a URL has it.
func (a Addr) String() string {
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(a.Port))
}

// WordsMax bounds what is kept, and told, of a peer's words, in bytes.
const WordsMax = 240

// Words is what a peer says of itself or of a failure, fit to be shown: one line, nothing that is not printed, at most
// WordsMax bytes. It is never more than that: nothing follows from it.
func Words(b []byte) string {
	if plain(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(min(len(b), WordsMax))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if !printable(r) {
			r = '?'
		}
		if s.Len()+utf8.RuneLen(r) > WordsMax {
			break
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// plain says whether Words leaves a text as it is because it is short and has nothing but what ASCII prints, as nearly
// all have.
func plain(b []byte) bool {
	if len(b) > WordsMax {
		return false
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// printable says whether a rune is shown as itself, alone, in any terminal.
func printable(r rune) bool {
	return r != utf8.RuneError && strconv.IsPrint(r) && (r < 0x80 || !confusing(r))
}

// confusing says whether a rune turns the direction of text, joins others, or has no width.
func confusing(r rune) bool {
	return r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff
}
