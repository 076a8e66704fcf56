package config

import (
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// pagesMax bounds the number of pages, so that page indexes fit into 32 bits on every peer, including signed integers.
const pagesMax = 1<<31 - 1

// CheckStandalone returns the problems that prevent `kvferry node` from running the file. That command has no engine to
// supply the layout. The result is nil if there are no problems.
func (c *Config) CheckStandalone() []Problem {
	if c.Pages > 0 {
		return nil
	}
	return []Problem{{Code: Missing, File: c.Name, Field: ownPath("layout"),
		Remedy: "it is missing, and kvferry node has no engine that would give it; name num_layers, num_kv_heads, " +
			"head_size and dtype"}}
}

// SetLayout sets the layout of a full chunk of all layers, if the file left the layout to the engine, and computes the
// sizes of the pools. Sizes are rounded up to whole pages, as in LMCache-Ascend. The error is an *Error with a single
// problem.
func (c *Config) SetLayout(l protocol.Layout) error {
	if p, ok := c.applyLayout(l); !ok {
		p.File = c.Name
		return &Error{Problems: []Problem{p}}
	}
	return nil
}

// HighWater returns the maximum number of pages that a sender in pull mode offers at the same time: the pages of the
// pool, minus the share of pd_pull_backpressure_reserve_pct, rounded down; 0 before Layout is known.
func (c *Config) HighWater() uint32 {
	return c.Machine.HighWater(c.Pages)
}

// PoolKey returns the key that sets the size of the pool: pd_buffer_size, or a key that takes precedence.
func (c *Config) PoolKey() string { return c.poolKey }

// PoolDevice returns the memory that holds the pool: Device, or the host's memory with Offload, although Device is an
// NPU then.
func (c *Config) PoolDevice() Device {
	if c.Offload {
		return Device{Kind: DeviceCPU}
	}
	return c.Device
}

func (c *Config) applyLayout(l protocol.Layout) (Problem, bool) {
	if err := l.Validate(); err != nil {
		return Problem{Code: Range, Field: ownPath("layout"), Remedy: err.Error()}, false
	}
	if got := l.TokenCount(); got != c.ChunkTokens {
		return Problem{Code: Conflict, Field: "chunk_size", Value: fmt.Sprint(c.ChunkTokens),
			Remedy: fmt.Sprintf("the engine's layout has chunks of %d tokens; set chunk_size: %d", got, got)}, false
	}
	next := *c
	var p Problem
	var fits bool
	perChunk := uint64(1) // pages
	if c.Layerwise.Enabled {
		if l, next.Machine.Layers, p, fits = c.oneLayer(l); !fits {
			return p, false
		}
		perChunk = uint64(next.Machine.Layers)
	}
	own := uint32(0) // pages that belong to the engine
	if c.Register.Enabled {
		if l, own, p, fits = next.cellLayout(l); !fits {
			return p, false
		}
	}
	pageBytes, err := l.PageBytes()
	if err != nil {
		return Problem{Code: Range, Field: ownPath("layout"), Remedy: err.Error()}, false
	}
	next.Layout, next.PageBytes = l, pageBytes
	if c.Register.Enabled {
		next.BufferBytes = uint64(own) * pageBytes
		perChunk = uint64(own / c.Register.Blocks) // Each block takes a contiguous range of the pool.
	}
	if next.Pages, next.BufferBytes, p, fits = roundToPages(c.poolKey, next.BufferBytes, pageBytes); !fits {
		return p, false
	}
	if next.ArenaPages, p, fits = next.computeArenaPages(); !fits {
		return p, false
	}
	if next.NPUPages, p, fits = next.computeNPUPages(); !fits {
		return p, false
	}
	if next.StagingPages, p, fits = next.computeStagingPages(); !fits {
		return p, false
	}
	if p, fits = next.checkLayersFit(); c.Layerwise.Enabled && !fits {
		return p, false
	}
	if capacity := uint64(next.Pages) / perChunk * uint64(c.ChunkTokens); capacity < uint64(c.maxPrefillTokens) {
		return Problem{Code: Conflict, Field: "pd_max_prefill_len", Value: fmt.Sprint(c.maxPrefillTokens),
			Remedy: fmt.Sprintf("%s holds %d tokens (%d chunks of %d); raise it, or lower pd_max_prefill_len",
				c.poolKey, capacity, uint64(next.Pages)/perChunk, c.ChunkTokens)}, false
	}
	if c.Role.Sends() && c.Pull.Enabled && next.HighWater() == 0 {
		return Problem{Code: Conflict, Field: "pd_pull_backpressure_reserve_pct", Value: formatPercent(c.Machine.Reserved()),
			Remedy: fmt.Sprintf("of %d pages a reserve of %s %% leaves none to offer, so nothing could ever be sent; raise "+
				"%s, or lower the reserve",
				next.Pages, formatPercent(c.Machine.Reserved()), c.poolKey)}, false
	}
	*c = next
	return Problem{}, true
}

var (
	stagingKey = ownPath("pull.staging_bytes")
	loanMaxKey = ownPath("pull.loan_max")

	npuBytesKey = "p2p_npu_buffer_size"
	useNPUKey   = "p2p_use_npu"
)

// computeStagingPages returns the number of pool pages into which fetches read. The number is rounded down, because the
// configured size is an upper bound. fits is false, with a problem, if the size does not fit the pool.
func (c *Config) computeStagingPages() (pages uint32, p Problem, fits bool) {
	const share = 8
	key, bytes := stagingKey, c.Pull.StagingBytes
	switch {
	case c.Machine.Keeps && c.Share.NPU:
		return c.NPUPages, Problem{}, true
	case c.Machine.Keeps: // A node that shares reads no offers of senders, so Pull.StagingBytes does not apply.
		key, bytes = npuBytesKey, c.Share.StagingBytes
	case !c.Role.Receives() || !c.Pull.Enabled || !c.Pull.Delay:
		return 0, Problem{}, true
	}
	n := bytes / c.PageBytes
	p = Problem{Code: Conflict, Field: key, Value: fmt.Sprint(bytes)}
	switch {
	case bytes == 0:
		return min(max(2, c.Pages/share), c.Pages), Problem{}, true
	case n == 0:
		p.Remedy = fmt.Sprintf("a page has %d bytes; make it one page or better two, so that one is read while the other "+
			"is scattered", c.PageBytes)
		return 0, p, false
	case n > uint64(c.Pages):
		p.Remedy = fmt.Sprintf("that is more than the %d pages of %d bytes of the pool; lower it, or raise %s", c.Pages,
			c.PageBytes, c.poolKey)
		return 0, p, false
	}
	return uint32(n), Problem{}, true
}

// computeArenaPages returns the number of pages behind the pool. The number is rounded down, as in LMCache-Ascend. fits
// is false, with a problem, if the size is less than a page or too large.
func (c *Config) computeArenaPages() (pages uint32, p Problem, fits bool) {
	if !c.Share.Arena {
		return 0, Problem{}, true
	}
	n := c.Share.ArenaBytes / c.PageBytes
	p = Problem{Code: Conflict, Field: arenaBytesKey, Value: fmt.Sprint(c.Share.ArenaBytes)}
	switch {
	case n == 0:
		p.Remedy = fmt.Sprintf("a page has %d bytes; make it one page or more", c.PageBytes)
		return 0, p, false
	case n+uint64(c.Pages) > pagesMax:
		p.Remedy = fmt.Sprintf("with %d pages of %s these are %d pages of %d bytes; make both at most %d pages", c.Pages,
			c.poolKey, n+uint64(c.Pages), c.PageBytes, uint64(pagesMax))
		return 0, p, false
	}
	return uint32(n), Problem{}, true
}

// computeNPUPages returns the number of pages of the pool in the NPU's memory. The number is rounded up, as in
// LMCache-Ascend. fits is false, with a problem, if the size is too large.
func (c *Config) computeNPUPages() (pages uint32, p Problem, fits bool) {
	if !c.Share.NPU {
		return 0, Problem{}, true
	}
	pages, c.Share.NPUBytes, p, fits = roundToPages(npuBytesKey, c.Share.NPUBytes, c.PageBytes)
	if all := uint64(c.Pages) + uint64(c.ArenaPages) + uint64(pages); fits && all > pagesMax {
		return 0, Problem{Code: Conflict, Field: npuBytesKey, Value: fmt.Sprint(c.Share.NPUBytes),
			Remedy: fmt.Sprintf("with the %d pages of %s these are %d pages of %d bytes; make them at most %d pages",
				uint64(c.Pages)+uint64(c.ArenaPages), c.poolKey, all, c.PageBytes, uint64(pagesMax))}, false
	}
	return pages, p, fits
}

// roundToPages returns the size of a pool in whole pages, and that size in bytes. bytes and pageBytes are below 2^63.
func roundToPages(field string, bytes, pageBytes uint64) (pages uint32, rounded uint64, p Problem, fits bool) {
	n := (bytes + pageBytes - 1) / pageBytes
	if n > pagesMax {
		return 0, 0, Problem{Code: Range, Field: field, Value: fmt.Sprint(bytes),
			Remedy: fmt.Sprintf("that is %d pages of %d bytes; make it at most %d pages", n, pageBytes, uint64(pagesMax))}, false
	}
	return uint32(n), n * pageBytes, Problem{}, true
}
