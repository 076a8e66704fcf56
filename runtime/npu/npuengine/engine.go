//go:build cgo && linux

package npuengine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/npu"
)

// An Engine computes on the device of a node. Its methods are safe for concurrent use; Fill and Look have turns.
type Engine struct {
	device *npu.Device
	own    *acl.Context

	mu      sync.Mutex
	stream  *acl.Stream // nil: made when it is needed
	staging *acl.Memory // pinned; likewise
	stuck   error       // why the stream could not be ended, which may use staging still
}

const (
	// stagingBytes is what goes to or from the device in one batch, unless one page is larger.
	stagingBytes = 4 << 20
	// patience is how long a batch takes at most.
	patience = 30 * time.Second
)

// New makes an engine beside the node that is open on d, or will be. The caller closes it before the library, and
// when it has let go of all pages.
func New(lib *acl.Library, d *npu.Device) (*Engine, error) {
	c, err := lib.NewContext(acl.ContextOptions{Device: d.Context().Device()})
	if err != nil {
		return nil, fmt.Errorf("npuengine: %w", err)
	}
	return &Engine{device: d, own: c}, nil
}

// Fill makes the content of pages: fill stores that of page i, as long as the page has valid bytes. When it returns nil the
// device has it.
func (e *Engine) Fill(pages []device.Page, fill func(i int, content []byte)) error {
	at, err := e.locate(pages)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches(at, func(first int, staged []acl.Range, on []acl.Range) error {
		copies := make([]acl.Copy, len(on))
		for i := range on {
			fill(first+i, bytesOf(staged[i]))
			copies[i] = acl.Copy{Dst: on[i], Src: staged[i]}
		}
		return e.move(copies)
	}, func(i int, host []byte) { fill(i, host) })
}

// Look reads pages back: look is given what the device has in page i, for the time of the call.
func (e *Engine) Look(pages []device.Page, look func(i int, content []byte)) error {
	at, err := e.locate(pages)
	if err != nil {
		return err
	}
	return e.look(at, look)
}

func (e *Engine) look(at []acl.Range, look func(i int, content []byte)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches(at, func(first int, staged []acl.Range, on []acl.Range) error {
		copies := make([]acl.Copy, len(on))
		for i := range on {
			copies[i] = acl.Copy{Dst: staged[i], Src: on[i]}
		}
		if err := e.move(copies); err != nil {
			return err
		}
		for i := range staged {
			look(first+i, bytesOf(staged[i]))
		}
		return nil
	}, look)
}

// Take is device code for a fetch: it stores chunks in memory of the engine's own on the device, and looks at them there; chunk
// is that of the fetch's key number key.
func (e *Engine) Take(look func(key int, chunk []byte)) func(ctx context.Context, first int, chunks []device.Page) error {
	return func(ctx context.Context, first int, chunks []device.Page) error {
		sizes := uint64(0)
		for _, c := range chunks {
			sizes += uint64(c.Bytes)
		}
		var cache *acl.Memory
		if err := e.own.Do(func(t *acl.Thread) (err error) {
			cache, err = t.AllocDevice(max(sizes, 1), acl.HugeFirst)
			return err
		}); err != nil {
			return fmt.Errorf("npuengine: memory for %d chunks: %w", len(chunks), err)
		}
		to, offset := make([]acl.Range, len(chunks)), uint64(0)
		for i, c := range chunks {
			to[i] = cache.Range(offset, uint64(c.Bytes))
			offset += uint64(c.Bytes)
		}
		// When it returns nothing uses cache any more, whatever it returns.
		err := e.device.Scatter(func(t *acl.Thread, s *acl.Stream, _ int, from []acl.Range) error {
			for i := range from {
				if err := s.Copy(t, to[i], from[i]); err != nil {
					return err
				}
			}
			return nil
		})(ctx, first, chunks)
		if err == nil {
			err = e.look(to, func(i int, chunk []byte) { look(first+i, chunk) })
		}
		return errors.Join(err, e.own.Do(cache.Close))
	}
}

// Close gives the engine's memory and context back. After an error it may be called again.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.own.Do(func(t *acl.Thread) error { return errors.Join(e.endStream(t), e.endStaging(t)) }); err != nil && !errors.Is(err, acl.ErrClosed) {
		return err
	}
	return e.own.Close()
}

func (e *Engine) locate(pages []device.Page) ([]acl.Range, error) {
	at := make([]acl.Range, len(pages))
	for i, page := range pages {
		var err error
		if at[i], err = e.device.Range(page); err != nil {
			return nil, err
		}
	}
	return at, nil
}

func bytesOf(r acl.Range) []byte {
	return r.Memory.Bytes()[r.Offset : r.Offset+r.Size : r.Offset+r.Size]
}
