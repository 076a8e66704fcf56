package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// The places of memory. Each engine has other addresses, and a block of a layer is longer than its pages, so that a
// write to a wrong address meets no page.
const (
	nodeBase    = 1 << 30 // the node's cache
	frontBase   = 1 << 31 // what the front states: memory that nothing depends on
	engineBase  = 1 << 32 // the cache of a plain engine's rank
	layerBytes  = 1 << 20
	strideSlack = 32
)

// A memory is the layout of a rank's cache.
type memory struct {
	base   uint64
	blocks uint32
	shares uint32 // pages of a block of a layer
}

func (m memory) stride() uint64 { return pageBytes*uint64(m.shares) + strideSlack }

// countPages returns the number of pages.
func (m memory) countPages() int { return layerCount * int(m.blocks) * int(m.shares) }

// pageOf returns the number of a page.
func (m memory) pageOf(layer int, block, share uint32) uint32 {
	return (uint32(layer)*m.blocks+block)*m.shares + share
}

// blockOf returns the block of a page.
func (m memory) blockOf(page uint32) uint32 { return page / m.shares % m.blocks }

// locate returns the page at an address, and reports false if no page begins there.
func (m memory) locate(address uint64) (page uint32, ok bool) {
	if address < m.base {
		return 0, false
	}
	layer, rest := (address-m.base)/layerBytes, (address-m.base)%layerBytes
	block, within := rest/m.stride(), rest%m.stride()
	share := within / pageBytes
	if layer >= layerCount || block >= uint64(m.blocks) || share >= uint64(m.shares) || within%pageBytes != 0 {
		return 0, false
	}
	return m.pageOf(int(layer), uint32(block), uint32(share)), true
}

// metadata returns what an engine states about this memory.
func (m memory) metadata(engine, agent string) protocol.NixlMetadata {
	x := protocol.NixlMetadata{
		EngineID: []byte(engine), Agent: []byte(agent), NumBlocks: uint64(m.blocks), Layout: []byte(cacheLayout), BlockSize: blockTokens,
		PerLogical: 1, Backend: []byte("B"), DCPSize: 1, PCPSize: 1,
	}
	for layer := range uint64(layerCount) {
		x.BaseAddrs = append(x.BaseAddrs, m.base+layer*layerBytes)
		x.BlockLens, x.BlockStrides = append(x.BlockLens, pageBytes*uint64(m.shares)), append(x.BlockStrides, m.stride())
	}
	return x
}

// addressOf returns the address of a page by the metadata of an agent, as a plain engine calculates it.
func addressOf(m *protocol.NixlMetadata, layer int, block, share, shares uint32) uint64 {
	if layer >= len(m.BaseAddrs) || layer >= len(m.BlockStrides) || layer >= len(m.BlockLens) {
		return 0
	}
	return m.BaseAddrs[layer] + uint64(block)*m.BlockStrides[layer] + uint64(share)*(m.BlockLens[layer]/uint64(shares))
}

// contentOf returns the text that a request computes for a cell of a position of a layer.
func contentOf(request string, layer, position int, cell uint32) string {
	if cell == 0 {
		return fmt.Sprintf("%s layer %d position %d", request, layer, position)
	}
	return fmt.Sprintf("%s layer %d position %d cell %d", request, layer, position, cell)
}
