package world

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Kind is the kind of a delivery or of a line in the journal.
type Kind uint8

const (
	// Events of machines.
	KindTick Kind = iota + 1
	KindCommand
	KindReceived
	KindOpened
	KindConnLost
	KindReplied
	KindUnanswered
	KindSendDone
	KindImported
	KindLinkLost
	KindTransferDone
	KindSettled
	KindLanded
	KindRevoked
	KindScattered
	kindCopyDone
	KindDropped
	// What drivers and planes do between events.
	KindArrive  // a request reaches its server
	KindAnswer  // a reply reaches its client
	KindPosted  // a one-way message reaches the proxy
	KindSubmit  // a transfer leaves its driver's queue
	KindAsk     // a push request reaches the owner of the pages
	KindCopy    // the owner copies half a page
	KindStore   // hardware stores half a page
	KindLoad    // hardware loads half a page
	KindNoticed // the node that imported a peer notices the peer's death
	KindTold    // a one-way message reaches its destination
	kindMove    // a device copies half a page to the host pool
	KindUnmap   // the owner's mapping is destroyed
	kindSever   // the owner notices that a peer's link is lost
	// Actions of engines.
	KindPlain      // a reply reaches a plain sender
	KindPlainStore // a plain sender stores half a page
	KindPlainLoad  // a plain reader loads half a page
	KindStart
	KindFilled
	KindFetch
	KindLetGo
	KindAbort
	// Faults.
	KindCrash
	kindTrap
	KindRestart
	KindPause
	KindThaw
	KindCutConn
	KindCutLink
	KindNoise
	kindMischief
	KindConflict
	KindExit
	KindAlone // a rank fails alone
	KindShut  // the planes of the failed rank are closed
	KindKept  // nothing can reach the memory of the failed rank any more
	// Effects, in the journal only.
	KindOpen
	kindClose
	KindSend
	KindPost
	KindReply
	kindImport
	kindDrop
	KindPublish
	KindGrant
	KindRevoke
	KindTransfer
	KindCancel
	KindConfirm
	KindDeliver
	KindReturn
	KindObserve
	kindScatter
	kindCopyOut
	KindPhase
	// What the drivers and the hardware of planes of communicators do between events.
	KindCommTick
	kindCommSubmit  // a batch leaves its driver's queue
	kindCommStep    // hardware moves half a page of a batch
	KindCommEnded   // a batch has ended
	KindCommForm    // an initiator checks whether a communicator is formed
	kindCommAbort   // the initiator's stream is aborted
	kindCommStuck   // the proof of a teardown takes long
	kindCommProof   // the proof is available, or will never be
	KindCommHear    // a message of the target arrives at the initiator
	kindCommLost    // the channel has ended
	kindCommDead    // the hardware of a dead process has stopped
	KindCommSay     // a message of the initiator arrives at the target
	KindCommEnd     // the channel has ended, at the target
	kindCommMade    // the target's end of an epoch is created
	kindCommLed     // the target's end of an epoch is destroyed
	kindCommMargin  // the margin for accesses in flight of the peer's hardware is over
	kindCommRestart // an operator restarts a process with memory that is never proven free
	// Actions of users' engines.
	KindItem
	// Actions of engines in processes of their own, and what reaches their agents.
	KindAttached
	KindStoreIn // an effect that was added later than the effects above
	kinds
)

// IsForProcess reports whether a delivery is addressed to a process: no later incarnation receives the delivery, and a
// frozen process receives the delivery later.
func (k Kind) OfProcess() bool { return k < KindCrash || k >= KindCommTick && k <= kindCommRestart }

// planes reports whether a delivery is work of a plane's threads, which continues until the plane is closed.
func (k Kind) planes() bool {
	return k == KindSubmit || k == KindAsk || k == KindCopy || k == kindMove || k == KindUnmap || k == kindSever
}

// form describes how a line of the journal is printed: its name and the names of its numbers.
type form struct {
	Name    string
	A, B, C string
}

// Forms holds the form of each kind. An empty name hides the number.
var Forms = [kinds]form{
	KindTick: {"Tick", "", "", ""}, KindCommand: {"Command", "ticket", "want", ""},
	KindReceived: {"Received", "conn", "channel", "request"}, KindOpened: {"Opened", "corr", "conn", "code"},
	KindConnLost: {"ConnLost", "conn", "", ""}, KindReplied: {"Replied", "corr", "conn", ""},
	KindUnanswered: {"Unanswered", "corr", "code", ""}, KindSendDone: {"SendDone", "corr", "code", ""},
	KindImported: {"Imported", "corr", "code", "link"}, KindLinkLost: {"LinkLost", "link", "peer", ""},
	KindTransferDone: {"TransferDone", "corr", "code", "settled"}, KindSettled: {"Settled", "corr", "code", ""},
	KindLanded: {"Landed", "landing", "grant", "pages"}, KindRevoked: {"Revoked", "grant", "", ""},
	KindScattered: {"Scattered", "corr", "ticket", "code"},
	kindCopyDone:  {"CopyDone", "corr", "code", "settled"},
	KindDropped:   {"Dropped", "link", "", ""},
	KindArrive:    {"arrive", "conn", "corr", ""}, KindAnswer: {"answer", "conn", "corr", ""},
	KindPosted: {"posted", "from", "request", "missing"}, KindSubmit: {"submit", "transfer", "pair", ""},
	KindAsk: {"ask", "transfer", "", ""}, KindCopy: {"copy", "transfer", "pair", "half"},
	KindStore: {"store", "transfer", "pair", "half"}, KindLoad: {"load", "transfer", "pair", "half"},
	KindNoticed: {"noticed", "link", "", ""}, KindTold: {"told", "conn", "", ""}, KindUnmap: {"unmap", "grant", "", ""},
	kindMove:  {"move", "copying", "pair", "half"},
	kindSever: {"sever", "peer", "incarnation", ""},
	KindStart: {"start", "job", "", ""}, KindFilled: {"filled", "job", "batch", ""},
	KindFetch: {"fetch", "job", "", ""}, KindLetGo: {"let-go", "ticket", "", ""}, KindAbort: {"abort", "ticket", "", ""},
	KindCrash: {"CRASH", "incarnation", "", ""}, kindTrap: {"trap", "effect", "skip", ""},
	KindRestart: {"RESTART", "incarnation", "", ""},
	KindPause:   {"PAUSE", "until", "", ""}, KindThaw: {"resume", "", "", ""}, KindCutConn: {"CUT conn", "conn", "", ""},
	KindCutLink: {"CUT link", "link", "", ""}, KindNoise: {"NOISE", "channel", "bytes", ""},
	KindPlain: {"vanilla", "job", "grant", ""}, KindPlainStore: {"vanilla-store", "write", "half", ""},
	KindPlainLoad: {"vanilla-load", "read", "", ""},
	kindMischief:  {"FAULT", "fault", "ns", ""}, KindConflict: {"conflict", "ticket", "which", ""},
	KindExit:  {"EXIT", "incarnation", "", ""},
	KindAlone: {"FAILS ALONE", "incarnation", "", ""}, KindShut: {"shut", "incarnation", "", ""},
	KindKept: {"kept", "incarnation", "", ""},
	KindOpen: {"Open", "corr", "channel", "port"}, kindClose: {"Close", "conn", "", ""},
	KindSend: {"Send", "corr", "conn", "bytes"}, KindPost: {"Post", "corr", "conn", "bytes"},
	KindReply: {"Reply", "request", "bytes", ""}, kindImport: {"Import", "corr", "peer", ""},
	kindDrop: {"Drop", "link", "", ""}, KindPublish: {"Publish", "pages", "first", "generation"},
	KindGrant: {"Grant", "grant", "pages", "first"}, KindRevoke: {"Revoke", "grant", "", ""},
	KindTransfer: {"Transfer", "corr", "grant", "pairs"}, KindCancel: {"Cancel", "corr", "", ""},
	KindConfirm: {"Confirm", "landing", "code", ""}, KindDeliver: {"Deliver", "ticket", "code", "pages"},
	KindReturn: {"Return", "ticket", "", ""}, KindObserve: {"Observe", "fact", "code", "id"},
	kindScatter: {"Scatter", "corr", "ticket", "first"}, kindCopyOut: {"Copy", "corr", "pages", "first"},
	KindStoreIn:  {"Store", "page", "generation", "bytes"},
	KindPhase:    {"==== phase", "", "", ""},
	KindCommTick: {"comm-tick", "link", "", ""}, kindCommSubmit: {"comm-submit", "link", "", ""},
	kindCommStep: {"comm-step", "link", "batch", "step"}, KindCommEnded: {"comm-ended", "link", "epoch", "well"},
	KindCommForm: {"comm-form", "link", "epoch", "try"}, kindCommAbort: {"comm-abort", "link", "epoch", ""},
	kindCommStuck: {"comm-stuck", "link", "epoch", ""}, kindCommProof: {"comm-proof", "link", "epoch", "none"},
	KindCommHear: {"comm-hear", "link", "epoch", "message"}, kindCommLost: {"comm-lost", "link", "", ""},
	kindCommDead: {"comm-dead", "link", "", ""}, KindCommSay: {"comm-say", "link", "epoch", "message"},
	KindCommEnd: {"comm-end", "link", "proves", ""}, kindCommMade: {"comm-made", "link", "epoch", ""},
	kindCommLed: {"comm-led", "link", "epoch", ""}, kindCommMargin: {"comm-margin", "link", "epoch", ""},
	kindCommRestart: {"comm-restart", "", "", ""},
	KindItem:        {"item", "item", "", ""},
	KindAttached:    {"attached", "what", "whose", ""},
}

// Entry is a line of the journal, which consists of numbers only, because numbers are cheap to keep.
type Entry struct {
	At      int64
	Kind    Kind
	Node    int32
	A, B, C uint64
}

// A Witness observes a run and changes nothing in it.
type Witness interface {
	// Note receives a line of the journal.
	Note(e Entry)
	// Bytes receives the message that the last line is about.
	Bytes(b []byte)
	// Look is called after each delivery.
	Look()
	// Struck is called when a drawn fault strikes.
	Struck(f plan.Fault, about plan.Subject)
	// Violated is called when a promise is broken.
	Violated(f *Failure, args []any)
}

// journal is the event log. The journal keeps a rolling hash over all lines, and the last lines themselves.
type journal struct {
	Hash  uint64
	Said  uint64 // like Hash, but without the bytes that machines receive; kept if KeepsSentHash is set
	lines [journalKept]Entry
	Count uint64

	Compares bool
	Sink     func(string) // receives each line, as for replay --log; may be nil
	// FactName returns the name of a fact in the system of a node. If FactName is nil, all facts have the names of ranks.
	FactName func(node int32, f effects.Fact) string
	Rec      Witness // may be nil
}

// journalKept is the number of lines that are kept for a failure.
const journalKept = 64

// Note adds a line to the journal.
func (j *journal) Note(at int64, k Kind, node int32, a, b, c uint64) {
	j.Hash = draw.Mix(draw.Mix(j.Hash^uint64(at), uint64(k)<<32|uint64(uint32(node))), draw.Mix(a, b)^c)
	if j.Compares {
		j.Said = draw.Mix(draw.Mix(j.Said^uint64(at), uint64(k)<<32|uint64(uint32(node))), draw.Mix(a, b)^c)
	}
	j.lines[j.Count%journalKept] = Entry{at, k, node, a, b, c}
	j.Count++
	if j.Sink != nil {
		j.Sink(j.line(j.lines[(j.Count-1)%journalKept]))
	}
	if j.Rec != nil {
		j.Rec.Note(Entry{at, k, node, a, b, c})
	}
}

// bytes adds the content of a message that a machine sends to the hashes.
func (j *journal) bytes(b []byte) {
	h := j.heard(b)
	if j.Compares {
		j.Said = draw.Mix(j.Said, h)
	}
}

// heard adds the content of a message that a machine receives to the hash, and returns the hash of the content.
func (j *journal) heard(b []byte) uint64 {
	h, whole := uint64(len(b)), b
	for len(b) >= 8 {
		h = draw.Mix(h, uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24|
			uint64(b[4])<<32|uint64(b[5])<<40|uint64(b[6])<<48|uint64(b[7])<<56)
		b = b[8:]
	}
	for _, c := range b {
		h = draw.Mix(h, uint64(c))
	}
	j.Hash = draw.Mix(j.Hash, h)
	if j.Rec != nil {
		j.Rec.Bytes(whole)
	}
	return h
}

// story returns the last lines.
func (j *journal) story() []string {
	n := min(j.Count, journalKept)
	out := make([]string, 0, n)
	for i := j.Count - n; i < j.Count; i++ {
		out = append(out, j.line(j.lines[i%journalKept]))
	}
	return out
}

// line returns the text of an entry.
func (j *journal) line(e Entry) string {
	return fmt.Sprintf("%12.6f s  %-5s  %s", float64(e.At)/1e9, LaneName(e.Node), j.Told(e))
}

// Told returns the text of an entry without its time and node.
func (j *journal) Told(e Entry) string {
	f := Forms[e.Kind]
	var b strings.Builder
	b.WriteString(f.Name)
	for _, part := range [...]struct {
		name  string
		value uint64
	}{{f.A, e.A}, {f.B, e.B}, {f.C, e.C}} {
		switch part.name {
		case "":
		case "code":
			fmt.Fprintf(&b, " %s", effects.Code(part.value))
		case "fault":
			fmt.Fprintf(&b, " %s", plan.Fault(part.value))
		case "fact":
			name := effects.Fact(part.value).String()
			if j.FactName != nil && e.Node >= 0 {
				name = j.FactName(e.Node, effects.Fact(part.value))
			}
			b.WriteString(" " + name)
		case "channel":
			fmt.Fprintf(&b, " %s", effects.Channel(part.value))
		case "want":
			fmt.Fprintf(&b, " %s", plan.Want(part.value))
		case "until":
			fmt.Fprintf(&b, " until=%.6fs", float64(part.value)/1e9)
		case "peer", "id":
			fmt.Fprintf(&b, " %s=%08x", part.name, uint32(part.value))
		default:
			fmt.Fprintf(&b, " %s=%d", part.name, part.value)
		}
	}
	return b.String()
}

// LaneName returns the name of a node in the log; negative numbers are the world itself.
func LaneName(id int32) string {
	if id < 0 {
		return "world"
	}
	return fmt.Sprintf("n%d", id)
}
