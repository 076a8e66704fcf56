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
	KindRequestArrives   // a request reaches its server
	KindReplyArrives     // a reply reaches its client
	KindProxyPost        // a one-way message reaches the proxy
	KindSubmit           // a transfer leaves its driver's queue
	KindTransferRequest  // a push request reaches the owner of the pages
	KindCopy             // the owner copies half a page
	KindStore            // hardware stores half a page
	KindLoad             // hardware loads half a page
	KindPeerDeathNoticed // the node that imported a peer notices the peer's death
	KindPostArrives      // a one-way message reaches its destination
	kindMove             // a device copies half a page to the host pool
	KindUnmap            // the owner's mapping is destroyed
	kindPeerLinkLost     // the owner notices that a peer's link is lost
	// Actions of engines.
	KindVanillaReply // a reply reaches a plain sender
	KindVanillaStore // a plain sender stores half a page
	KindVanillaLoad  // a plain reader loads half a page
	KindStartJob
	KindPagesFilled
	KindFetchJob
	KindReleasePages
	KindAbortCommand
	// Faults.
	KindCrash
	kindTrap
	KindRestart
	KindPause
	KindResume
	KindCutConn
	KindCutLink
	KindNoise
	kindScheduledFault
	KindConflict
	KindExit
	KindRankFailed      // a rank fails alone
	KindPlanesClosed    // the planes of the failed rank are closed
	KindPoolUnreachable // nothing can reach the memory of the failed rank any more
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
	kindStartCopy
	KindPhase
	// What the drivers and the hardware of planes of communicators do between events.
	KindCommTick
	kindCommSubmit          // a batch leaves its driver's queue
	kindCommStep            // hardware moves half a page of a batch
	KindCommBatchEnded      // a batch has ended
	KindCommFormCheck       // an initiator checks whether a communicator is formed
	kindCommAbort           // the initiator's stream is aborted
	kindCommProofLate       // the proof of a teardown takes long
	kindCommProof           // the proof is available, or will never be
	KindCommToInitiator     // a message of the target arrives at the initiator
	kindCommChannelLost     // the channel has ended
	kindCommHardwareStopped // the hardware of a dead process has stopped
	KindCommToTarget        // a message of the initiator arrives at the target
	KindCommChannelEnded    // the channel has ended, at the target
	kindCommEndCreated      // the target's end of an epoch is created
	kindCommEndDestroyed    // the target's end of an epoch is destroyed
	kindCommMargin          // the margin for accesses in flight of the peer's hardware is over
	kindCommRestart         // an operator restarts a process with memory that is never proven free
	// Actions of users' engines.
	KindItem
	// Actions of engines in processes of their own, and what reaches their agents.
	KindAttached
	KindStoreCarried // an effect that was added later than the effects above
	kindVerify       // the same
	KindVerified     // an event of machines that was added later than the events above
	kindCount
)

// IsForProcess reports whether a delivery is addressed to a process: no later incarnation receives the delivery, and a
// frozen process receives the delivery later.
func (k Kind) IsForProcess() bool {
	return k < KindCrash || k >= KindCommTick && k <= kindCommRestart || k == KindVerified
}

// IsEvent reports whether a delivery is an event of a machine.
func (k Kind) IsEvent() bool { return k <= KindDropped || k == KindVerified }

// isPlaneWork reports whether a delivery is work of a plane's threads, which continues until the plane is closed.
func (k Kind) isPlaneWork() bool {
	return k == KindSubmit || k == KindTransferRequest || k == KindCopy || k == kindMove || k == KindUnmap || k == kindPeerLinkLost
}

// lineForm describes how a line of the journal is printed: its name and the names of its numbers.
type lineForm struct {
	Name    string
	A, B, C string
}

// LineForms holds the form of each kind. An empty name hides the number.
var LineForms = [kindCount]lineForm{
	KindTick: {"Tick", "", "", ""}, KindCommand: {"Command", "ticket", "command", ""},
	KindReceived: {"Received", "conn", "channel", "request"}, KindOpened: {"Opened", "corr", "conn", "code"},
	KindConnLost: {"ConnLost", "conn", "", ""}, KindReplied: {"Replied", "corr", "conn", ""},
	KindUnanswered: {"Unanswered", "corr", "code", ""}, KindSendDone: {"SendDone", "corr", "code", ""},
	KindImported: {"Imported", "corr", "code", "link"}, KindLinkLost: {"LinkLost", "link", "peer", ""},
	KindTransferDone: {"TransferDone", "corr", "code", "settled"}, KindSettled: {"Settled", "corr", "code", ""},
	KindLanded: {"Landed", "landing", "grant", "pages"}, KindRevoked: {"Revoked", "grant", "", ""},
	KindScattered:      {"Scattered", "corr", "ticket", "code"},
	kindCopyDone:       {"CopyDone", "corr", "code", "settled"},
	KindDropped:        {"Dropped", "link", "", ""},
	KindRequestArrives: {"request-arrives", "conn", "corr", ""}, KindReplyArrives: {"reply-arrives", "conn", "corr", ""},
	KindProxyPost: {"proxy-post", "from", "request", "missing"}, KindSubmit: {"submit", "transfer", "pair", ""},
	KindTransferRequest: {"transfer-request", "transfer", "", ""}, KindCopy: {"copy", "transfer", "pair", "half"},
	KindStore: {"store", "transfer", "pair", "half"}, KindLoad: {"load", "transfer", "pair", "half"},
	KindPeerDeathNoticed: {"peer-death-noticed", "link", "", ""}, KindPostArrives: {"post-arrives", "conn", "", ""},
	KindUnmap:        {"unmap", "grant", "", ""},
	kindMove:         {"device-copy", "copy", "pair", "half"},
	kindPeerLinkLost: {"peer-link-lost", "peer", "incarnation", ""},
	KindStartJob:     {"start-job", "job", "", ""}, KindPagesFilled: {"pages-filled", "job", "batch", ""},
	KindFetchJob: {"fetch-job", "job", "", ""}, KindReleasePages: {"release-pages", "ticket", "", ""},
	KindAbortCommand: {"abort-command", "ticket", "", ""},
	KindCrash:        {"CRASH", "incarnation", "", ""}, kindTrap: {"trap", "effect", "skip", ""},
	KindRestart: {"RESTART", "incarnation", "", ""},
	KindPause:   {"PAUSE", "until", "", ""}, KindResume: {"resume", "", "", ""}, KindCutConn: {"CUT conn", "conn", "", ""},
	KindCutLink: {"CUT link", "link", "", ""}, KindNoise: {"NOISE", "channel", "bytes", ""},
	KindVanillaReply: {"vanilla-reply", "job", "grant", ""}, KindVanillaStore: {"vanilla-store", "write", "half", ""},
	KindVanillaLoad:    {"vanilla-load", "read", "", ""},
	kindScheduledFault: {"FAULT", "fault", "ns", ""}, KindConflict: {"conflict", "ticket", "kind", ""},
	KindExit:       {"EXIT", "incarnation", "", ""},
	KindRankFailed: {"RANK FAILED", "incarnation", "", ""}, KindPlanesClosed: {"planes-closed", "incarnation", "", ""},
	KindPoolUnreachable: {"pool-unreachable", "incarnation", "", ""},
	KindOpen:            {"Open", "corr", "channel", "port"}, kindClose: {"Close", "conn", "", ""},
	KindSend: {"Send", "corr", "conn", "bytes"}, KindPost: {"Post", "corr", "conn", "bytes"},
	KindReply: {"Reply", "request", "bytes", ""}, kindImport: {"Import", "corr", "peer", ""},
	kindDrop: {"Drop", "link", "", ""}, KindPublish: {"Publish", "pages", "first", "generation"},
	KindGrant: {"Grant", "grant", "pages", "first"}, KindRevoke: {"Revoke", "grant", "", ""},
	KindTransfer: {"Transfer", "corr", "grant", "pairs"}, KindCancel: {"Cancel", "corr", "", ""},
	KindConfirm: {"Confirm", "landing", "code", ""}, KindDeliver: {"Deliver", "ticket", "code", "pages"},
	KindReturn: {"Return", "ticket", "", ""}, KindObserve: {"Observe", "fact", "code", "id"},
	kindScatter: {"Scatter", "corr", "ticket", "first"}, kindStartCopy: {"Copy", "corr", "pages", "first"},
	KindStoreCarried: {"Store", "page", "generation", "bytes"},
	kindVerify:       {"Verify", "corr", "pages", "first"},
	KindVerified:     {"Verified", "corr", "pages", "corrupt"},
	KindPhase:        {"==== phase", "", "", ""},
	KindCommTick:     {"comm-tick", "link", "", ""}, kindCommSubmit: {"comm-submit", "link", "", ""},
	kindCommStep: {"comm-step", "link", "batch", "step"}, KindCommBatchEnded: {"comm-batch-ended", "link", "epoch", "ok"},
	KindCommFormCheck: {"comm-form-check", "link", "epoch", "try"}, kindCommAbort: {"comm-abort", "link", "epoch", ""},
	kindCommProofLate: {"comm-proof-late", "link", "epoch", ""}, kindCommProof: {"comm-proof", "link", "epoch", "missing"},
	KindCommToInitiator: {"comm-to-initiator", "link", "epoch", "message"}, kindCommChannelLost: {"comm-channel-lost", "link", "", ""},
	kindCommHardwareStopped: {"comm-hardware-stopped", "link", "", ""}, KindCommToTarget: {"comm-to-target", "link", "epoch", "message"},
	KindCommChannelEnded: {"comm-channel-ended", "link", "proves", ""}, kindCommEndCreated: {"comm-end-created", "link", "epoch", ""},
	kindCommEndDestroyed: {"comm-end-destroyed", "link", "epoch", ""}, kindCommMargin: {"comm-margin-over", "link", "epoch", ""},
	kindCommRestart: {"comm-restart", "", "", ""},
	KindItem:        {"item", "item", "", ""},
	KindAttached:    {"attached", "kind", "place", ""},
}

// Entry is a line of the journal, which consists of numbers only, because numbers are cheap to keep.
type Entry struct {
	At      int64
	Kind    Kind
	Node    int32
	A, B, C uint64
}

// A RunObserver observes a run and changes nothing in it.
type RunObserver interface {
	// RecordLine receives a line of the journal.
	RecordLine(e Entry)
	// RecordBytes receives the message that the last line is about.
	RecordBytes(b []byte)
	// RecordReason receives the details of a failure that the last line reports.
	RecordReason(why *effects.Why)
	// RecordMark receives the name of a mark: the machine of the node passed it in its present step. The marks of a step come
	// before the lines of its effects.
	RecordMark(node int32, name string)
	// AfterDelivery is called after each delivery.
	AfterDelivery()
	// RecordStrike is called when a drawn fault strikes.
	RecordStrike(f plan.Fault, about plan.Subject)
	// RecordViolation is called when a promise is broken.
	RecordViolation(f *Failure, args []any)
}

// journal is the event log. The journal keeps a rolling hash over all lines, and the last lines themselves.
type journal struct {
	Hash     uint64
	SentHash uint64 // like Hash, but without the bytes that machines receive; kept if KeepsSentHash is set
	lines    [keptLines]Entry
	Count    uint64

	KeepsSentHash bool
	Sink          func(string) // receives each line, as for replay --log; may be nil
	// FactName returns the name of a fact in the system of a node. If FactName is nil, all facts have the names of
	// ranks.
	FactName func(node int32, f effects.Fact) string
	Observer RunObserver // may be nil
}

// keptLines is the number of lines that are kept for a failure.
const keptLines = 64

// AddLine adds a line to the journal.
func (j *journal) AddLine(at int64, k Kind, node int32, a, b, c uint64) {
	j.Hash = draw.Mix(draw.Mix(j.Hash^uint64(at), uint64(k)<<32|uint64(uint32(node))), draw.Mix(a, b)^c)
	if j.KeepsSentHash {
		j.SentHash = draw.Mix(draw.Mix(j.SentHash^uint64(at), uint64(k)<<32|uint64(uint32(node))), draw.Mix(a, b)^c)
	}
	j.lines[j.Count%keptLines] = Entry{at, k, node, a, b, c}
	j.Count++
	if j.Sink != nil {
		j.Sink(j.fullText(j.lines[(j.Count-1)%keptLines]))
	}
	if j.Observer != nil {
		j.Observer.RecordLine(Entry{at, k, node, a, b, c})
	}
}

// addSentBytes adds the content of a message that a machine sends to the hashes.
func (j *journal) addSentBytes(b []byte) {
	h := j.addBytes(b)
	if j.KeepsSentHash {
		j.SentHash = draw.Mix(j.SentHash, h)
	}
}

// addBytes adds the content of a message that a machine receives to the hash, and returns the hash of the content.
func (j *journal) addBytes(b []byte) uint64 {
	h, all := uint64(len(b)), b
	for len(b) >= 8 {
		h = draw.Mix(h, uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24|
			uint64(b[4])<<32|uint64(b[5])<<40|uint64(b[6])<<48|uint64(b[7])<<56)
		b = b[8:]
	}
	for _, c := range b {
		h = draw.Mix(h, uint64(c))
	}
	j.Hash = draw.Mix(j.Hash, h)
	if j.Observer != nil {
		j.Observer.RecordBytes(all)
	}
	return h
}

// addReason adds the details of a failure, which may be nil, to the last line. They are in no hash.
func (j *journal) addReason(why *effects.Why) {
	if j.Observer != nil && why != nil {
		j.Observer.RecordReason(why)
	}
}

// lastLines returns the last lines.
func (j *journal) lastLines() []string {
	n := min(j.Count, keptLines)
	out := make([]string, 0, n)
	for i := j.Count - n; i < j.Count; i++ {
		out = append(out, j.fullText(j.lines[i%keptLines]))
	}
	return out
}

// fullText returns the text of an entry.
func (j *journal) fullText(e Entry) string {
	return fmt.Sprintf("%12.6f s  %-5s  %s", float64(e.At)/1e9, NodeName(e.Node), j.LineText(e))
}

// LineText returns the text of an entry without its time and node.
func (j *journal) LineText(e Entry) string {
	f := LineForms[e.Kind]
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
		case "command":
			fmt.Fprintf(&b, " %s", plan.CommandKind(part.value))
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

// NodeName returns the name of a node in the log; negative numbers are the world itself.
func NodeName(id int32) string {
	if id < 0 {
		return "world"
	}
	return fmt.Sprintf("n%d", id)
}
