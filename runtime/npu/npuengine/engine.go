//go:build cgo && linux

package npuengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/npu"
)

// An Engine computes on the device of a node. The methods are safe for concurrent use.
type Engine struct {
	device  *npu.Device
	context *acl.Context
}

// New makes an engine for the node that is open on d, or will be. The caller closes the Engine before d.
func New(lib *acl.Library, d *npu.Device) (*Engine, error) {
	c, err := lib.NewContext(acl.ContextOptions{Device: d.Context().Device()})
	if err != nil {
		return nil, fmt.Errorf("npuengine: %w", err)
	}
	return &Engine{device: d, context: c}, nil
}

// FillPages makes the content of pages: the callback fill stores the content of page i, as many bytes as are valid in
// the page. For pages on the device the content is made in place; for pages in host memory the content is made in the
// engine's own device memory and copied. A nil error means that all pages have their content.
func (e *Engine) FillPages(pages []device.Page, fill func(i int, content []byte)) error {
	at, err := e.pageRanges(pages)
	if err != nil {
		return err
	}
	host := func(i int, page []byte) error { return e.fillHostPage(page, func(content []byte) { fill(i, content) }) }
	return forEachBatch(at, host, func(first int, bytes [][]byte) error {
		for i := range bytes {
			fill(first+i, bytes[i])
		}
		return e.forEachRange(at[first:first+len(bytes)], bytes,
			func(t *acl.Thread, r acl.Range, b []byte) error { return t.Upload(r, b) })
	})
}

// fillHostPage makes content on the device, where an engine has its KV cache, and copies the content to a page of the
// host.
func (e *Engine) fillHostPage(page []byte, fill func(content []byte)) error {
	return e.context.Do(func(t *acl.Thread) error {
		computed, err := t.AllocDevice(uint64(max(len(page), 1)), acl.HugeFirst)
		if err != nil {
			return fmt.Errorf("npuengine: cannot allocate device memory for %d bytes of content: %w", len(page), err)
		}
		content := make([]byte, len(page))
		fill(content)
		from := computed.Range(0, uint64(len(page)))
		if err = t.Upload(from, content); err == nil {
			err = t.Download(page, from)
		}
		return errors.Join(err, computed.Close(t))
	})
}

// ReadPages reads pages back: the callback look gets the device's content of page i, for the time of the call.
func (e *Engine) ReadPages(pages []device.Page, look func(i int, content []byte)) error {
	at, err := e.pageRanges(pages)
	if err != nil {
		return err
	}
	return e.readRanges(at, look)
}

func (e *Engine) readRanges(at []acl.Range, look func(i int, content []byte)) error {
	host := func(i int, page []byte) error {
		look(i, page)
		return nil
	}
	return forEachBatch(at, host, func(first int, bytes [][]byte) error {
		err := e.forEachRange(at[first:first+len(bytes)], bytes,
			func(t *acl.Thread, r acl.Range, b []byte) error { return t.Download(b, r) })
		if err != nil {
			return err
		}
		for i := range bytes {
			look(first+i, bytes[i])
		}
		return nil
	})
}

// ScatterFunc returns device code for a fetch. That function stores chunks in the engine's own device memory, reads
// them back, and passes each chunk to look with the index of its key in the fetch.
func (e *Engine) ScatterFunc(look func(key int, chunk []byte)) func(ctx context.Context, first int,
	chunks []device.Page) error {
	return func(ctx context.Context, first int, chunks []device.Page) error {
		total := uint64(0)
		for _, c := range chunks {
			total += uint64(c.Bytes)
		}
		var cache *acl.Memory
		if err := e.context.Do(func(t *acl.Thread) (err error) {
			cache, err = t.AllocDevice(max(total, 1), acl.HugeFirst)
			return err
		}); err != nil {
			return fmt.Errorf("npuengine: cannot allocate device memory for %d chunks: %w", len(chunks), err)
		}
		to, offset := make([]acl.Range, len(chunks)), uint64(0)
		for i, c := range chunks {
			to[i] = cache.Range(offset, uint64(c.Bytes))
			offset += uint64(c.Bytes)
		}
		// When this call returns, nothing uses cache any more, even after an error.
		err := e.device.ScatterFunc(func(t *acl.Thread, s *acl.Stream, _ int, from []acl.Range) error {
			for i := range from {
				if err := s.Copy(t, to[i], from[i]); err != nil {
					return err
				}
			}
			return nil
		})(ctx, first, chunks)
		if err == nil {
			err = e.readRanges(to, func(i int, chunk []byte) { look(first+i, chunk) })
		}
		return errors.Join(err, e.context.Do(cache.Close))
	}
}

// Close closes the engine's context.
func (e *Engine) Close() error { return e.context.Close() }

func (e *Engine) pageRanges(pages []device.Page) ([]acl.Range, error) {
	at := make([]acl.Range, len(pages))
	for i, page := range pages {
		var err error
		if at[i], err = e.device.PageRange(page); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// forEachRange calls do for each range on the device, on the thread of the engine's context.
func (e *Engine) forEachRange(at []acl.Range, bytes [][]byte, do func(*acl.Thread, acl.Range, []byte) error) error {
	return e.context.Do(func(t *acl.Thread) error {
		for i := range at {
			if err := do(t, at[i], bytes[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// batchBytes bounds the bytes that are copied to or from the device at a time, unless a single page is larger.
const batchBytes = 4 << 20

// forEachBatch walks through ranges in order: runs of ranges on the device go to batch, with memory for their bytes,
// and each range in host memory goes to host unchanged.
func forEachBatch(all []acl.Range, host func(i int, page []byte) error, batch func(first int, bytes [][]byte) error) error {
	for first := 0; first < len(all); {
		if b := all[first].Memory.Bytes(); b != nil {
			r := all[first]
			if err := host(first, b[r.Offset:r.Offset+r.Size:r.Offset+r.Size]); err != nil {
				return err
			}
			first++
			continue
		}
		var bytes [][]byte
		total := uint64(0)
		for _, r := range all[first:] {
			if r.Memory.Place() != acl.OnDevice || len(bytes) > 0 && total+r.Size > batchBytes {
				break
			}
			bytes = append(bytes, make([]byte, r.Size))
			total += r.Size
		}
		if err := batch(first, bytes); err != nil {
			return err
		}
		first += len(bytes)
	}
	return nil
}
