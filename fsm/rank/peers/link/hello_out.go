package link

import (
	"math"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// This file is the client side of the handshake: the hello of LMCache's HIXL transfer channel, with kvferry's
// extensions. The functions here build and decode messages. The results are passed to startImport and to
// finishHandshake (handshake.go), which know no messages.

// clientMessages is reused memory for the messages of the client side.
type clientMessages struct {
	initReply    protocol.HixlInitResponse    `snap:"scratch"`
	buffersReply protocol.HixlMemInfoResponse `snap:"scratch"`
	lookupReply  protocol.P2PInitSideRetMsg   `snap:"scratch"`
	readyReply   protocol.HixlReadyResponse   `snap:"scratch"`
	ownBuffers   []protocol.BufferInfo        `snap:"scratch"`
	planeBlobs   [][]byte                     `snap:"scratch"`
}

// sendHello sends the hello.
func (c *outboundView) sendHello() {
	m := protocol.HixlInitRequest{LocalID: []byte(c.cfg.LocalID), EngineID: []byte(c.cfg.LocalID), HasExt: true}
	c.cfg.fillHello(&m.Ext, c.x.selfID)
	m.Ext.Stamps.ClockNS = int64(c.v.Now)
	c.p.conn.Send(c.v, c.openCorr(kindHello), c.v.Out.Cut(m.Append(c.v.Out.Arena())))
}

// handleHelloReply handles the reply to a hello. A peer that refuses, does not fit or sends another message fails the
// attempt.
func (c *outboundView) handleHelloReply(s *clientMessages, wire *protocol.Limits, body []byte) {
	m := &s.initReply
	c.p.unansweredHellos = 0
	if err := m.Decode(body, wire); err != nil {
		c.failUnexpected(&s.readyReply, wire, body, err, effects.Refused)
		return
	}
	if !m.HasExt {
		c.continueVanilla()
		return
	}
	if m.Ext.Code != 0 {
		c.v.Out.Mark(Marks.RefusedByPeer)
		code, why := effects.CodeFromWire(m.Ext.Code), effects.Why{}
		if found, same := c.cfg.checkPeer(&m.Ext, false); found == code {
			why = same
		}
		why.Said = effects.SanitizeText(m.Ext.Reason)
		c.failPeer(code, why)
		return
	}
	if code, why := c.cfg.checkPeer(&m.Ext, false); code != effects.OK {
		c.failPeer(code, why)
		return
	}
	c.p.everAnswered, c.x.newestStamp, c.x.window = true, m.Ext.Stamps.ClockNS, c.cfg.commonWindow(&m.Ext)
	c.x.carryBytes = c.cfg.commonCarryBytes(&m.Ext)
	c.x.layers, c.x.wholeChunks = m.Ext.Layers, c.cfg.assemblesChunks(&m.Ext)
	c.x.geometry = append(c.x.geometry[:0], m.Ext.Geometry...)
	c.startImport(effects.Incarnation(m.Ext.Incarnation), m.Ext.Caps, m.Ext.Planes, m.Ext.Blobs)
}

// continueVanilla continues with a peer that has none of kvferry's extensions. Only bearer planes can serve the peer,
// by the address of its buffers alone; without a bearer plane the attempt fails.
func (c *outboundView) continueVanilla() {
	if !c.cfg.Bearer {
		c.failOtherKind("lmcache, transfer_channel hixl")
		return
	}
	c.x.window, c.x.carryBytes, c.x.layers, c.x.wholeChunks, c.x.geometry = 0, 0, 0, false, c.x.geometry[:0]
	c.startImport(effects.Incarnation{}, 0, c.cfg.PlaneNames[:1], [][]byte{nil})
}

// sendBufferRequest requests the peer's buffers and states this node's buffers.
func (c *outboundView) sendBufferRequest() {
	s := &c.out.messages
	s.ownBuffers = c.cfg.ownBuffers(s.ownBuffers)
	m := protocol.HixlMemInfoRequest{LocalID: []byte(c.cfg.LocalID), Buffers: s.ownBuffers}
	if c.x.HasExtensions() {
		m.HasExt, m.Stamps = true, protocol.Stamps{ClockNS: int64(c.v.Now), EchoNS: c.x.newestStamp}
		// A peer that shares chunks may be asked to write into this node's pages.
		if c.cfg.Offers || c.p.addr.SharesChunks() {
			s.planeBlobs = c.cfg.importData(s.planeBlobs, c.x.peerID, c.x.selfID)
			m.Planes, m.Blobs = c.cfg.PlaneNames, s.planeBlobs
		}
	}
	c.p.conn.Send(c.v, c.openCorr(kindBuffers), c.v.Out.Cut(m.Append(c.v.Out.Arena())))
}

// handleBufferReply handles the list of the peer's buffers. The attempt fails if a buffer has pages of another size. A
// peer that shares chunks is then asked where it takes lookups; otherwise the handshake is complete.
func (c *outboundView) handleBufferReply(s *clientMessages, wire *protocol.Limits, body []byte) {
	m, x := &s.buffersReply, c.x
	if err := m.Decode(body, wire); err != nil {
		c.failUnexpected(&s.readyReply, wire, body, err, effects.Malformed)
		return
	}
	if m.HasExt {
		x.newestStamp = m.Stamps.ClockNS
	}
	x.buffers = x.buffers[:0]
	want := c.wantedPageBytes(m)
	for i := range m.Buffers {
		b := &m.Buffers[i]
		if b.PageSize != want || b.PageSize == 0 {
			c.failPeer(effects.Mismatch, pagesDifferReason(want, b.PageSize))
			return
		}
		x.buffers = append(x.buffers, effects.Buffer{
			ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
		})
	}
	if c.p.addr.SharesChunks() {
		m := protocol.P2PInitSideMsg{}
		c.p.conn.Send(c.v, c.openCorr(kindLookup), c.v.Out.Cut(m.Append(c.v.Out.Arena())))
		c.startStageTimer()
		return
	}
	c.finishHandshake()
}

// wantedPageBytes returns the page size that the peer's buffers must have: the size of this node's pages, or the size
// of all layers of a chunk together. A peer without extensions shows by its first buffer which of the two it uses.
func (c *outboundView) wantedPageBytes(m *protocol.HixlMemInfoResponse) uint64 {
	x, whole := c.x, c.cfg.PageBytes*uint64(c.cfg.Layers)
	if !x.HasExtensions() && c.cfg.Layers > 0 && len(m.Buffers) > 0 && whole <= math.MaxUint32 {
		x.wholeChunks = m.Buffers[0].PageSize == whole
	}
	if x.wholeChunks {
		return whole
	}
	return c.cfg.PageBytes
}

// handleLookupReply handles the reply that states where a peer that shares chunks takes lookups, and completes the
// handshake.
func (c *outboundView) handleLookupReply(s *clientMessages, wire *protocol.Limits, body []byte) {
	m := &s.lookupReply
	if err := m.Decode(body, wire); err != nil {
		c.failUnexpected(&s.readyReply, wire, body, err, effects.Malformed)
		return
	}
	at, err := protocol.ParseEndpoint(string(m.PeerLookupURL))
	if err != nil || at.IsUnspecified() {
		c.failPeer(effects.Invalid, effects.Why{
			Field: "peer_lookup_url", Ours: "host:port of the peer's own", Theirs: effects.SanitizeText(m.PeerLookupURL),
			Remedy: "give the peer's own address as its p2p_host",
		})
		return
	}
	c.p.lookupAddr = effects.Addr{Host: at.Host, Port: at.Port}
	c.finishHandshake()
}
