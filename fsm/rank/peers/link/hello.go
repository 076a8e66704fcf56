package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// This file has the parts of the handshake that both sides send. The handshake is that of LMCache's HIXL transfer
// channel, with kvferry's extensions.

// fillHello fills in what this node states about itself, as client or as server.
func (c *Config) fillHello(ext *protocol.HelloExt, selfID effects.Incarnation) {
	*ext = protocol.HelloExt{
		ProtoMin: VersionMin, ProtoMax: VersionMax,
		Incarnation: protocol.UUID(selfID),
		Caps:        protocol.CapCommit | protocol.CapLease | protocol.CapPull,
		PageBytes:   c.PageBytes,
		Layout:      c.Layout,
		Planes:      c.PlaneNames,
		Geometry:    c.Geometry,
	}
	if c.Renews {
		ext.Caps |= protocol.CapRenew
	}
	if c.Recalls {
		ext.Caps |= protocol.CapRecall
	}
	if ext.Layers = c.Layers; c.TakesLayers {
		ext.Caps |= protocol.CapLayers
	}
	ext.Carries = c.Carries
	if c.Window > 1 {
		ext.Window = uint32(c.Window)
	}
}

// commonWindow returns the number of requests in flight that both ends support; 0 means 1. A peer that states nothing
// supports one.
func (c *Config) commonWindow(ext *protocol.HelloExt) uint16 {
	if w := uint16(min(uint32(c.Window), ext.Window)); w > 1 {
		return w
	}
	return 0
}

// commonCarryBytes returns the largest number of chunk bytes in a request that both ends support.
func (c *Config) commonCarryBytes(ext *protocol.HelloExt) uint32 { return min(c.Carries, ext.Carries) }

// importData returns the import data that the given peer needs to reach this node's planes. The data of each plane ends
// with a token by which the plane recognizes this peer, so no peer can use the data of another.
func (c *Config) importData(into [][]byte, peer, selfID effects.Incarnation) [][]byte {
	into = into[:0]
	for i, name := range c.PlaneNames {
		token := c.Key.Token(string(name), peer, selfID)
		into = append(into, append(append([]byte(nil), c.PlaneBlobs[i]...), token[:]...))
	}
	return into
}

// ownBuffers returns the list of this node's buffers.
func (c *Config) ownBuffers(into []protocol.BufferInfo) []protocol.BufferInfo {
	// Addresses are not sent: kvferry's planes name pages by buffer and index.
	into = append(into[:0], protocol.BufferInfo{
		UUID: c.Buffer, Size: uint64(c.Pages) * c.PageBytes, PageSize: c.PageBytes,
	})
	if c.DevicePages > 0 {
		into = append(into, protocol.BufferInfo{
			UUID: c.Device, Size: uint64(c.DevicePages) * c.PageBytes, PageSize: c.PageBytes,
		})
	}
	return into
}
