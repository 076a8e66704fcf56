package sim

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// kind is what a delivery or a line of the journal is about.
type kind uint8

const (
	// Events of machines.
	kindTick kind = iota + 1
	kindCommand
	kindReceived
	kindOpened
	kindConnLost
	kindReplied
	kindUnanswered
	kindSendDone
	kindImported
	kindLinkLost
	kindTransferDone
	kindSettled
	kindLanded
	kindRevoked
	kindScattered
	kindCopyDone
	kindDropped
	// What drivers and planes do between.
	kindArrive  // a request reaches its server
	kindAnswer  // a reply reaches its asker
	kindPosted  // a one-way message reaches the proxy
	kindSubmit  // a transfer leaves its driver's queue
	kindAsk     // a push request reaches the owner of the pages
	kindCopy    // the owner copies half a page
	kindStore   // hardware stores half a page
	kindLoad    // hardware loads half a page
	kindNoticed // a peer's death is noticed by who imported it
	kindTold    // a one-way message reaches the node it is for
	kindMove    // a device copies half a page to the host pool
	kindUnmap   // the owner's mapping is gone
	kindSever   // the owner notices that a peer's link is gone
	// What engines do.
	kindPlain      // a reply reaches a plain sender
	kindPlainStore // which stores half a page
	kindPlainLoad  // a plain reader loads half a page
	kindStart
	kindFilled
	kindFetch
	kindLetGo
	kindAbort
	// Faults.
	kindCrash
	kindTrap
	kindRestart
	kindPause
	kindThaw
	kindCutConn
	kindCutLink
	kindNoise
	kindMischief
	kindConflict
	kindExit
	kindAlone // a rank fails alone
	kindShut  // its planes are closed
	kindKept  // nothing reaches its memory any more
	// Effects, in the journal only.
	kindOpen
	kindClose
	kindSend
	kindPost
	kindReply
	kindImport
	kindDrop
	kindPublish
	kindGrant
	kindRevoke
	kindTransfer
	kindCancel
	kindConfirm
	kindDeliver
	kindReturn
	kindObserve
	kindScatter
	kindCopyOut
	kindPhase
	// What drivers and hardware of planes of communicators do between.
	kindCommTick
	kindCommSubmit  // a batch leaves its driver's queue
	kindCommStep    // hardware moves half a page of a batch
	kindCommEnded   // a batch has ended
	kindCommForm    // an initiator looks whether a communicator is there
	kindCommAbort   // its stream is aborted
	kindCommStuck   // the proof takes long
	kindCommProof   // it is there, or will not be
	kindCommHear    // a word of the target's
	kindCommLost    // the channel has ended
	kindCommDead    // the hardware of a dead process is at its end
	kindCommSay     // a word of an initiator's
	kindCommEnd     // the channel has ended, at the target
	kindCommMade    // the target's end is there
	kindCommLed     // and gone
	kindCommMargin  // what the peer's hardware was at has had its time
	kindCommRestart // somebody restarts what cannot be proven
	// What engines of users do.
	kindItem
	kinds
)

// ofProcess says whether a delivery is for a process: another life never gets it, a frozen one later.
func (k kind) ofProcess() bool { return k < kindCrash || k >= kindCommTick && k <= kindCommRestart }

// planes says whether a delivery is the work of a plane's threads, which goes on until the plane is closed.
func (k kind) planes() bool {
	return k == kindSubmit || k == kindAsk || k == kindCopy || k == kindMove || k == kindUnmap || k == kindSever
}

// form says how a line of the journal reads: its name and those of its numbers.
type form struct {
	name    string
	a, b, c string
}

var forms = [kinds]form{
	kindTick: {"Tick", "", "", ""}, kindCommand: {"Command", "ticket", "want", ""},
	kindReceived: {"Received", "conn", "channel", "request"}, kindOpened: {"Opened", "corr", "conn", "code"},
	kindConnLost: {"ConnLost", "conn", "", ""}, kindReplied: {"Replied", "corr", "conn", ""},
	kindUnanswered: {"Unanswered", "corr", "code", ""}, kindSendDone: {"SendDone", "corr", "code", ""},
	kindImported: {"Imported", "corr", "code", "link"}, kindLinkLost: {"LinkLost", "link", "peer", ""},
	kindTransferDone: {"TransferDone", "corr", "code", "settled"}, kindSettled: {"Settled", "corr", "code", ""},
	kindLanded: {"Landed", "landing", "grant", "pages"}, kindRevoked: {"Revoked", "grant", "", ""},
	kindScattered: {"Scattered", "corr", "ticket", "code"},
	kindCopyDone:  {"CopyDone", "corr", "code", "settled"},
	kindDropped:   {"Dropped", "link", "", ""},
	kindArrive:    {"arrive", "conn", "corr", ""}, kindAnswer: {"answer", "conn", "corr", ""},
	kindPosted: {"posted", "from", "request", "missing"}, kindSubmit: {"submit", "transfer", "pair", ""},
	kindAsk: {"ask", "transfer", "", ""}, kindCopy: {"copy", "transfer", "pair", "half"},
	kindStore: {"store", "transfer", "pair", "half"}, kindLoad: {"load", "transfer", "pair", "half"},
	kindNoticed: {"noticed", "link", "", ""}, kindTold: {"told", "conn", "", ""}, kindUnmap: {"unmap", "grant", "", ""},
	kindMove:  {"move", "copying", "pair", "half"},
	kindSever: {"sever", "peer", "life", ""},
	kindStart: {"start", "job", "", ""}, kindFilled: {"filled", "job", "batch", ""},
	kindFetch: {"fetch", "job", "", ""}, kindLetGo: {"let-go", "ticket", "", ""}, kindAbort: {"abort", "ticket", "", ""},
	kindCrash: {"CRASH", "life", "", ""}, kindTrap: {"trap", "effect", "skip", ""}, kindRestart: {"RESTART", "life", "", ""},
	kindPause: {"PAUSE", "until", "", ""}, kindThaw: {"thaw", "", "", ""}, kindCutConn: {"CUT conn", "conn", "", ""},
	kindCutLink: {"CUT link", "link", "", ""}, kindNoise: {"NOISE", "channel", "bytes", ""},
	kindPlain: {"plain", "job", "grant", ""}, kindPlainStore: {"plain-store", "write", "half", ""}, kindPlainLoad: {"plain-load", "read", "", ""},
	kindMischief: {"FAULT", "fault", "ns", ""}, kindConflict: {"conflict", "ticket", "which", ""}, kindExit: {"EXIT", "life", "", ""},
	kindAlone: {"FAILS ALONE", "life", "", ""}, kindShut: {"shut", "life", "", ""}, kindKept: {"kept", "life", "", ""},
	kindOpen: {"Open", "corr", "channel", "port"}, kindClose: {"Close", "conn", "", ""},
	kindSend: {"Send", "corr", "conn", "bytes"}, kindPost: {"Post", "corr", "conn", "bytes"},
	kindReply: {"Reply", "request", "bytes", ""}, kindImport: {"Import", "corr", "peer", ""},
	kindDrop: {"Drop", "link", "", ""}, kindPublish: {"Publish", "pages", "first", "generation"},
	kindGrant: {"Grant", "grant", "pages", "first"}, kindRevoke: {"Revoke", "grant", "", ""},
	kindTransfer: {"Transfer", "corr", "grant", "pairs"}, kindCancel: {"Cancel", "corr", "", ""},
	kindConfirm: {"Confirm", "landing", "code", ""}, kindDeliver: {"Deliver", "ticket", "code", "pages"},
	kindReturn: {"Return", "ticket", "", ""}, kindObserve: {"Observe", "fact", "code", "id"},
	kindScatter: {"Scatter", "corr", "ticket", "first"}, kindCopyOut: {"Copy", "corr", "pages", "first"},
	kindPhase:    {"==== phase", "", "", ""},
	kindCommTick: {"comm-tick", "link", "", ""}, kindCommSubmit: {"comm-submit", "link", "", ""},
	kindCommStep: {"comm-step", "link", "batch", "step"}, kindCommEnded: {"comm-ended", "link", "epoch", "well"},
	kindCommForm: {"comm-form", "link", "epoch", "try"}, kindCommAbort: {"comm-abort", "link", "epoch", ""},
	kindCommStuck: {"comm-stuck", "link", "epoch", ""}, kindCommProof: {"comm-proof", "link", "epoch", "none"},
	kindCommHear: {"comm-hear", "link", "epoch", "word"}, kindCommLost: {"comm-lost", "link", "", ""},
	kindCommDead: {"comm-dead", "link", "", ""}, kindCommSay: {"comm-say", "link", "epoch", "word"},
	kindCommEnd: {"comm-end", "link", "proves", ""}, kindCommMade: {"comm-made", "link", "epoch", ""},
	kindCommLed: {"comm-led", "link", "epoch", ""}, kindCommMargin: {"comm-margin", "link", "epoch", ""},
	kindCommRestart: {"comm-restart", "", "", ""},
	kindItem:        {"item", "item", "", ""},
}

// entry is one line of the journal: numbers only, so that keeping it costs nothing.
type entry struct {
	at      int64
	kind    kind
	node    int32
	a, b, c uint64
}

// journal is the event log: a rolling hash over all of it, and its last lines.
type journal struct {
	hash  uint64
	said  uint64 // the same without the bytes that machines are given; kept where compares is set
	lines [journalKept]entry
	count uint64

	compares bool
	sink     func(string) // replay --log; nil otherwise
	rec      *recorder    // nil: nobody looks at the run
}

const journalKept = 64

func (j *journal) note(at int64, k kind, node int32, a, b, c uint64) {
	j.hash = draw.Mix(draw.Mix(j.hash^uint64(at), uint64(k)<<32|uint64(uint32(node))), draw.Mix(a, b)^c)
	if j.compares {
		j.said = draw.Mix(draw.Mix(j.said^uint64(at), uint64(k)<<32|uint64(uint32(node))), draw.Mix(a, b)^c)
	}
	j.lines[j.count%journalKept] = entry{at, k, node, a, b, c}
	j.count++
	if j.sink != nil {
		j.sink(j.lines[(j.count-1)%journalKept].String())
	}
	if j.rec != nil {
		j.rec.note(entry{at, k, node, a, b, c})
	}
}

// bytes folds the content of a message that a machine sends into the hash.
func (j *journal) bytes(b []byte) {
	h := j.heard(b)
	if j.compares {
		j.said = draw.Mix(j.said, h)
	}
}

// heard folds the content of a message that a machine is given into the hash, and returns what that is.
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
	j.hash = draw.Mix(j.hash, h)
	if j.rec != nil {
		j.rec.bytes(whole)
	}
	return h
}

// story returns the last lines.
func (j *journal) story() []string {
	n := min(j.count, journalKept)
	out := make([]string, 0, n)
	for i := j.count - n; i < j.count; i++ {
		out = append(out, j.lines[i%journalKept].String())
	}
	return out
}

func (e entry) String() string {
	return fmt.Sprintf("%12.6f s  %-5s  %s", float64(e.at)/1e9, laneName(e.node), e.told())
}

// told is the line without its time and node.
func (e entry) told() string {
	f := forms[e.kind]
	var b strings.Builder
	b.WriteString(f.name)
	for _, part := range [...]struct {
		name  string
		value uint64
	}{{f.a, e.a}, {f.b, e.b}, {f.c, e.c}} {
		switch part.name {
		case "":
		case "code":
			fmt.Fprintf(&b, " %s", effects.Code(part.value))
		case "fault":
			fmt.Fprintf(&b, " %s", plan.Fault(part.value))
		case "fact":
			fmt.Fprintf(&b, " %s", effects.Fact(part.value))
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
