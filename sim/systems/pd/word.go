package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// ProtoVersion is the version of our extensions that strangers speak.
const ProtoVersion = link.VersionMax

// A Word is a kind of message that only its sender may say: it names who says it and to whom, as those two know each
// other and nobody else does.
type Word struct {
	Read func(b []byte, d draw.Of) (Said, bool)            // false: it is none of these
	Harm func(to *world.Node) (on effects.Channel, _ bool) // where a false one is said to; nil, false: as any
}

// Said is one that was read, whose names may be changed before it is written again.
type Said struct {
	From, To *protocol.UUID // nil: it names nobody, so nobody says it
	Write    func() []byte
}

// words are PD's own.
//
//kvferry:table
var words = []Word{{Read: readAlloc}, {Read: readOffer}, {Read: readDone, Harm: isRead}, {Read: readRenewal},
	{Read: readEnd, Harm: receives}}

// readAlloc reads commits, aborts, and requests that carry their chunks.
func readAlloc(b []byte, _ draw.Of) (s Said, ok bool) {
	var m protocol.AllocRequest
	if !protocol.MayBe(b, protocol.TagAllocRequest, &WireLimits) || m.Decode(b, &WireLimits) != nil ||
		len(m.Ext.Commit)+len(m.Ext.Abort)+len(m.Ext.Carried) == 0 {
		return s, false
	}
	if m.HasExt {
		s.From, s.To = &m.Ext.Incarnation, &m.Ext.To
	}
	m.Ext.Version, s.Write = ProtoVersion, func() []byte { return m.Append(nil) }
	return s, true
}

func readOffer(b []byte, _ draw.Of) (s Said, ok bool) {
	var m protocol.PullReadyNotif
	if !protocol.MayBe(b, protocol.TagPullReadyNotif, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	if m.HasExt {
		s.From, s.To = &m.Ext.Incarnation, &m.Ext.To
	}
	m.Ext.Version, s.Write = ProtoVersion, func() []byte { return m.Append(nil) }
	return s, true
}

// readDone reads that a read has ended, and how. One that was refused says so with a code: without it the same words
// say that all was read, so a stranger that repeats it with that field out of order says something new.
func readDone(b []byte, _ draw.Of) (s Said, ok bool) {
	var m protocol.PullDoneSignal
	if !protocol.MayBe(b, protocol.TagPullDoneSignal, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	if m.HasExt {
		s.From, s.To = &m.Ext.Incarnation, &m.Ext.To
	}
	m.Ext.Version, s.Write = ProtoVersion, func() []byte { return m.Append(nil) }
	return s, true
}

// readRenewal reads what asks for more time. That all of it is over, it says at times.
func readRenewal(b []byte, d draw.Of) (s Said, ok bool) {
	var m protocol.RenewRequest
	if !protocol.MayBe(b, protocol.TagRenewRequest, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	if m.Version = ProtoVersion; d.Again().Permille(500) {
		m.Grants, m.Done = nil, m.Grants
	}
	return Said{&m.Incarnation, &m.To, func() []byte { return m.Append(nil) }}, true
}

// readEnd reads how a request ended. Anybody may say so without a name: that counts for a request that no peer sends.
func readEnd(b []byte, _ draw.Of) (s Said, ok bool) {
	var m protocol.EndRequest
	if !protocol.MayBe(b, protocol.TagEndRequest, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	m.Version = ProtoVersion
	return Said{&m.Incarnation, &m.To, func() []byte { return m.Append(nil) }}, true
}

// isRead is where a sender is told that its pages were read.
func isRead(to *world.Node) (on effects.Channel, harms bool) {
	return effects.ChannelDone, slices.Contains(to.Listens, effects.ChannelDone)
}

// receives is where a receiver is asked for pages.
func receives(to *world.Node) (on effects.Channel, harms bool) {
	return effects.ChannelAlloc, to.Receives()
}

// read finds the word that a message is, of PD's or of some flow.
func (all Flows) read(b []byte, d draw.Of) (*Word, Said) {
	for i := range words {
		if s, ok := words[i].Read(b, d); ok {
			return &words[i], s
		}
	}
	for _, f := range all {
		for i := range f.Words {
			if s, ok := f.Words[i].Read(b, d); ok {
				return &f.Words[i], s
			}
		}
	}
	return nil, Said{}
}
