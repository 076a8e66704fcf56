package postmortem

import (
	"math/bits"

	"github.com/kvferry/kvferry/effects"
)

// A Trace records the last events that a machine was given and the last effects that were carried out for the machine,
// in order. Only numbers are recorded, so that an entry costs a few nanoseconds and keeps no memory alive. A Trace
// belongs to a single goroutine.
type Trace struct {
	entries []entry // a ring; its length is a power of two
	total   uint64  // the number of entries that were ever recorded
}

// An entry is an event or effect. The meaning of a, b and c is defined by the form of the kind.
type entry struct { // of events only
	at      effects.Time // events only
	a, b, c uint64
	peer    [4]byte
	kind    kind
	code    effects.Code
	flag    bool
}

// NewTrace returns a Trace that keeps size entries, or up to twice as many.
func NewTrace(size int) *Trace {
	return &Trace{entries: make([]entry, 1<<bits.Len(uint(max(size, 1)-1)))}
}

func (t *Trace) nextEntry() *entry {
	e := &t.entries[t.total&uint64(len(t.entries)-1)]
	t.total++
	return e
}

// lastEntries returns the recorded entries, oldest first, and the number of earlier entries.
func (t *Trace) lastEntries() (kept []entry, before uint64) {
	size := uint64(len(t.entries))
	if t.total <= size {
		return t.entries[:t.total], 0
	}
	from := t.total % size
	return append(append([]entry(nil), t.entries[from:]...), t.entries[:from]...), t.total - size
}

// Lines returns the recorded entries, oldest first, each as a JSON object with the names and numbers that a report has.
func (t *Trace) Lines() []string {
	kept, _ := t.lastEntries()
	var lines []string
	for i := range kept {
		lines = append(lines, string(kept[i].renderEntry()))
	}
	return lines
}

// A kind is a type of event or effect.
type kind uint8

const (
	kindOther kind = iota
	kindTick
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
	kindCopyDone
	kindSettled
	kindLanded
	kindScattered
	kindVerified
	kindRevoked
	kindDropped

	kindOpen // effects from here on
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
	kindCopy
	kindStore
	kindVerify
	kindCancel
	kindConfirm
	kindScatter
	kindDeliver
	kindReturn
	kindObserve
	kindCount
)

// A form has the names of the fields of a kind in a report. A field without a name is not reported.
type form struct {
	name, a, b, c, flag string
	code, peer          bool
}

var forms = [kindCount]form{
	kindOther:        {name: "other"},
	kindTick:         {name: "Tick"},
	kindCommand:      {name: "Command", a: "ticket"},
	kindReceived:     {name: "Received", a: "conn", b: "request", c: "bytes"},
	kindOpened:       {name: "Opened", a: "corr", b: "conn", code: true},
	kindConnLost:     {name: "ConnLost", a: "conn"},
	kindReplied:      {name: "Replied", a: "corr", c: "bytes"},
	kindUnanswered:   {name: "Unanswered", a: "corr", code: true},
	kindSendDone:     {name: "SendDone", a: "corr", code: true},
	kindImported:     {name: "Imported", a: "corr", b: "link", code: true},
	kindLinkLost:     {name: "LinkLost", a: "link", peer: true},
	kindTransferDone: {name: "TransferDone", a: "corr", b: "observed_at", flag: "settled", code: true},
	kindCopyDone:     {name: "CopyDone", a: "corr", b: "observed_at", flag: "settled", code: true},
	kindSettled:      {name: "Settled", a: "corr", code: true},
	kindLanded:       {name: "Landed", a: "landing", b: "grant", c: "pages", flag: "complete", peer: true},
	kindScattered:    {name: "Scattered", a: "corr", code: true},
	kindVerified:     {name: "Verified", a: "corr", b: "corrupt", c: "pages"},
	kindRevoked:      {name: "Revoked", a: "grant"},
	kindDropped:      {name: "Dropped", a: "link"},

	kindOpen:     {name: "Open", a: "corr", b: "channel", c: "port"},
	kindClose:    {name: "Close", a: "conn"},
	kindSend:     {name: "Send", a: "corr", b: "conn", c: "bytes"},
	kindPost:     {name: "Post", a: "corr", b: "conn", c: "bytes"},
	kindReply:    {name: "Reply", a: "request", c: "bytes"},
	kindImport:   {name: "Import", a: "corr", peer: true},
	kindDrop:     {name: "Drop", a: "link"},
	kindPublish:  {name: "Publish", c: "pages"},
	kindGrant:    {name: "Grant", a: "grant", c: "pages", flag: "read", peer: true},
	kindRevoke:   {name: "Revoke", a: "grant"},
	kindTransfer: {name: "Transfer", a: "corr", b: "grant", c: "pages", flag: "read", peer: true},
	kindCopy:     {name: "Copy", a: "corr", c: "pages"},
	kindStore:    {name: "Store", a: "page", c: "bytes"},
	kindVerify:   {name: "Verify", a: "corr", c: "pages"},
	kindCancel:   {name: "Cancel", a: "corr"},
	kindConfirm:  {name: "Confirm", a: "landing", code: true},
	kindScatter:  {name: "Scatter", a: "corr", b: "ticket", c: "pages"},
	kindDeliver:  {name: "Deliver", a: "ticket", b: "left", c: "pages", flag: "held", code: true},
	kindReturn:   {name: "Return", a: "ticket"},
	kindObserve:  {name: "Observe", a: "fact", b: "id", c: "count", code: true, peer: true},
}

// RecordEvent records an event just before the machine processes it.
func (t *Trace) RecordEvent(now effects.Time, ev effects.Event) {
	e := t.nextEntry()
	e.setEvent(ev)
	e.at = now
}

// RecordEffect records an effect just before the effect is carried out.
func (t *Trace) RecordEffect(ef effects.Effect) { t.nextEntry().setEffect(ef) }

func (e *entry) setEvent(ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Tick:
		*e = entry{kind: kindTick}
	case *effects.Command:
		*e = entry{kind: kindCommand, a: uint64(ev.Ticket)}
	case *effects.Received:
		*e = entry{kind: kindReceived, a: uint64(ev.Conn), b: uint64(ev.Request), c: uint64(len(ev.Body))}
	case *effects.Opened:
		*e = entry{kind: kindOpened, a: uint64(ev.Corr), b: uint64(ev.Conn), code: ev.Code}
	case *effects.ConnLost:
		*e = entry{kind: kindConnLost, a: uint64(ev.Conn)}
	case *effects.Replied:
		*e = entry{kind: kindReplied, a: uint64(ev.Corr), c: uint64(len(ev.Body))}
	case *effects.Unanswered:
		*e = entry{kind: kindUnanswered, a: uint64(ev.Corr), code: ev.Code}
	case *effects.SendDone:
		*e = entry{kind: kindSendDone, a: uint64(ev.Corr), code: ev.Code}
	case *effects.Imported:
		*e = entry{kind: kindImported, a: uint64(ev.Corr), b: uint64(ev.Link), code: ev.Code}
	case *effects.LinkLost:
		*e = entry{kind: kindLinkLost, a: uint64(ev.Link), peer: namePrefix(ev.Peer)}
	case *effects.TransferDone:
		*e = entry{kind: kindTransferDone, a: uint64(ev.Corr), b: uint64(ev.At), flag: ev.Settled, code: ev.Code}
	case *effects.CopyDone:
		*e = entry{kind: kindCopyDone, a: uint64(ev.Corr), b: uint64(ev.At), flag: ev.Settled, code: ev.Code}
	case *effects.Settled:
		*e = entry{kind: kindSettled, a: uint64(ev.Corr), code: ev.Code}
	case *effects.Landed:
		*e = entry{kind: kindLanded, a: uint64(ev.Landing), b: uint64(ev.Grant), c: uint64(len(ev.Pages)),
			flag: ev.Complete, peer: namePrefix(ev.Peer)}
	case *effects.Scattered:
		*e = entry{kind: kindScattered, a: uint64(ev.Corr), code: ev.Code}
	case *effects.Verified:
		*e = entry{kind: kindVerified, a: uint64(ev.Corr), b: uint64(ev.Corrupt), c: uint64(len(ev.Pages))}
	case *effects.Revoked:
		*e = entry{kind: kindRevoked, a: uint64(ev.Grant)}
	case *effects.Dropped:
		*e = entry{kind: kindDropped, a: uint64(ev.Link)}
	default:
		*e = entry{}
	}
}

func (e *entry) setEffect(ef effects.Effect) {
	switch ef := ef.(type) {
	case *effects.Open:
		*e = entry{kind: kindOpen, a: uint64(ef.Corr), b: uint64(ef.Channel), c: uint64(ef.Addr.Port)}
	case *effects.Close:
		*e = entry{kind: kindClose, a: uint64(ef.Conn)}
	case *effects.Send:
		*e = entry{kind: kindSend, a: uint64(ef.Corr), b: uint64(ef.Conn), c: uint64(len(ef.Body))}
	case *effects.Post:
		*e = entry{kind: kindPost, a: uint64(ef.Corr), b: uint64(ef.Conn), c: uint64(len(ef.Body))}
	case *effects.Reply:
		*e = entry{kind: kindReply, a: uint64(ef.Request), c: uint64(len(ef.Body))}
	case *effects.Import:
		*e = entry{kind: kindImport, a: uint64(ef.Corr), peer: namePrefix(ef.Peer)}
	case *effects.Drop:
		*e = entry{kind: kindDrop, a: uint64(ef.Link)}
	case *effects.Publish:
		*e = entry{kind: kindPublish, c: uint64(len(ef.Pages))}
	case *effects.Grant:
		*e = entry{kind: kindGrant, a: uint64(ef.ID), c: uint64(len(ef.Pages)), flag: ef.Read, peer: namePrefix(ef.Peer)}
	case *effects.Revoke:
		*e = entry{kind: kindRevoke, a: uint64(ef.Grant)}
	case *effects.Transfer:
		*e = entry{kind: kindTransfer, a: uint64(ef.Corr), b: uint64(ef.Grant), c: uint64(len(ef.Pairs)),
			flag: ef.Read, peer: namePrefix(ef.Peer)}
	case *effects.Copy:
		*e = entry{kind: kindCopy, a: uint64(ef.Corr), c: uint64(len(ef.Pairs))}
	case *effects.Store:
		*e = entry{kind: kindStore, a: uint64(ef.Page.Index), c: uint64(len(ef.Bytes))}
	case *effects.Verify:
		*e = entry{kind: kindVerify, a: uint64(ef.Corr), c: uint64(len(ef.Pages))}
	case *effects.Cancel:
		*e = entry{kind: kindCancel, a: uint64(ef.Corr)}
	case *effects.Confirm:
		*e = entry{kind: kindConfirm, a: uint64(ef.Landing), code: ef.Code}
	case *effects.Scatter:
		*e = entry{kind: kindScatter, a: uint64(ef.Corr), b: uint64(ef.Ticket), c: uint64(len(ef.Pages))}
	case *effects.Deliver:
		*e = entry{kind: kindDeliver, a: uint64(ef.Ticket), b: uint64(ef.Left), c: uint64(len(ef.Pages)),
			flag: ef.Held, code: ef.Code}
	case *effects.Return:
		*e = entry{kind: kindReturn, a: uint64(ef.Ticket)}
	case *effects.Observe:
		*e = entry{kind: kindObserve, a: uint64(ef.Fact), b: ef.ID, c: uint64(ef.Count), code: ef.Code,
			peer: namePrefix(ef.Peer)}
	default:
		*e = entry{}
	}
}

// namePrefix returns as much of a name as logs show.
func namePrefix(name effects.Incarnation) [4]byte { return [4]byte(name[:4]) }
