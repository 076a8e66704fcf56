package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// The hello of LMCache's HIXL transfer channel, with our extensions: what both sides say of themselves.

// hello fills in what we say of ourselves at either end.
func (c *Config) hello(ext *protocol.HelloExt, us effects.Incarnation) {
	*ext = protocol.HelloExt{
		ProtoMin: VersionMin, ProtoMax: VersionMax,
		Incarnation: protocol.UUID(us),
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

// window is what both ends have. Who says nothing has one.
func (c *Config) window(ext *protocol.HelloExt) uint16 {
	if w := uint16(min(uint32(c.Window), ext.Window)); w > 1 {
		return w
	}
	return 0
}

// carries is what both ends have: the most bytes of chunks in a request.
func (c *Config) carries(ext *protocol.HelloExt) uint32 { return min(c.Carries, ext.Carries) }

// blobs are what a peer needs to reach our planes, and nobody but this peer: each ends with the token that the plane
// knows it by.
func (c *Config) blobs(into [][]byte, peer, us effects.Incarnation) [][]byte {
	into = into[:0]
	for i, name := range c.PlaneNames {
		token := c.Key.Token(string(name), peer, us)
		into = append(into, append(append([]byte(nil), c.PlaneBlobs[i]...), token[:]...))
	}
	return into
}

func (c *Config) buffers(into []protocol.BufferInfo) []protocol.BufferInfo {
	// The address stays on this node: our planes name pages by buffer and index.
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
