package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// ProtoVersion is the version of our extensions that strangers use.
const ProtoVersion = link.VersionMax

// A SenderMessage is a kind of message that only the sender may send: the message names the sender and the receiver by
// the names that only the sender and the receiver know.
type SenderMessage struct {
	// Decode decodes a message. The result is false if the message is not of this kind.
	Decode func(b []byte, d draw.Value) (DecodedMessage, bool)
	// HarmChannel returns the channel on which a false message of this kind could do harm to a node. If the function is
	// nil or returns false, a default channel is used.
	HarmChannel func(to *world.Node) (on effects.Channel, _ bool)
}

// DecodedMessage is a decoded message. The names may be changed before the message is encoded again.
type DecodedMessage struct {
	From, To *protocol.UUID // nil: the message names no sender and no receiver
	Encode   func() []byte
}

// senderMessages are the kinds of messages of PD itself.
//
//kvferry:table
var senderMessages = []SenderMessage{{Decode: readAlloc}, {Decode: readOffer}, {Decode: readDone, HarmChannel: doneChannelOf},
	{Decode: readRenewal},
	{Decode: readEnd, HarmChannel: allocChannelOf}}

// readAlloc reads commits, aborts, and allocation requests that carry their chunks.
func readAlloc(b []byte, _ draw.Value) (s DecodedMessage, ok bool) {
	var m protocol.AllocRequest
	if !protocol.MayHaveTag(b, protocol.TagAllocRequest, &WireLimits) || m.Decode(b, &WireLimits) != nil ||
		len(m.Ext.Commit)+len(m.Ext.Abort)+len(m.Ext.Carried) == 0 {
		return s, false
	}
	if m.HasExt {
		s.From, s.To = &m.Ext.Incarnation, &m.Ext.To
	}
	m.Ext.Version, s.Encode = ProtoVersion, func() []byte { return m.Append(nil) }
	return s, true
}

// readOffer reads an offer of chunks.
func readOffer(b []byte, _ draw.Value) (s DecodedMessage, ok bool) {
	var m protocol.PullReadyNotif
	if !protocol.MayHaveTag(b, protocol.TagPullReadyNotif, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	if m.HasExt {
		s.From, s.To = &m.Ext.Incarnation, &m.Ext.To
	}
	m.Ext.Version, s.Encode = ProtoVersion, func() []byte { return m.Append(nil) }
	return s, true
}

// readDone reads a done message, which says that a read has ended, and how. The done message of a refused offer has a
// code. Without the code the same message says that everything was read, so a stranger that repeats the message with
// this field damaged sends a new message.
func readDone(b []byte, _ draw.Value) (s DecodedMessage, ok bool) {
	var m protocol.PullDoneSignal
	if !protocol.MayHaveTag(b, protocol.TagPullDoneSignal, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	if m.HasExt {
		s.From, s.To = &m.Ext.Incarnation, &m.Ext.To
	}
	m.Ext.Version, s.Encode = ProtoVersion, func() []byte { return m.Append(nil) }
	return s, true
}

// readRenewal reads a request that renews leases. In some draws, readRenewal changes the
// message so that it reports all of these leases as done.
func readRenewal(b []byte, d draw.Value) (s DecodedMessage, ok bool) {
	var m protocol.RenewRequest
	if !protocol.MayHaveTag(b, protocol.TagRenewRequest, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	if m.Version = ProtoVersion; d.Rehash().ChancePermille(500) {
		m.Grants, m.Done = nil, m.Grants
	}
	return DecodedMessage{&m.Incarnation, &m.To, func() []byte { return m.Append(nil) }}, true
}

// readEnd reads an end-of-request message. Any process may send the message without a name. The message then counts for
// a request that no peer sends.
func readEnd(b []byte, _ draw.Value) (s DecodedMessage, ok bool) {
	var m protocol.EndRequest
	if !protocol.MayHaveTag(b, protocol.TagEndRequest, &WireLimits) || m.Decode(b, &WireLimits) != nil {
		return s, false
	}
	m.Version = ProtoVersion
	return DecodedMessage{&m.Incarnation, &m.To, func() []byte { return m.Append(nil) }}, true
}

// doneChannelOf returns the channel on which a sender is notified that pages were read, and whether the node listens on
// the channel.
func doneChannelOf(to *world.Node) (channel effects.Channel, listens bool) {
	return effects.ChannelDone, slices.Contains(to.Listens, effects.ChannelDone)
}

// allocChannelOf returns the channel on which a receiver is asked for pages, and whether the node is a receiver.
func allocChannelOf(to *world.Node) (channel effects.Channel, listens bool) {
	return effects.ChannelAlloc, to.IsReceiver()
}

// decodeSenderMessage decodes a message of a kind of PD or of a flow. The result is nil if the message is of no such
// kind.
func (all Flows) decodeSenderMessage(b []byte, d draw.Value) (*SenderMessage, DecodedMessage) {
	for i := range senderMessages {
		if s, ok := senderMessages[i].Decode(b, d); ok {
			return &senderMessages[i], s
		}
	}
	for _, f := range all {
		for i := range f.SenderMessages {
			if s, ok := f.SenderMessages[i].Decode(b, d); ok {
				return &f.SenderMessages[i], s
			}
		}
	}
	return nil, DecodedMessage{}
}
